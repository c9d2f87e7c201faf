"""Reporter: puts what the scheduler decided into events, and keeps the record that a key needs. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import events
from engine.emitter import Emitter
from engine.gate import Gate
from engine.request import Request
from engine.runner import Preemption, ScheduledRow, SchedulerOutput
from engine.scheduler import Scheduler
from engine.snapshot import Record, engine_state, sampling_facts
from engine.text import TextDelta, TextOutput
from engine.timing import StepTimer, timings

StepCost = Callable[[list[ScheduledRow]], tuple[int, int]]
"""(FLOPs, bytes moved) of a step, derived from its rows."""


class Reporter:
    """Everything an engine says about its requests and steps."""

    def __init__(self, emitter: Emitter, scheduler: Scheduler, gate: Gate, text: TextOutput, cost: StepCost) -> None:
        self._emitter = emitter
        self._scheduler = scheduler
        self._gate = gate
        self._text = text
        self._cost = cost
        self.record = Record()

    # -- requests ------------------------------------------------------------------------------------------------

    def arrived(self, request: Request) -> None:
        held = not self._gate.open
        if held:
            self.record.reasons[request.request_id] = events.WaitReason(request=request.request_id, code="gate_held")
        self.record.totals.arrived += 1
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
            queue_index=self._scheduler.waiting.index(request),
            gate_held=held,
        )

    def rejected(self, request_id: str, status: int, param: str | None, message: str) -> None:
        self.record.totals.rejected += 1
        self._emitter.emit(events.Rejected, request=request_id, status=status, param=param, message=message)

    def finished(self, requests: list[Request]) -> None:
        """The last text, then the end, of each."""
        for request in requests:
            assert request.finish_reason is not None
            delta = self._text.finish(request)
            self._say(request, delta, done=True)
            self.record.totals.finished[request.finish_reason.value] += 1
            self.record.reasons.pop(request.request_id, None)
            self.record.finished.append(request)
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
            self._preempted(facts, output.now_us)
        for row in output.admitted:
            self._admitted(row, output.now_us)
        for reason in output.waiting:
            self.record.reasons[reason.request] = reason
        self._count(output)
        self.record.victims = self._scheduler.pool.victims(events.NUM_VICTIMS)
        if self._emitter.attached:
            event = self._emitter.emit(events.Step, **self._step_body(output, hashed, timer, accepted_us, gated))
            if isinstance(event, events.Step):
                self.record.step = event
        for row in output.rows:
            self._moved(row)

    def _preempted(self, facts: Preemption, now_us: int) -> None:
        request = facts.request
        self.record.totals.preemptions += 1
        self.record.totals.lost_tokens += facts.num_lost_tokens
        self._emitter.emit(
            events.Preempted,
            request=request.request_id,
            by=facts.by,
            needed=facts.needed,
            free=facts.free,
            num_lost_tokens=facts.num_lost_tokens,
            num_held_blocks=facts.num_held_blocks,
            num_preemptions=request.num_preemptions,
            queue_index=facts.queue_index,
            at_us=now_us,
        )

    def _admitted(self, row: ScheduledRow, now_us: int) -> None:
        request, cached = row.request, row.num_computed_tokens
        self.record.reasons.pop(request.request_id, None)
        if request.num_preemptions == 0:
            self.record.totals.prefix_queried_tokens += request.num_prompt_tokens
            self.record.totals.prefix_hit_tokens += cached
            self._emitter.emit(
                events.Admitted,
                request=request.request_id,
                slot=row.slot,
                cached=cached,
                scheduled_us=request.scheduled_us,
            )
        else:
            self.record.totals.reread_tokens += cached
            self._emitter.emit(
                events.Resumed,
                request=request.request_id,
                slot=row.slot,
                cached=cached,
                scheduled_us=now_us,
                preempted_us=request.preempted_us,
            )

    def _count(self, output: SchedulerOutput) -> None:
        totals = self.record.totals
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
            "step": self.record.totals.steps,
            "start_us": timer.start_us,
            "wall_us": timer.wall_us,
            "accepted_us": accepted_us,
            "phases_us": timer.phases_us,
            "scopes": dict.fromkeys(timer.phases_us, "host") | timer.scopes,
            "device_us": timer.device_us,
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
            "victims": self.record.victims,
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
        delta = self._text.take(request, request.token_ids[-row.num_accepted :], row.num_drafts_accepted)
        if delta is not None:
            self._say(request, delta, done=False)

    def _say(self, request: Request, delta: TextDelta, *, done: bool) -> None:
        self._emitter.text(
            request.request_id, delta.offset, delta.text, delta.token_ids, delta.guessed, delta.lengths, done=done
        )

    def cache_reset(self, num_blocks: int) -> None:
        self.record.victims = self._scheduler.pool.victims(events.NUM_VICTIMS)
        self._emitter.emit(events.CacheReset, num_blocks=num_blocks, victims=self.record.victims)

    def mark(self, text: str) -> None:
        step = self.record.totals.steps
        self.record.marks.append({"step": step, "text": text})
        self._emitter.emit(events.Mark, step=step, text=text)

    def reset(self) -> None:
        """Everything ended and the pool is empty: forget what is remembered of it."""
        record = self.record
        record.step = None
        record.finished.clear()
        record.marks.clear()
        record.num_resets += 1
        record.victims = self._scheduler.pool.victims(events.NUM_VICTIMS)
        self._emitter.emit(events.Reset, victims=record.victims)

    def numbers(self, output: SchedulerOutput, finished: list[Request], timer: StepTimer) -> dict[str, float]:
        """This step's numbers, for conditions; one for each of condition.NUMBERS."""
        decode = sum(row.num_scheduled_tokens for row in output.rows if row.is_decode)
        blocks = self._scheduler.pool.counts()
        return {
            "step": self.record.totals.steps,
            "step_ms": timer.wall_us / 1000,
            "running": len(self._scheduler.running),
            "waiting": len(self._scheduler.waiting),
            "scheduled_tokens": output.num_scheduled_tokens,
            "prefill_tokens": output.num_scheduled_tokens - decode,
            "decode_tokens": decode,
            "free_blocks": blocks.free,
            "cached_idle_blocks": blocks.cached_idle,
            "referenced_blocks": blocks.referenced,
            "preemptions": len(output.preempted),
            "evictions": len(output.evicted),
            "finished": len(finished),
        }

    # -- the whole state -----------------------------------------------------------------------------------------

    def key(self) -> None:
        """Emit the whole state as it is now."""
        self._emitter.emit(events.Key, state=self.state())

    def state(self) -> dict[str, Any]:
        return engine_state(self._scheduler, self._gate, self.record)


def _step_row(row: ScheduledRow) -> events.StepRow:
    return events.StepRow(
        request=row.request.request_id,
        slot=row.slot,
        phase="decode" if row.is_decode else "prefill",
        scheduled=row.num_scheduled_tokens,
        drafted=len(row.draft_token_ids),
        accepted=row.num_drafts_accepted,
        computed=row.num_computed_after,
        out=row.num_accepted,
    )
