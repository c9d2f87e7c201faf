/**
 * The reducer: fold(state, event) -> state. The same as app/state.py, line for line, and held to it by a test:
 * fold(key, deltas) equals the next key on every recording. Pure: it touches nothing but the state it is given,
 * which it changes and returns; take structuredClone to keep an old one. The shape of the state is written
 * down in app/state.py.
 *
 * @import {AdmittedEvent, ArrivedEvent, Blocks, CacheResetEvent, ConfigEvent, Event, FinishedEvent, FirstTokenEvent, GateFacts, GateSaid,
 *   Json, MarkEvent, PreemptedEvent, RequestFacts, ResetEvent, ResumedEvent, State, StepEvent, Totals, WaitReason} from "./types.js"
 */

/** Finished requests that the state keeps; the engine and every fold apply the same number. */
export const FINISHED_KEPT = 32;
/** Newest marks that the state keeps; the same of them. */
export const MARKS_KEPT = 64;

/** The counters of a fresh epoch. @returns {Totals} */
export function emptyTotals() {
  return {
    steps: 0,
    prefill_tokens: 0,
    decode_tokens: 0,
    output_tokens: 0,
    arrived: 0,
    rejected: 0,
    finished: { stop: 0, length: 0, abort: 0, error: 0 },
    preemptions: 0,
    lost_tokens: 0,
    evictions: 0,
    prefix_queried_tokens: 0,
    prefix_hit_tokens: 0,
    reread_tokens: 0,
  };
}

/**
 * The state of an engine that has done nothing yet.
 * @param {Json} config
 * @returns {State}
 */
export function emptyState(config) {
  const total = config.num_blocks;
  return {
    step: 0,
    config: { ...config },
    gate: gateFacts({ state: config.start_paused ? "paused" : "running", steps_left: 0 }),
    queues: { waiting: [], running: [] },
    requests: {},
    finished: [],
    blocks: {
      block_size: config.block_size,
      total,
      hashes: new Array(total).fill(null),
      refs: new Array(total).fill(0),
      victims: [],
      counts: { free: total, cached_idle: 0, referenced: 0, total },
    },
    totals: emptyTotals(),
    last_step: null,
    marks: [],
    num_resets: 0,
  };
}

/**
 * Apply one event. null is "nothing known yet": only `hello` and `key` lead out of it.
 * @param {State | null} state
 * @param {Event} event
 * @returns {State | null}
 */
export function fold(state, event) {
  if (event.kind === "hello") return emptyState(event.config);
  if (event.kind === "key") return event.state;
  if (state === null) return null;
  const name = event.kind === "request" ? event.event : event.kind;
  const apply = APPLY.get(name);
  if (apply !== undefined) apply(state, event);
  return state;
}

// -- life of a request ---------------------------------------------------------------------------

/** @param {State} state @param {ArrivedEvent} e */
function arrived(state, e) {
  state.requests[e.request] = {
    id: e.request,
    label: e.label,
    parent: e.parent,
    owner: e.owner,
    status: "waiting",
    slot: null,
    num_prompt_tokens: e.num_prompt_tokens,
    num_output_tokens: 0,
    num_computed_tokens: 0,
    num_cached_tokens: 0,
    max_tokens: e.max_tokens,
    sampling: e.sampling,
    priority: e.priority,
    request_class: e.request_class,
    block_table: [],
    num_preemptions: 0,
    num_lost_tokens: 0,
    preempted_us: 0,
    last_preempted_us: null,
    arrival_us: e.arrival_us,
    scheduled_us: null,
    first_token_us: null,
    last_token_us: null,
    finished_us: null,
    reason: e.gate_held ? waitReason(e.request, "gate_held") : null,
    finish_reason: null,
    finish_detail: null,
    timings: null,
  };
  state.queues.waiting.splice(e.queue_index ?? state.queues.waiting.length, 0, e.request);
  state.totals.arrived += 1;
}

/** @param {string} request @param {string} code @returns {WaitReason} */
function waitReason(request, code) {
  return { request, code, needs: null, free: null, limit: null, by: null, source: null };
}

/** @param {string[]} list @param {string} value */
function remove(list, value) {
  const at = list.indexOf(value);
  if (at >= 0) list.splice(at, 1);
}

/** @param {State} state @param {AdmittedEvent | ResumedEvent} e */
function start(state, e) {
  const request = state.requests[e.request];
  request.status = "running";
  request.slot = e.slot;
  request.num_computed_tokens = e.cached;
  request.reason = null;
  remove(state.queues.waiting, e.request);
  state.queues.running.push(e.request);
  return request;
}

/** @param {State} state @param {AdmittedEvent} e */
function admitted(state, e) {
  const request = start(state, e);
  request.scheduled_us = e.scheduled_us;
  request.num_cached_tokens = e.cached;
  state.totals.prefix_queried_tokens += request.num_prompt_tokens;
  state.totals.prefix_hit_tokens += e.cached;
}

/** @param {State} state @param {ResumedEvent} e */
function resumed(state, e) {
  const request = start(state, e);
  request.preempted_us = e.preempted_us;
  request.last_preempted_us = null;
  state.totals.reread_tokens += e.cached;
}

/** @param {State} state @param {FirstTokenEvent} e */
function firstToken(state, e) {
  state.requests[e.request].first_token_us = e.first_token_us;
}

