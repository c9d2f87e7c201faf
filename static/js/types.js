/**
 * The shapes that cross borders: what an engine says (engine/events.py), the state that folding makes of it
 * (app/state.py), and what panels get to draw with. Types alone, for `make lint`; nothing of this is run.
 *
 * @typedef {Object<string, any>} Json
 *
 * Events. All but `key` and `gap` have a `seq` of their own.
 * @typedef {{engine: string, epoch: string, seq: number, t: number}} Header
 * @typedef {Header & {kind: "load", phase: string, done: number, total: number, unit: string}} LoadEvent
 * @typedef {Header & {kind: "key", state: State}} KeyEvent
 * @typedef {Header & {kind: "gap", first: number, last: number}} GapEvent
 * @typedef {Header & {kind: "beat", step_age_us: number | null}} BeatEvent
 * @typedef {Header & {kind: "bye", reason: string, origin: string}} ByeEvent
 * @typedef {Header & {kind: "reply", cmd_id: string, ok: boolean, effect: string | null, error: string | null}} ReplyEvent
 * @typedef {Header & {kind: "gate"} & GateSaid} GateEvent
 * @typedef {Header & {kind: "config", changed: Json, waiting: string[]}} ConfigEvent
 * @typedef {Header & {kind: "cache_reset", num_blocks: number, victims: number[]}} CacheResetEvent
 * @typedef {Header & {kind: "reset", victims: number[]}} ResetEvent
 * @typedef {Header & {kind: "mark", step: number, text: string}} MarkEvent
 * @typedef {Header & {kind: "hello"} & HelloFacts} Hello
 * @typedef {Header & {kind: "step"} & StepFacts} StepEvent
 * @typedef {ArrivedEvent | AdmittedEvent | ResumedEvent | FirstTokenEvent | PreemptedEvent | FinishedEvent | RejectedEvent} RequestEvent
 * @typedef {LoadEvent | Hello | KeyEvent | GapEvent | BeatEvent | ByeEvent | StepEvent | RequestEvent | ReplyEvent | GateEvent
 *   | ConfigEvent | CacheResetEvent | ResetEvent | MarkEvent} Event
 *
 * @typedef {Object} HelloFacts
 * @property {number} v
 * @property {Json} config
 * @property {ModelFacts} model
 * @property {DeviceFacts} device
 * @property {MemoryFacts} memory
 * @property {number} num_blocks
 * @property {number} block_size
 * @property {number} clock_unix_us
 * @property {string} redaction
 * @property {string} hash_salt
 * @property {Array<{feature: string, reason: string}>} disabled
 * @property {boolean} simulated
 * @property {string | null} [replay_of] the epoch whose arrivals are replayed
 * @property {ModelFacts | null} draft
 *
 * @typedef {Object} ModelFacts
 * @property {string} name
 * @property {string} architecture
 * @property {number} num_layers
 * @property {number} num_attention_heads
 * @property {number} num_kv_heads
 * @property {number} head_dim
 * @property {number} hidden_size
 * @property {number} vocab_size
 * @property {number} num_parameters
 * @property {number} weight_bytes
 * @property {string} dtype
 * @property {number} max_position_embeddings
 * @property {boolean} has_chat_template
 * @property {boolean} tie_word_embeddings
 *
 * @typedef {Object} DeviceFacts
 * @property {string} type
 * @property {string} name
 * @property {number} num_threads
 * @property {number | null} total_bytes
 * @property {string} why
 * @property {number | null} peak_flops
 * @property {number | null} peak_bytes_per_s
 *
 * @typedef {Object} MemoryFacts
 * @property {number} weights
 * @property {number} kv_pool
 * @property {number} bytes_per_token
 * @property {number} bytes_per_block
 * @property {number} draft_bytes_per_token
 * @property {string} [kv_dtype] older recordings lack it
 * @property {number | null} available
 * @property {number | null} [activations]
 * @property {string} sum_text
 *
 * Steps.
 * @typedef {Object} StepFacts
 * @property {number} step
 * @property {number} start_us
 * @property {number} wall_us
 * @property {number} accepted_us
 * @property {Object<string, number>} phases_us
 * @property {Object<string, string>} scopes
 * @property {number} num_scheduled_tokens
 * @property {number} num_prefill_tokens
 * @property {number} num_decode_tokens
 * @property {number} token_budget
 * @property {string} ended_by
 * @property {RowList} rows
 * @property {WaitReason[]} waiting
 * @property {Iterable<[string, number[]]>} tables lists, or packed (kept_step.js)
 * @property {Iterable<[number, string]>} hashed
 * @property {number[]} evicted
 * @property {number[]} victims
 * @property {Counts} blocks
 * @property {number} flops
 * @property {number} bytes
 * @property {boolean} gated
 * @property {number | null} [device_us]
 *
 * @typedef {Iterable<Row> & {length: number}} RowList a list, or in columns (rows.js)
 *
 * @typedef {Object} Row one scheduled request in one step
 * @property {string} request
 * @property {number} slot
 * @property {"prefill" | "decode"} phase
 * @property {number} scheduled
 * @property {number} drafted
 * @property {number} accepted
 * @property {number} computed
 * @property {number} out
 *
 * @typedef {Object} WaitReason
 * @property {string} request
 * @property {string} code
 * @property {number | null} needs
 * @property {number | null} free
 * @property {number | null} limit
 * @property {string | null} by
 * @property {string | null} source
 *
 * @typedef {{free: number, cached_idle: number, referenced: number, total: number}} Counts
 *
 * Requests.
 * @typedef {Header & {kind: "request", request: string}} OfRequest
 * @typedef {OfRequest & {event: "arrived", label: string | null, parent: string | null, owner: string | null,
 *   arrival_us: number, num_prompt_tokens: number, max_tokens: number, sampling: Json, priority: number,
 *   request_class: string | null, block_hashes: string[], queue_index?: number, gate_held: boolean}} ArrivedEvent
 * @typedef {OfRequest & {event: "admitted", slot: number, cached: number, scheduled_us: number}} AdmittedEvent
 * @typedef {OfRequest & {event: "resumed", slot: number, cached: number, scheduled_us: number, preempted_us: number}} ResumedEvent
 * @typedef {OfRequest & {event: "first_token", first_token_us: number}} FirstTokenEvent
 * @typedef {OfRequest & {event: "preempted", by: string, needed: number, free: number, num_lost_tokens: number,
 *   num_held_blocks: number, num_preemptions: number, queue_index?: number, at_us: number}} PreemptedEvent
 * @typedef {OfRequest & {event: "finished", reason: FinishReason, detail: string | null, finished_us: number,
 *   num_output_tokens: number, timings: Timings}} FinishedEvent
 * @typedef {OfRequest & {event: "rejected", status: number, param: string | null, message: string}} RejectedEvent
 * @typedef {"stop" | "length" | "abort" | "error"} FinishReason
 *
 * @typedef {Object} Timings
 * @property {number | null} queue_us
 * @property {number | null} prefill_us
 * @property {number | null} ttft_us
 * @property {number | null} decode_us
 * @property {number | null} tpot_us
 * @property {number | null} e2e_us
 * @property {number} preempted_us
 * @property {number} gated_us
 *
 * The state.
 * @typedef {Object} State
 * @property {number} step
 * @property {Json} config
 * @property {GateFacts} gate
 * @property {{waiting: string[], running: string[]}} queues
 * @property {Object<string, RequestFacts>} requests
 * @property {string[]} finished
 * @property {Blocks} blocks
 * @property {Totals} totals
 * @property {StepFacts | null} last_step
 * @property {Mark[]} marks
 * @property {number} num_resets
 *
 * @typedef {{state: string, steps_left: number, per_second?: number | null, breaks?: string[], hit?: Hit | null}} GateSaid
 * @typedef {{state: string, steps_left: number, per_second: number | null, breaks: string[], hit: Hit | null}} GateFacts
 * @typedef {{on: string, step: number, request: string | null}} Hit
 * @typedef {{step: number, text: string}} Mark
 * @typedef {{block_size: number, total: number, hashes: Array<string | null>, refs: number[], victims: number[], counts: Counts}} Blocks
 *
 * @typedef {Object} RequestFacts
 * @property {string} id
 * @property {string | null} label
 * @property {string | null} parent
 * @property {string | null} owner
 * @property {"waiting" | "running" | "finished"} status
 * @property {number | null} slot
 * @property {number} num_prompt_tokens
 * @property {number} num_output_tokens
 * @property {number} num_computed_tokens
 * @property {number} num_cached_tokens
 * @property {number} max_tokens
 * @property {Json} sampling
 * @property {number} priority
 * @property {string | null} request_class
 * @property {number[]} block_table
 * @property {number} num_preemptions
 * @property {number} num_lost_tokens
 * @property {number} preempted_us
 * @property {number | null} last_preempted_us
 * @property {number} arrival_us
 * @property {number | null} scheduled_us
 * @property {number | null} first_token_us
 * @property {number | null} last_token_us
 * @property {number | null} finished_us
 * @property {WaitReason | null} reason
 * @property {FinishReason | null} finish_reason
 * @property {string | null} finish_detail
 * @property {Timings | null} timings
 *
 * @typedef {Object} Totals
 * @property {number} steps
 * @property {number} prefill_tokens
 * @property {number} decode_tokens
 * @property {number} output_tokens
 * @property {number} arrived
 * @property {number} rejected
 * @property {Record<FinishReason, number>} finished
 * @property {number} preemptions
 * @property {number} lost_tokens
 * @property {number} evictions
 * @property {number} prefix_queried_tokens
 * @property {number} prefix_hit_tokens
 * @property {number} reread_tokens
 *
 * What the page makes of it; each is described where it is made.
 * @typedef {import("./history.js").History} History
 * @typedef {import("./history.js").Step} Step
 * @typedef {import("./history.js").Sample} Sample
 * @typedef {import("./lanes.js").Lane} Lane
 * @typedef {import("./notes.js").Notes} Notes
 * @typedef {import("./selection.js").Choice} Choice
 * @typedef {import("./selection.js").Lit} Lit
 * @typedef {import("./palette.js").Palette} Palette
 * @typedef {import("./axis.js").Axis} Axis
 * @typedef {import("./axis.js").Plot} Plot
 * @typedef {import("./store.js").Engine} Engine
 * @typedef {import("./store.js").Store} Store
 * @typedef {import("./render.js").Loop} Loop
 * @typedef {import("./selection.js").Selection} Selection
 * @typedef {CanvasRenderingContext2D} Canvas what is drawn on
 * @typedef {import("./table.js").Twin} Twin
 * @typedef {{width: number, height: number, scale: number, zoom: number}} Size of a canvas; see frame.js
 *
 * @typedef {Object} View what panels draw, looked up once per frame; see main.js
 * @property {Store} store
 * @property {Engine | null} engine
 * @property {State | null} state   of the moment shown
 * @property {Hello | null} hello
 * @property {History | null} history
 * @property {number} last          newest column
 * @property {number} column        of the moment shown
 * @property {number} until         boundaries above it lie ahead of the moment shown
 * @property {number | null} quietMs for how long a step that is due was not heard of; see quiet.js
 * @property {number} base          column of step 0 in its epoch
 * @property {string} why           there is nothing to draw
 * @property {Axis} axis
 * @property {Palette} palette
 * @property {boolean} byOwner
 * @property {Choice | null} choice
 * @property {Lit} lit
 * @property {Page} page
 *
 * @typedef {View & {engine: Engine, state: State, hello: Hello, history: History}} KnownView once the engine has said something
 *
 * @typedef {Object} Page what panels may ask of it
 * @property {Loop} loop
 * @property {Selection} selection
 * @property {Axis} axis
 * @property {() => View} view
 * @property {import("./tip.js").Tip} tip
 * @property {number} lanesOut    of the timeline, out of sight
 * @property {() => void} onPan     the axis was moved by hand
 * @property {() => void} goLive
 * @property {(id: string) => void} showEngine  in all panels, from now on
 * @property {import("./step_pair.js").StepPair} compare
 * @property {import("./panels/self.js").Watch} watch
 * @property {ReturnType<typeof import("./texts.js").createTexts> | null} texts of answers, that this viewer may read
 * @property {{view: "requests" | "gaps", show: (view: "requests" | "gaps") => void} | null} latency once it is mounted; see later.js
 * @property {PoolPanel | null} kv  the same of it
 *
 * @typedef {Object} CanvasPanel see frame.js. Before the engine has said something, `state` and the like are null here too
 * @property {number} [gutter]      right of the plot
 * @property {number} [margin]      left of it, on the time axis
 * @property {(root: HTMLElement, page: Page) => void} [mount]
 * @property {(view: KnownView) => string | null} empty
 * @property {(g: Canvas, size: Size, view: KnownView) => void} draw
 * @property {(view: KnownView) => unknown[] | null} [look] what the picture depends on besides palette and size, where it
 *   seldom changes: it is drawn anew only when one of these has. null: always
 * @property {(x: number, y: number, view: KnownView, size: Size) => any} [hit]
 * @property {(hit: any, view: KnownView) => string} [hint]
 * @property {(root: HTMLElement, view: KnownView) => void} [detail]
 * @property {(view: KnownView) => string} summary
 * @property {(view: KnownView) => Twin} twin
 *
 * @typedef {Object} PoolPicture one of the KV panel's, see panels/kv_panel.js
 * @property {(view: KnownView) => string | null} empty
 * @property {(g: Canvas, size: Size, view: KnownView) => void} draw
 * @property {(x: number, y: number, view: KnownView, size: Size) => any} hit
 * @property {(hit: any, view: KnownView) => string} hint
 * @property {(view: KnownView) => string} summary
 * @property {(view: KnownView) => Twin} twin
 * @property {string[]} marks       parts of the legend that it needs
 * @property {(view: KnownView) => string} what stands before the legend
 * @property {(view: KnownView) => string} line stands below the picture
 * @property {PoolKeys} keys
 * @property {boolean} [opened]
 *
 * @typedef {Object} PoolPanel
 * @property {() => boolean} close  back from an open tile
 * @property {() => object[]} cells where its pictures have drawn what, for tests
 * @property {() => object[]} tiles
 * @property {() => object[]} bars
 * @property {() => object[]} table
 *
 * @typedef {Object} PoolKeys its way for the keyboard, see kv_cursor.js
 * @property {(view: KnownView) => boolean} [needed]
 * @property {() => {columns: number, total: number}} grid
 * @property {(place: number, view: KnownView) => string} words
 * @property {(place: number) => Choice | null | undefined} enter
 * @property {(place: number, by: -1 | 1) => number} [above]
 * @property {(place: number, size: Size) => {x: number, y: number, width: number, height: number} | undefined} box
 */
