"""The whole state of an engine, read off the real thing, for a `key`.

Never read off the events: that is what makes `fold(key, deltas) == next key` a check of both. The shape is
documented in app/state.py.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from engine import events
from engine.gate import Gate
from engine.request import FinishReason, Request, RequestStatus, SamplingParams
from engine.scheduler import Scheduler
from engine.timing import timings

_HEADER = ("kind", "engine", "epoch", "seq", "t")


@dataclass(slots=True)
class Totals:
    """Counters since the epoch began; see app.state.empty_totals."""

    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    output_tokens: int = 0
    arrived: int = 0
    rejected: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {reason.value: 0 for reason in FinishReason})
    preemptions: int = 0
    lost_tokens: int = 0
    evictions: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    reread_tokens: int = 0


@dataclass(slots=True)
class Record:
    """What the state remembers beyond the scheduler's own: counters, the last step, the lately finished."""

    totals: Totals = field(default_factory=Totals)
    step: events.Step | None = None
    victims: list[int] = field(default_factory=list)
    reasons: dict[str, events.WaitReason] = field(default_factory=dict)  # of waiting requests
    finished: deque[Request] = field(default_factory=lambda: deque(maxlen=events.FINISHED_KEPT))
    marks: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=events.MARKS_KEPT))
    num_resets: int = 0


def engine_state(scheduler: Scheduler, gate: Gate, record: Record) -> dict[str, Any]:
    """The `state` of a key."""
    pool = scheduler.pool
    known = [*scheduler.requests.values(), *record.finished]
    return {
        "step": record.totals.steps,
        "config": dataclasses.asdict(scheduler.config),
        "gate": gate_facts(gate),
        "queues": {
            "waiting": [request.request_id for request in scheduler.waiting],
            "running": [request.request_id for request in scheduler.running],
        },
        "requests": {
            request.request_id: _request_state(request, record.reasons.get(request.request_id)) for request in known
        },
        "finished": [request.request_id for request in record.finished],
        "blocks": {
            "block_size": scheduler.config.block_size,
            "total": pool.num_blocks,
            "hashes": [block.block_hash for block in pool.blocks],
            "refs": [block.ref_cnt for block in pool.blocks],
            "victims": record.victims,
            "counts": pool.counts(),
        },
        "totals": dataclasses.asdict(record.totals),
        "last_step": _step_body(record.step),
        "marks": list(record.marks),
        "num_resets": record.num_resets,
    }


def gate_facts(gate: Gate) -> dict[str, Any]:
    """The gate as `gate` events and the state carry it."""
    return {
        "state": gate.state.value,
        "steps_left": gate.steps_left,
        "per_second": gate.per_second,
        "breaks": gate.breakpoints.texts,
        "hit": None if gate.hit is None else dataclasses.asdict(gate.hit),
    }


def _request_state(request: Request, reason: events.WaitReason | None) -> dict[str, Any]:
    finished = request.status is RequestStatus.FINISHED
    return {
        "id": request.request_id,
        "label": request.label,
        "parent": request.parent,
        "owner": request.owner,
        "status": request.status.value,
        "slot": request.slot,
        "num_prompt_tokens": request.num_prompt_tokens,
        "num_output_tokens": request.num_output_tokens,
        "num_computed_tokens": request.num_computed_tokens,
        "num_cached_tokens": request.num_cached_tokens,
        "max_tokens": request.max_tokens,
        "sampling": sampling_facts(request.sampling_params, request.seed),
        "priority": request.priority,
        "request_class": request.request_class,
        "block_table": list(request.block_table),
        "num_preemptions": request.num_preemptions,
        "num_lost_tokens": request.num_lost_tokens,
        "preempted_us": request.preempted_us,
        "last_preempted_us": request.last_preempted_us,
        "arrival_us": request.arrival_us,
        "scheduled_us": request.scheduled_us,
        "first_token_us": request.first_token_us,
        "last_token_us": request.last_token_us,
        "finished_us": request.finished_us,
        "reason": reason,
        "finish_reason": request.finish_reason.value if request.finish_reason else None,
        "finish_detail": request.finish_detail,
        "timings": timings(request) if finished else None,
    }


def _step_body(step: events.Step | None) -> dict[str, Any] | None:
    """A step event without its header, as the state keeps it."""
    if step is None:
        return None
    return {f.name: getattr(step, f.name) for f in dataclasses.fields(step) if f.name not in _HEADER}


def sampling_facts(params: SamplingParams, seed: int) -> dict[str, Any]:
    """What the public stream may know of the sampling: everything but the stop strings, which are text."""
    return {
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "seed": seed,
        "num_stop_strings": len(params.stop),
        "stop_token_ids": list(params.stop_token_ids),
        "min_tokens": params.min_tokens,
        "ignore_eos": params.ignore_eos,
    }