/** @param {State} state @param {PreemptedEvent} e */
function preempted(state, e) {
  const request = state.requests[e.request];
  request.status = "waiting";
  request.slot = null;
  request.num_computed_tokens = 0;
  dropTable(state, request);
  request.num_preemptions = e.num_preemptions;
  request.num_lost_tokens += e.num_lost_tokens;
  request.last_preempted_us = e.at_us;
  remove(state.queues.running, e.request);
  state.queues.waiting.splice(e.queue_index ?? 0, 0, e.request);
  state.totals.preemptions += 1;
  state.totals.lost_tokens += e.num_lost_tokens;
}

/** @param {State} state @param {FinishedEvent} e */
function finished(state, e) {
  const request = state.requests[e.request];
  remove(state.queues.waiting, e.request);
  remove(state.queues.running, e.request);
  request.status = "finished";
  request.slot = null;
  request.reason = null;
  dropTable(state, request);
  request.finished_us = e.finished_us;
  request.finish_reason = e.reason;
  request.finish_detail = e.detail;
  request.timings = e.timings;
  state.totals.finished[e.reason] += 1;
  state.finished.push(e.request);
  while (state.finished.length > FINISHED_KEPT) delete state.requests[/** @type {string} */ (state.finished.shift())];
}

/** @param {State} state */
function rejected(state) {
  state.totals.rejected += 1;
}

// -- one step ------------------------------------------------------------------------------------

/** @param {State} state @param {StepEvent} e */
function step(state, e) {
  const { requests, blocks, totals } = state;
  for (const block of e.evicted) forget(blocks, block);
  for (const [id, appended] of e.tables) {
    for (const block of appended) {
      requests[id].block_table.push(block);
      hold(blocks, block);
    }
  }
  for (const row of e.rows) {
    const request = requests[row.request];
    request.num_computed_tokens = row.computed;
    request.num_output_tokens += row.out;
    if (row.out) request.last_token_us = e.accepted_us;
    totals.output_tokens += row.out;
  }
  for (const [block, hash] of e.hashed) blocks.hashes[block] = hash;
  for (const reason of e.waiting) requests[reason.request].reason = reason;
  blocks.victims = e.victims;
  totals.steps += 1;
  totals.prefill_tokens += e.num_prefill_tokens;
  totals.decode_tokens += e.num_decode_tokens;
  totals.evictions += e.evicted.length;
  state.step = e.step;
  const { kind: _kind, engine: _engine, epoch: _epoch, seq: _seq, t: _t, ...facts } = e;
  state.last_step = facts;
}

// -- blocks --------------------------------------------------------------------------------------

/** @param {Blocks} blocks @param {number} block */
function hold(blocks, block) {
  const counts = blocks.counts;
  if (blocks.refs[block] === 0) {
    counts.referenced += 1;
    counts[blocks.hashes[block] !== null ? "cached_idle" : "free"] -= 1;
  }
  blocks.refs[block] += 1;
}

/** @param {State} state @param {RequestFacts} request */
function dropTable(state, request) {
  const blocks = state.blocks;
  for (const block of request.block_table) {
    blocks.refs[block] -= 1;
    if (blocks.refs[block] === 0) {
      blocks.counts.referenced -= 1;
      blocks.counts[blocks.hashes[block] !== null ? "cached_idle" : "free"] += 1;
    }
  }
  request.block_table = [];
}

/** Drop a block's hash. @param {Blocks} blocks @param {number} block */
function forget(blocks, block) {
  blocks.hashes[block] = null;
  if (blocks.refs[block] === 0) {
    blocks.counts.cached_idle -= 1;
    blocks.counts.free += 1;
  }
}

// -- the rest ------------------------------------------------------------------------------------

/** @param {State} state @param {GateSaid} e */
function gate(state, e) {
  state.gate = gateFacts(e);
}

/** The gate as the state keeps it. @param {GateSaid} e @returns {GateFacts} */
function gateFacts(e) {
  return {
    state: e.state,
    steps_left: e.steps_left,
    per_second: e.per_second ?? null,
    breaks: e.breaks ?? [],
    hit: e.hit ?? null,
  };
}

/** @param {State} state @param {ConfigEvent} e */
function config(state, e) {
  Object.assign(state.config, e.changed);
  state.queues.waiting = [...e.waiting];
}

/** @param {State} state @param {CacheResetEvent | ResetEvent} e */
function cacheReset(state, e) {
  const blocks = state.blocks;
  blocks.hashes.forEach((hash, block) => {
    if (hash !== null) forget(blocks, block);
  });
  blocks.victims = e.victims;
}

/** @param {State} state @param {ResetEvent} e */
function reset(state, e) {
  cacheReset(state, e);
  Object.assign(state, { requests: {}, finished: [], marks: [], last_step: null, num_resets: state.num_resets + 1 });
}

/** @param {State} state @param {MarkEvent} e */
function mark(state, e) {
  state.marks = [...state.marks, { step: state.step, text: e.text }].slice(-MARKS_KEPT);
}

const APPLY = new Map(/** @type {Array<[string, (state: State, e: any) => void]>} */ ([
  ["arrived", arrived],
  ["admitted", admitted],
  ["resumed", resumed],
  ["first_token", firstToken],
  ["preempted", preempted],
  ["finished", finished],
  ["rejected", rejected],
  ["step", step],
  ["gate", gate],
  ["config", config],
  ["cache_reset", cacheReset],
  ["reset", reset],
  ["mark", mark],
]));
