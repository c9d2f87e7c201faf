"""The wire schema, in one place: what an engine says about itself. (What has no number: engine/event_parts.py.)

Contract. Every event carries `kind`, `engine`, `epoch` (random per engine start), `seq` (+1 per event, no gaps
within an epoch) and `t` (microseconds since the engine's start, monotonic). `key` and `gap` consume no number:
their `seq` is that of the last event they cover. Numbers stay below 2**53; hashes are hex strings; no NaN or
Infinity; undefined is None. Unknown fields are to be ignored by readers. No torch, no msgspec here: the publisher
encodes these dataclasses as they are.

Order inside one step: `request` preempted…, admitted or resumed…, then the `step`, then first_token… and
finished…. So when `step` is folded the tables of its victims are gone and its rows are running, and a
finished request still holds its table until its own event drops it.

Times (`*_us`) are microseconds; the ones that name a moment (`arrival_us`, `start_us`, `accepted_us` …) count from
the engine's start, the others are durations.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.event_parts import BlockCounts as BlockCounts
from engine.event_parts import DeviceFacts as DeviceFacts
from engine.event_parts import MemoryFacts as MemoryFacts
from engine.event_parts import ModelFacts as ModelFacts
from engine.event_parts import StepRow as StepRow
from engine.event_parts import Timings as Timings
from engine.event_parts import WaitReason as WaitReason

SCHEMA_VERSION = 1
FINISHED_KEPT = 32  # finished requests that the state keeps; both the engine and every fold apply it
MARKS_KEPT = 64  # newest marks that the state keeps; both sides apply it too
NUM_VICTIMS = 8  # next eviction candidates named by each step


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The header of every public event."""

    engine: str
    epoch: str
    seq: int
    t: int


# -- life of the engine ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Event):
    """Before `hello`: what start-up is doing. `total` 0 means the length is unknown."""

    phase: str  # "download" | "convert" | "read" | "warm up"
    done: int
    total: int
    unit: str  # "bytes" | "tensors" | "steps" | "graphs"
    kind: str = "load"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Event):
    """The engine is loaded and serves. A new epoch always begins with it (after any `load`)."""

    v: int
    config: dict[str, Any]  # EngineConfig, resolved
    model: ModelFacts
    device: DeviceFacts
    memory: MemoryFacts
    num_blocks: int
    block_size: int
    clock_unix_us: int  # wall clock at t = 0, for display only
    redaction: str  # "own" | "all": who may read text
    hash_salt: str  # "fixed" | "random"
    disabled: list[dict[str, str]] = field(default_factory=list)  # {"feature", "reason"}: switched off by the engine
    simulated: bool = False
    draft: ModelFacts | None = None  # the model that guesses ahead
    replay_of: str | None = None  # the epoch whose arrivals are replayed here, in virtual time
    replay_missing_steps: int = 0  # steps of that epoch that its recording had lost
    kind: str = "hello"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Event):
    """The whole state after event `seq`; see app/state.py for its shape. Consumes no number."""

    state: dict[str, Any]
    kind: str = "key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Event):
    """Events `first` to `last` were dropped (the ring was full); a `key` follows. Consumes no number."""

    first: int
    last: int
    kind: str = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat(Event):
    """Once a second while no step runs: the engine is alive. `step_age_us` is None before the first step.

    One that repeats the last `seq` consumes no number: the process lives, and its step takes long.
    """

    step_age_us: int | None
    kind: str = "beat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bye(Event):
    """The engine left. `origin` is "engine" when it said so itself, "hub" when the hub lost it."""

    reason: str
    origin: str
    kind: str = "bye"


# -- one step ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Event):
    """One engine step, whole.

    Consecutive steps tile the time: `wall_us` runs from the end of the previous step's event (or from `start_us`
    after idling) to the end of this step's update. phases_us has the keys schedule, prepare, forward, sample,
    update and publish; publish is what building and handing over the *previous* event cost, since a
    step cannot time the event that reports it; draft is there where a draft model ran. other = wall_us − Σ phases_us.

    A phase of scope "device" is the time that a GPU worked on it, by the GPU's clock; device_us is all of that. What
    the host spent on such a phase while the GPU stood still (launching, the copy of the tokens, waking up) is in other.
    device_us / wall_us is the share of the step in which the GPU was busy.
    """

    step: int  # +1 per step, from 1
    start_us: int
    wall_us: int
    accepted_us: int  # the moment its tokens were accepted: the time of first and last tokens
    phases_us: dict[str, int]
    scopes: dict[str, str]  # phase -> "host" | "device"
    num_scheduled_tokens: int
    num_prefill_tokens: int
    num_decode_tokens: int
    token_budget: int
    ended_by: (
        str  # "all_scheduled" | "budget_spent" | "slots_full" | "blocks_short" | "prefix_pending" | "after_preemption"
    )
    rows: list[StepRow]
    waiting: list[WaitReason]  # in queue order
    tables: list[tuple[str, list[int]]]  # (request, blocks appended to its table), hits included
    hashed: list[tuple[int, str]]  # blocks that became reusable after the forward: (block, hash)
    evicted: list[int]  # cached idle blocks whose hash was dropped to hand the block out anew
    victims: list[int]  # the next blocks that would be handed out or evicted, soonest first
    blocks: BlockCounts  # after this step, the blocks of its finished requests returned
    flops: int  # derived from the rows' shapes
    bytes: int  # derived: weights once, KV read and written
    gated: bool  # stepped by hand: times are not measurements
    device_us: int | None = None  # None where no device has a clock of its own: on a CPU
    kind: str = "step"


