"""The scheduler: who gets how many tokens in the next step, and from which blocks.

Pure Python and deterministic: same arrivals, same config, same decisions. No torch, no clock of its own, no web.

Invariants, checked by `problems()`:
- a request is in exactly one of waiting, running, finished; a running one has a slot, a waiting one has no blocks;
- the order is first come, first served: running requests are kept in the order of their admission, the victim is the
  last of them, and it returns to the head of the queue;
- every running request is handed at least one token in every step, or preempted: a prefill chunk leaves one token
  of the budget for each running request behind it, and max_num_batched_tokens >= max_num_seqs;
- a request alone can always run: one that could not be held by the whole pool is refused or ended before.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable

from engine.block_pool import BlockPool, hash_block
from engine.config import EngineConfig
from engine.events import WaitReason
from engine.request import FinishReason, Request, RequestStatus
from engine.runner import Preemption, ScheduledRow, SchedulerOutput


def no_text(request: Request, token_id: int) -> bool:
    """The `on_token` of an engine that has no text: no stop string is ever completed."""
    return False


class Scheduler:
    """Continuous batching over a paged KV cache.

    `config` is resolved (num_blocks and max_model_len are set). `root_hash` starts every chain of block hashes.
    `on_token(request, token_id)` is told each output token that is not a stop token, and answers whether it
    completed a stop string.
    """

    def __init__(
        self, config: EngineConfig, root_hash: str = "", on_token: Callable[[Request, int], bool] = no_text
    ) -> None:
        assert config.num_blocks is not None
        assert config.max_model_len is not None
        self.config = config
        self.pool = BlockPool(config.num_blocks)
        self.waiting: list[Request] = []  # head first
        self.running: list[Request] = []  # in the order of admission
        self.requests: dict[str, Request] = {}  # waiting and running ones
        self.max_model_len = config.max_model_len
        self.capacity = config.num_blocks * config.block_size  # tokens that the whole pool can hold
        self._watermark_blocks = int(config.watermark * config.num_blocks)
        self._free_slots = list(range(config.max_num_seqs))
        self._root_hash = root_hash
        self._on_token = on_token
        self._just_finished: list[Request] = []

    # -- arrivals and endings ------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Put a request at the end of the queue. The door has checked that it can be served."""
        self._extend_hashes(request)
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def finish(self, request: Request, reason: FinishReason, detail: str | None, now_us: int) -> None:
        """The one way in which a request ends, from any state; twice is the same as once."""
        if request.status is RequestStatus.FINISHED:
            return
        (self.waiting if request.status is RequestStatus.WAITING else self.running).remove(request)
        del self.requests[request.request_id]
        self._release(request)
        request.status = RequestStatus.FINISHED
        request.finish_reason, request.finish_detail = reason, detail
        request.finished_us = now_us
        self._just_finished.append(request)

    def take_finished(self) -> list[Request]:
        """The requests that ended since the last call, in order."""
        finished, self._just_finished = self._just_finished, []
        return finished

    # -- one step ------------------------------------------------------------------------------------------------

    def schedule(self, now_us: int) -> SchedulerOutput:
        """Decide one step: running requests first, in order; then waiting ones while budget, slots and blocks last."""
        output = SchedulerOutput(now_us=now_us)
        budget = self._schedule_running(output, now_us)
        if output.preempted:
            self._hold_queue(output, 0, WaitReason(request="", code="after_preemption"))
        else:
            self._schedule_waiting(output, budget, now_us)
        if output.ended_by == "all_scheduled" and not all(row.samples for row in output.rows):
            output.ended_by = "budget_spent"
        return output

    def _schedule_running(self, output: SchedulerOutput, now_us: int) -> int:
        """Give every running request its tokens, preempting from the end for blocks; returns the budget left."""
        budget = self.config.max_num_batched_tokens
        index = 0
        while index < len(self.running):
            request = self.running[index]
            behind = len(self.running) - index - 1
            count = min(request.num_tokens - request.num_computed_tokens, budget - behind)
            needed = self._blocks_for(request.num_computed_tokens + count) - len(request.block_table)
            while needed > self.pool.num_free and request.status is RequestStatus.RUNNING:
                self._preempt(self.running[-1], request, needed, output, now_us)
            if request.status is not RequestStatus.RUNNING:
                break  # it was the last one itself
            blocks = self._allocate(request, max(0, needed), output)
            output.rows.append(ScheduledRow(request, request.num_computed_tokens, count, blocks))
            budget -= count
            index += 1
        return budget

    def _schedule_waiting(self, output: SchedulerOutput, budget: int, now_us: int) -> None:
        """Admit from the head of the queue. A request whose prefix is being computed lets others pass; any other
        obstacle holds everybody behind it."""
        index = 0
        while index < len(self.waiting):
            request = self.waiting[index]
            hits = self._find_hits(request)
            reason = self._obstacle(request, hits, budget)
            if reason is None:
                row = self._admit(request, hits, budget, output, now_us)
                budget -= row.num_scheduled_tokens
            elif reason.code == "prefix_pending":
                output.waiting.append(reason)
                output.ended_by = "prefix_pending"
                index += 1
            else:
                self._hold_queue(output, index, reason)
                return

    def _obstacle(self, request: Request, hits: list[int], budget: int) -> WaitReason | None:
        """Why this waiting request cannot start in this step; None if it can."""
        config, name = self.config, request.request_id
        if len(self.running) >= config.max_num_seqs:
            return WaitReason(request=name, code="slots_full", limit=config.max_num_seqs)
        to_compute = request.num_tokens - len(hits) * config.block_size
        if budget < (1 if config.enable_chunked_prefill else to_compute):
            return WaitReason(request=name, code="budget_spent", limit=config.max_num_batched_tokens)
        if (computing := self._computing_next(request, len(hits))) is not None:
            return WaitReason(request=name, code="prefix_pending", by=computing.request_id)
        # Everything the request holds today is allocated at once; idle hits leave the free queue too.
        needs = self._blocks_for(request.num_tokens) - len(hits)
        free = self.pool.num_free - self.pool.num_idle(hits)
        if self.running:
            free -= self._watermark_blocks
        if needs > free:
            return WaitReason(request=name, code="blocks_short", needs=needs, free=max(0, free))
        return None

    def _admit(
        self, request: Request, hits: list[int], budget: int, output: SchedulerOutput, now_us: int
    ) -> ScheduledRow:
        self.waiting.remove(request)
        self.running.append(request)
        request.status = RequestStatus.RUNNING
        request.slot = heapq.heappop(self._free_slots)
        cached = len(hits) * self.config.block_size
        self.pool.touch(hits)
        request.block_table.extend(hits)
        new_blocks = self._allocate(request, self._blocks_for(request.num_tokens) - len(hits), output)
        request.num_computed_tokens = cached
        if request.scheduled_us is None:
            request.scheduled_us = now_us
            request.num_cached_tokens = cached
        elif request.last_preempted_us is not None:
            request.preempted_us += now_us - request.last_preempted_us
            request.last_preempted_us = None
        row = ScheduledRow(request, cached, min(request.num_tokens - cached, budget), hits + new_blocks)
        output.rows.append(row)
        output.admitted.append(row)
        return row

    def _hold_queue(self, output: SchedulerOutput, index: int, reason: WaitReason) -> None:
        """Everybody from `index` on waits: the first for `reason`, the rest behind it."""
        head, *rest = self.waiting[index:]
        output.ended_by = reason.code
        output.waiting.append(dataclasses.replace(reason, request=head.request_id))
        output.waiting.extend(WaitReason(request=r.request_id, code="behind_head", by=head.request_id) for r in rest)

    def _preempt(self, victim: Request, by: Request, needed: int, output: SchedulerOutput, now_us: int) -> None:
        """Take the victim's blocks. It keeps its tokens and will recompute their KV when it is admitted again."""
        output.preempted.append(
            Preemption(
                request=victim,
                by=by.request_id,
                needed=needed,
                free=self.pool.num_free,
                num_lost_tokens=victim.num_computed_tokens,
                num_held_blocks=len(victim.block_table),
            )
        )
        victim.num_preemptions += 1
        victim.num_lost_tokens += victim.num_computed_tokens
        victim.last_preempted_us = now_us
        victim.num_computed_tokens = 0
        self.running.remove(victim)
        self._release(victim)
        victim.status = RequestStatus.WAITING
        self.waiting.insert(0, victim)

    def _release(self, request: Request) -> None:
        """Give back blocks and slot."""
        self.pool.free(request.block_table)
        request.block_table.clear()
        if request.slot is not None:
            heapq.heappush(self._free_slots, request.slot)
            request.slot = None

    # -- after the forward ---------------------------------------------------------------------------------------

    def update_from_output(
        self, output: SchedulerOutput, sampled: list[list[int]], now_us: int
    ) -> list[tuple[int, str]]:
        """Accept the tokens that the step produced, one list per row, and end what is complete.

        Returns the blocks that became reusable, as (block id, hash): their KV is written, and they are
        registered before a request that ends here frees them.
        """
        hashed: list[tuple[int, str]] = []
        for row, token_ids in zip(output.rows, sampled, strict=True):
            request = row.request
            request.num_computed_tokens = row.num_computed_tokens + row.num_scheduled_tokens
            hashed.extend(self._register_blocks(row))
            for token_id in token_ids:
                self._accept(request, token_id, now_us)
                row.num_accepted += 1
                if request.status is RequestStatus.FINISHED:
                    break
        return hashed

    def _accept(self, request: Request, token_id: int, now_us: int) -> None:
        request.token_ids.append(token_id)
        request.last_token_us = now_us
        if request.first_token_us is None:
            request.first_token_us = now_us
        if token_id in request.stop_token_ids:
            self.finish(request, FinishReason.STOP, "stop_token", now_us)
        elif self._on_token(request, token_id):
            self.finish(request, FinishReason.STOP, "stop_string", now_us)
        elif request.num_output_tokens >= request.max_tokens:
            detail = "max_model_len" if request.num_tokens >= self.max_model_len else "max_tokens"
            self.finish(request, FinishReason.LENGTH, detail, now_us)
        elif request.num_tokens > self.capacity:
            self.finish(request, FinishReason.LENGTH, "kv_capacity", now_us)
        else:
            self._extend_hashes(request)

    def _register_blocks(self, row: ScheduledRow) -> list[tuple[int, str]]:
        request, size = row.request, self.config.block_size
        if not self.config.enable_prefix_caching:
            return []
        full = range(row.num_computed_tokens // size, request.num_computed_tokens // size)
        pairs = [(request.block_table[i], request.block_hashes[i]) for i in full]
        return [pair for pair in pairs if self.pool.register(*pair)]

    # -- blocks and hashes ---------------------------------------------------------------------------------------

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.config.block_size)

    def _allocate(self, request: Request, count: int, output: SchedulerOutput) -> list[int]:
        blocks, evicted = self.pool.allocate(count)
        request.block_table.extend(blocks)
        output.evicted.extend(evicted)
        return blocks

    def _extend_hashes(self, request: Request) -> None:
        """Hash the blocks of `token_ids` that have become full."""
        if not self.config.enable_prefix_caching:
            return
        size, hashes = self.config.block_size, request.block_hashes
        for i in range(len(hashes), request.num_tokens // size):
            parent = hashes[-1] if hashes else self._root_hash
            hashes.append(hash_block(parent, request.token_ids[i * size : (i + 1) * size]))

    def _usable_hashes(self, request: Request) -> list[str]:
        """The last token is always computed, since its logits are wanted: a hit ends before it."""
        return request.block_hashes[: (request.num_tokens - 1) // self.config.block_size]

    def _find_hits(self, request: Request) -> list[int]:
        return self.pool.find_cached(self._usable_hashes(request))

    def _computing_next(self, request: Request, num_hits: int) -> Request | None:
        """The running request that is computing this one's next block, if any: waiting for it means sharing it."""
        usable = self._usable_hashes(request)
        if num_hits >= len(usable):
            return None
        for other in self.running:
            # Chained hashes: if the other has the wanted one at all, it is at the same index. It may have computed it
            # already as a duplicate of a block evicted since; then there is nothing to wait for.
            pending = other.num_computed_tokens < (num_hits + 1) * self.config.block_size
            if pending and other.block_hashes[num_hits : num_hits + 1] == usable[num_hits : num_hits + 1]:
                return other
        return None

    def problems(self) -> list[str]:
        """Every broken invariant, in words; empty when all is sound."""
        found = self.pool.problems(request.block_table for request in self.requests.values())
        queued = [r.request_id for r in self.waiting + self.running]
        if sorted(queued) != sorted(self.requests):
            found.append("the queues and the set of live requests disagree")
        found += [
            f"{r.request_id} waits but holds blocks or a slot"
            for r in self.waiting
            if r.block_table or r.slot is not None
        ]
        slots = [r.slot for r in self.running if r.slot is not None]
        if len(set(slots)) != len(self.running) or sorted([*slots, *self._free_slots]) != list(
            range(self.config.max_num_seqs)
        ):
            found.append("the slots and the running requests disagree")
        return found
