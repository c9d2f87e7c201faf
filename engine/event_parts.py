"""What events are made of: the parts of the wire schema that are no events by themselves. See engine/events.py, which
gives them out too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    name: str  # the served name, which `model` in a request must equal (or "default")
    architecture: str
    num_layers: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    num_parameters: int
    weight_bytes: int
    dtype: str
    max_position_embeddings: int
    has_chat_template: bool
    tie_word_embeddings: bool = False  # the head reads the embedding's matrix, counted once


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    type: str  # "cpu" | "cuda" | "scripted"
    name: str
    num_threads: int
    total_bytes: int | None
    why: str = ""  # this device and no other
    peak_flops: float | None = None  # measured roof, FLOP/s
    peak_bytes_per_s: float | None = None  # measured roof


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """The sizing sum, in bytes; `sum_text` is the same sum as a sentence, as printed at start."""

    weights: int  # a draft model's too
    kv_pool: int
    bytes_per_token: int  # keys, values and their scales; a draft model's too
    bytes_per_block: int
    draft_bytes_per_token: int = 0  # the draft model's share of bytes_per_token
    kv_dtype: str  # of the cached keys and values: "float32" | "int8" | "float8_e4m3fn" | "none"
    available: int | None
    activations: int | None = None  # derived: what a step's intermediate results take at most
    sum_text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One scheduled request in one step."""

    request: str
    slot: int
    phase: str  # "prefill" | "decode"; recomputing after a preemption is prefill
    scheduled: int  # tokens handed to it in this step (= 1 + drafted when speculating)
    drafted: int
    accepted: int
    computed: int  # num_computed_tokens after this step
    out: int  # output tokens accepted in this step


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReason:
    """Why a request is still waiting after this step's scheduling, from the line that decided it.

    code: "slots_full" (limit = max_num_seqs) · "budget_spent" (limit = max_num_batched_tokens) ·
    "blocks_short" (needs, free; limit = how many of those the watermark keeps back) ·
    "prefix_pending" (by = the request computing the shared block) ·
    "group_running" (static batching; limit = members left) · "behind_head" (by = the blocked head) ·
    "after_preemption" (this step preempted somebody, so it admits nobody) ·
    "gate_held" (the engine is paused and no step has looked at it yet).
    """

    request: str
    code: str
    needs: int | None = None
    free: int | None = None
    limit: int | None = None
    by: str | None = None
    source: str | None = None  # the line that decided it, "engine/scheduler.py:140"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCounts:
    """free + cached_idle + referenced == total, always."""

    free: int
    cached_idle: int
    referenced: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """One finished request's durations, as METRICS defines them; None is undefined, never 0."""

    queue_us: int | None
    prefill_us: int | None
    ttft_us: int | None
    decode_us: int | None
    tpot_us: float | None
    e2e_us: int | None
    preempted_us: int
    gated_us: int