# -- life of a request -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived(Event):
    request: str
    label: str | None
    parent: str | None
    owner: str | None
    arrival_us: int
    num_prompt_tokens: int
    max_tokens: int
    sampling: dict[str, Any]
    priority: int
    request_class: str | None
    block_hashes: list[str]  # of the prompt's full blocks
    queue_index: int  # where in the queue it went: 0 is the head
    gate_held: bool  # it arrived while the engine was paused
    event: str = "arrived"
    kind: str = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted(Event):
    """Left the queue for the first time. `cached` tokens were found in the prefix cache."""

    request: str
    slot: int
    cached: int
    scheduled_us: int
    event: str = "admitted"
    kind: str = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Event):
    """Left the queue again after a preemption. `cached` counts as re-read, not as a prefix hit."""

    request: str
    slot: int
    cached: int
    scheduled_us: int
    preempted_us: int  # total time spent preempted so far
    event: str = "resumed"
    kind: str = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken(Event):
    request: str
    first_token_us: int
    event: str = "first_token"
    kind: str = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted(Event):
    """Its blocks were taken; it waits again and will be recomputed."""

    request: str
    by: str  # the request that needed blocks
    needed: int  # blocks that `by` was short of
    free: int  # blocks free at that moment
    num_lost_tokens: int
    num_held_blocks: int
    num_preemptions: int  # how often by now
    queue_index: int  # where in the queue it went
    at_us: int
    event: str = "preempted"
    kind: str = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    request: str
    reason: str  # "stop" | "length" | "abort" | "error"
    detail: (
        str | None
    )  # "stop_token" (eos too), "stop_string", "max_tokens", "max_model_len", "kv_capacity", the error …
    finished_us: int
    num_output_tokens: int
    timings: Timings
    event: str = "finished"
    kind: str = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Event):
    """Refused at the door; it never owned a block and was in no queue."""

    request: str
    status: int  # the HTTP status
    param: str | None
    message: str
    event: str = "rejected"
    kind: str = "request"


# -- the rest ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Event):
    """The answer to one command. `effect`: "live" | "next_step" | "restart" | None."""

    cmd_id: str
    ok: bool
    effect: str | None
    error: str | None
    kind: str = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Event):
    """The gate moved. `state`: "running" | "paused"; steps_left counts down while single-stepping.

    `breaks` are the breakpoints set (engine/breakpoints.py); `hit` is the one that closed the gate:
    {"on", "step", "request"}.
    """

    state: str
    steps_left: int
    per_second: float | None = None
    breaks: list[str] = field(default_factory=list)
    hit: dict[str, Any] | None = None
    kind: str = "gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Event):
    """Knobs were turned: the fields that changed, and the queue in the order that it has now."""

    changed: dict[str, Any]
    waiting: list[str]
    kind: str = "config"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReset(Event):
    """Every block hash was forgotten (`num_blocks` of them), those of referenced blocks too."""

    num_blocks: int
    victims: list[int]
    kind: str = "cache_reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(Event):
    """The stage reset: every request has ended (their events came before), and what is remembered of them is forgotten.

    No block holds anything any more. Counters and step numbers go on, and so do the knobs.
    """

    victims: list[int]
    kind: str = "reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(Event):
    """Somebody's note right after `step`: their words, shown to everybody."""

    step: int
    text: str
    kind: str = "mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Generated text of one request; not part of the public stream, carries no `seq`.

    `offset` counts characters of the answer before `text`. `done` marks the last one, so a reader knows
    that nothing is held back any more.

    `lengths` says for each of `token_ids` how many characters it wrote: none, if a later token completes its character,
    or if it is an end token or was cut off with a stop string. Like `guessed` it may reach beyond the text so far.
    `guessed` holds one list per step that accepted guesses: where in the answer its first character stands, then how
    many characters each accepted guess wrote (none, if a later token completes its character, or if it was cut off with
    a stop string or is an end token). It may reach beyond the text so far, by what is held back as the possible
    beginning of a stop string.
    """

    engine: str
    epoch: str
    request: str
    offset: int
    text: str
    token_ids: list[int]
    guessed: list[list[int]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    done: bool = False
    kind: str = "text"
