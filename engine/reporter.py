"""Reporter: puts what the scheduler decided into events, keeps the totals, and builds the key from the real thing.

The key is read off the scheduler, the block pool and the requests themselves, never off the events; that is what makes
`fold(key, deltas) == next key` a check of both. Its shape is documented in app/state.py.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine import events
from engine.emitter import Emitter
from engine.gate import Gate
from engine.request import FinishReason, Request, RequestStatus, SamplingParams
from engine.runner import Preemption, ScheduledRow, SchedulerOutput
from engine.scheduler import Scheduler
from engine.text import TextOutput
from engine.timing import StepTimer, timings

StepCost = Callable[[list[ScheduledRow]], tuple[int, int]]
"""(FLOPs, bytes moved) of a step, derived from its rows."""

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


class Reporter:
    """Everything an engine says about its requests and steps. Decides nothing."""

    def __init__(self, emitter: Emitter, scheduler: Scheduler, gate: Gate, text: TextOutput, cost: StepCost) -> None:
        self._emitter = emitter
        self._scheduler = scheduler
        self._gate = gate
        self._text = text
        self._cost = cost
        self.totals = Totals()
        self._step: events.Step | None = None
        self._victims: list[int] = []
        self._reasons: dict[str, events.WaitReason] = {}
        self._finished: deque[Request] = deque(maxlen=events.FINISHED_KEPT)

    @property
    def num_steps(self) -> int:
        return self.totals.steps

    # -- requests ------------------------------------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        held = not self._gate.open
        if held:
            self._reasons[request.request_id] = events.WaitReason(request=request.request_id, code="gate_held")
        self.totals.arrived += 1
        self._emitter.emit(
            events.Arrived,
            request=request.request_id,
            label=request.label,
            parent=request.parent,
            owner=request.owner,
            arrival_us=request.arrival_us,
            num_prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.max_tokens,
            sampling=sampling_facts(request.sampling_params, request.seed),
            priority=request.priority,
            request_class=request.request_class,
            block_hashes=list(request.block_hashes),
            gate_held=held,
        )

    def rejected(self, request_id: str, status: int, param: str | None, message: str) -> None:
        self.totals.rejected += 1
        self._emitter.emit(events.Rejected, request=request_id, status=status, param=param, message=message)

    def finished(self, requests: list[Request]) -> None:
        """The last text, then the end, of each."""
        for request in requests:
            assert request.finish_reason is not None
            delta = self._text.finish(request)
            self._emitter.text(request.request_id, delta.offset, delta.text, delta.token_ids, done=True)
            self.totals.finished[request.finish_reason.value] += 1
            self._reasons.pop(request.request_id, None)
            self._finished.append(request)
            self._emitter.emit(
                events.Finished,
                request=request.request_id,
                reason=request.finish_reason.value,
                detail=request.finish_detail,
                finished_us=request.finished_us,
                num_output_tokens=request.num_output_tokens,
                timings=timings(request),
            )

    # -- steps ---------------------------------------------------------------------------------------------------

    def step(
        self, output: SchedulerOutput, hashed: list[tuple[int, str]], timer: StepTimer, accepted_us: int, *, gated: bool
    ) -> None:
        """Say all about one step, in the order that events.py promises."""
        for facts in output.preempted:
            self._preempted(facts)
        for row in output.admitted:
            self._admitted(row, output.now_us)
        for reason in output.waiting:
            self._reasons[reason.request] = reason
        self._count(output)
        self._victims = self._scheduler.pool.victims(events.NUM_VICTIMS)
        event = self._emitter.emit(events.Step, **self._step_body(output, hashed, timer, accepted_us, gated))
        if isinstance(event, events.Step):
            self._step = event
        for row in output.rows:
            self._moved(row)

    def _preempted(self, facts: Preemption) -> None:
        request = facts.request
        self.totals.preemptions += 1
        self.totals.lost_tokens += facts.num_lost_tokens
        self._emitter.emit(
            events.Preempted,
            request=request.request_id,
            by=facts.by,
            needed=facts.needed,
            free=facts.free,
            num_lost_tokens=facts.num_lost_tokens,
            num_held_blocks=facts.num_held_blocks,
            num_preemptions=request.num_preemptions,
            at_us=request.last_preempted_us,
        )

    def _admitted(self, row: ScheduledRow, now_us: int) -> None:
        request, cached = row.request, row.num_computed_tokens
        self._reasons.pop(request.request_id, None)
        if request.num_preemptions == 0:
            self.totals.prefix_queried_tokens += request.num_prompt_tokens
            self.totals.prefix_hit_tokens += cached
            self._emitter.emit(
                events.Admitted,
                request=request.request_id,
                slot=row.slot,
                cached=cached,
                scheduled_us=request.scheduled_us,
            )
        else:
            self.totals.reread_tokens += cached
            self._emitter.emit(
                events.Resumed,
                request=request.request_id,
                slot=row.slot,
                cached=cached,
                scheduled_us=now_us,
                preempted_us=request.preempted_us,
            )

    def _count(self, output: SchedulerOutput) -> None:
        totals = self.totals
        totals.steps += 1
        totals.evictions += len(output.evicted)
        for row in output.rows:
            totals.output_tokens += row.num_accepted
            if row.is_decode:
                totals.decode_tokens += row.num_scheduled_tokens
            else:
                totals.prefill_tokens += row.num_scheduled_tokens

    def _step_body(
        self,
        output: SchedulerOutput,
        hashed: list[tuple[int, str]],
        timer: StepTimer,
        accepted_us: int,
        gated: bool,
    ) -> dict[str, Any]:
        decode = sum(row.num_scheduled_tokens for row in output.rows if row.is_decode)
        scheduled = output.num_scheduled_tokens
        flops, bytes_moved = self._cost(output.rows)
        return {
            "step": self.totals.steps,
            "start_us": timer.start_us,
            "wall_us": timer.wall_us,
            "accepted_us": accepted_us,
            "phases_us": timer.phases_us,
            "scopes": dict.fromkeys(timer.phases_us, "host"),
            "num_scheduled_tokens": scheduled,
            "num_prefill_tokens": scheduled - decode,
            "num_decode_tokens": decode,
            "token_budget": self._scheduler.config.max_num_batched_tokens,
            "ended_by": output.ended_by,
            "rows": [_step_row(row) for row in output.rows],
            "waiting": output.waiting,
            "tables": [(row.request.request_id, row.new_blocks) for row in output.rows if row.new_blocks],
            "hashed": hashed,
            "evicted": output.evicted,
            "victims": self._victims,
            "blocks": self._scheduler.pool.counts(),
            "flops": flops,
            "bytes": bytes_moved,
            "gated": gated,
        }

    def _moved(self, row: ScheduledRow) -> None:
        request = row.request
        if row.num_accepted == 0:
            return
        if row.num_output_before == 0:
            self._emitter.emit(events.FirstToken, request=request.request_id, first_token_us=request.first_token_us)
        delta = self._text.take(request, request.token_ids[-row.num_accepted :])
        if delta is not None:
            self._emitter.text(request.request_id, delta.offset, delta.text, delta.token_ids, done=False)

    def cache_reset(self, num_blocks: int) -> None:
        self._victims = self._scheduler.pool.victims(events.NUM_VICTIMS)
        self._emitter.emit(events.CacheReset, num_blocks=num_blocks, victims=self._victims)

    # -- the whole state -----------------------------------------------------------------------------------------

    def key(self) -> None:
        """Emit the whole state as it is now."""
        self._emitter.emit(events.Key, state=self.state())

    def state(self) -> dict[str, Any]:
        scheduler, pool = self._scheduler, self._scheduler.pool
        known = [*scheduler.requests.values(), *self._finished]
        return {
            "step": self.totals.steps,
            "config": dataclasses.asdict(scheduler.config),
            "gate": {"state": self._gate.state.value, "steps_left": self._gate.steps_left},
            "queues": {
                "waiting": [request.request_id for request in scheduler.waiting],
                "running": [request.request_id for request in scheduler.running],
            },
            "requests": {request.request_id: self._request_state(request) for request in known},
            "finished": [request.request_id for request in self._finished],
            "blocks": {
                "block_size": scheduler.config.block_size,
                "total": pool.num_blocks,
                "hashes": [block.block_hash for block in pool.blocks],
                "refs": [block.ref_cnt for block in pool.blocks],
                "victims": self._victims,
                "counts": pool.counts(),
            },
            "totals": dataclasses.asdict(self.totals),
            "last_step": step_body(self._step),
        }

    def _request_state(self, request: Request) -> dict[str, Any]:
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
            "reason": self._reasons.get(request.request_id),
            "finish_reason": request.finish_reason.value if request.finish_reason else None,
            "finish_detail": request.finish_detail,
            "timings": timings(request) if finished else None,
        }


def _step_row(row: ScheduledRow) -> events.StepRow:
    return events.StepRow(
        request=row.request.request_id,
        slot=row.slot,
        phase="decode" if row.is_decode else "prefill",
        scheduled=row.num_scheduled_tokens,
        drafted=0,
        accepted=0,
        computed=row.num_computed_tokens + row.num_scheduled_tokens,
        out=row.num_accepted,
    )


def step_body(step: events.Step | None) -> dict[str, Any] | None:
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
        "seed": seed,
        "num_stop_strings": len(params.stop),
        "stop_token_ids": list(params.stop_token_ids),
        "ignore_eos": params.ignore_eos,
    }
