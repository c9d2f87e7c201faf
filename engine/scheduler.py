"""The scheduler: who gets how many tokens in the next step, and from which blocks.

Pure Python and deterministic: same arrivals, same config, same decisions. No torch, no clock of its own, no web.

Invariants, checked by `problems()`:
- a request is in exactly one of waiting, running, finished; a running one has a slot, a waiting one has no blocks;
- the queue is in policy order (engine/policies.py); running requests are served in that order, the victim of a
  preemption is the last of them, and it returns to its place in the queue;
- every running request is handed at least one token in every step, or preempted: a prefill chunk leaves one token
  of the budget for each running request behind it, and the budget is never below their number;
- a request alone can always run: one that could not be held by the whole pool is refused or ended before.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import sys
from collections.abc import Callable
from typing import Any

from engine.config import EngineConfig
from engine.events import WaitReason
from engine.kv_manager import KVCacheManager
from engine.policies import POLICIES, Batching, SchedulingPolicy
from engine.request import FinishReason, Request, RequestStatus
from engine.runner import Preemption, ScheduledRow, SchedulerOutput
from engine.speculative import make_proposer, parse_speculation


def no_text(request: Request, token_id: int) -> bool:
    """The `on_token` of an engine that has no text: no stop string is ever completed."""
    return False


class Scheduler:
    """Batching over a paged KV cache.

    `config` is resolved (num_blocks and max_model_len are set). `root_hash` starts every chain of block hashes.
    `on_token(request, token_id)` is told each output token that is not a stop token, and answers whether it
    completed a stop string.
    """

    def __init__(
        self, config: EngineConfig, root_hash: str = "", on_token: Callable[[Request, int], bool] = no_text
    ) -> None:
        assert config.num_blocks is not None
        assert config.max_model_len is not None
        self.kv = KVCacheManager(
            config.num_blocks,
            config.block_size,
            enable_prefix_caching=config.enable_prefix_caching,
            root_hash=root_hash,
        )
        self.pool = self.kv.pool
        self.capacity = self.kv.capacity
        self.waiting: list[Request] = []  # in policy order, head first
        self.running: list[Request] = []  # in the order of admission
        self.requests: dict[str, Request] = {}  # waiting and running ones
        self.max_model_len = config.max_model_len
        self._num_added = 0
        self._num_slots = 0
        self._free_slots: list[int] = []
        self._on_token = on_token
        self.propose = make_proposer(parse_speculation(config.speculative))  # simulations put their own here
        self._just_finished: list[Request] = []
        self.configure(config)

    def configure(self, config: EngineConfig) -> None:
        """Go on under other limits and policies; a lowered number of slots or budget, as running requests end."""
        self.config = config
        self.policy = POLICIES[SchedulingPolicy(config.scheduling_policy)]
        self.kv.enable_prefix_caching = config.enable_prefix_caching
        self._watermark_blocks = int(config.watermark * self.pool.num_blocks)
        for slot in range(self._num_slots, config.max_num_seqs):
            heapq.heappush(self._free_slots, slot)
        self._num_slots = max(self._num_slots, config.max_num_seqs)
        self.waiting.sort(key=self.policy.key)

    # -- arrivals and endings ------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Put a request into the queue. The door has checked that it can be served."""
        request.order = self._num_added
        self._num_added += 1
        self.kv.extend_hashes(request)
        self.requests[request.request_id] = request
        bisect.insort(self.waiting, request, key=self.policy.key)

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
        """Decide one step: running requests first, then waiting ones while budget, slots and blocks last."""
        output = SchedulerOutput(now_us=now_us)
        joinable = self.config.batching == Batching.CONTINUOUS or not self.running
        self._make_room(output)
        budget = self._schedule_running(output)
        if output.preempted and self.running:
            self._hold_queue(output, 0, _reason("after_preemption"))
        elif not joinable:
            self._hold_queue(output, 0, _reason("group_running", limit=len(self.running)))
        else:
            self._schedule_waiting(output, budget)
        if output.ended_by == "all_scheduled" and not all(row.samples for row in output.rows):
            output.ended_by = "budget_spent"
        return output

    def _schedule_running(self, output: SchedulerOutput) -> int:
        """Give every running request its tokens, preempting the last for blocks; returns the budget left."""
        budget = max(self.config.max_num_batched_tokens, len(self.running))
        order = sorted(self.running, key=self.policy.key)
        while order:
            request = order.pop(0)
            count = self._chunk(request, budget - len(order))
            drafts = self._drafts(request, count, budget - len(order))
            own = self.kv.missing(request, request.num_computed_tokens + count)
            missing = self.kv.missing(request, request.num_computed_tokens + count + len(drafts))
            if missing > own and missing > self.pool.num_free - len(order):
                drafts, missing = [], own  # nobody is preempted for a guess: those behind may need a block each
            while missing > self.pool.num_free:
                victim = order.pop() if order else request
                self._preempt(victim, request, missing, output)
                if victim is request:
                    return budget
            blocks, evicted = self.kv.allocate(request, missing)
            output.evicted.extend(evicted)
            count += len(drafts)
            output.rows.append(ScheduledRow(request, request.num_computed_tokens, count, blocks, drafts))
            budget -= count
        return budget

    def _schedule_waiting(self, output: SchedulerOutput, budget: int) -> None:
        """Admit from the head of the queue. A request whose prefix is being computed lets others pass; any other
        obstacle holds everybody behind it."""
        index = 0
        while index < len(self.waiting):
            request = self.waiting[index]
            hits = self.kv.find_hits(request)
            reason = self._obstacle(request, hits, budget)
            if reason is None:
                budget -= self._admit(request, hits, budget, output)
            elif reason.code == "prefix_pending":
                output.waiting.append(reason)
                output.ended_by = "prefix_pending"
                index += 1
            else:
                self._hold_queue(output, index, reason)
                return

    def _chunk(self, request: Request, budget: int) -> int:
        """How many tokens the request is handed: what it lacks, within the budget and the limit for long prompts."""
        lacks = request.num_tokens - request.num_computed_tokens
        limit = self.config.long_prefill_token_threshold
        if self.config.enable_chunked_prefill and limit:
            lacks = min(lacks, limit)
        return min(lacks, budget)

    def _drafts(self, request: Request, count: int, budget: int) -> list[int]:
        """Guesses to run behind the last token of a request that decodes, as far as budget and limits reach."""
        decodes = request.num_output_tokens > 0 and request.num_computed_tokens + count == request.num_tokens
        if not decodes or count != 1:
            return []
        room = min(
            budget - count, request.max_tokens - request.num_output_tokens - 1, self.capacity - request.num_tokens
        )
        return self.propose(request)[: max(0, room)]

    def _obstacle(self, request: Request, hits: list[int], budget: int) -> WaitReason | None:
        """Why this waiting request cannot start in this step; None if it can."""
        config, name, static = self.config, request.request_id, self.config.batching == Batching.STATIC
        computing = None if static else self.kv.computing_next(request, len(hits), self.running)
        if computing is not None:  # asked first: nobody is preempted for one that would wait for its prefix
            return _reason("prefix_pending", name, by=computing.request_id)
        if len(self.running) >= config.max_num_seqs:
            return _reason("slots_full", name, limit=config.max_num_seqs)
        to_compute = request.num_tokens - len(hits) * config.block_size
        if budget < (1 if config.enable_chunked_prefill else to_compute):
            return _reason("budget_spent", name, limit=config.max_num_batched_tokens)
        needs = self._blocks_at_admission(request) - len(hits)
        free, kept_back = self.kv.available(hits), self._watermark_blocks if self.running else 0
        if needs > free - kept_back:
            return _reason("blocks_short", name, needs=needs, free=free, limit=kept_back or None)
        return None

    def _blocks_at_admission(self, request: Request) -> int:
        """Everything the request holds today is allocated at once; in a static group everything it may ever hold."""
        tokens = request.num_tokens
        if self.config.batching == Batching.STATIC:
            tokens = min(request.num_prompt_tokens + request.max_tokens, self.capacity)
        return self.kv.blocks_for(tokens)

    def _admit(self, request: Request, hits: list[int], budget: int, output: SchedulerOutput) -> int:
        """Start (or restart) a request; returns the tokens it is handed."""
        self.waiting.remove(request)
        self.running.append(request)
        request.status = RequestStatus.RUNNING
        request.slot = heapq.heappop(self._free_slots)
        request.num_computed_tokens = cached = len(hits) * self.config.block_size
        blocks, evicted = self.kv.admit(request, hits, self._blocks_at_admission(request))
        output.evicted.extend(evicted)
        if request.scheduled_us is None:
            request.scheduled_us = output.now_us
            request.num_cached_tokens = cached
        elif request.last_preempted_us is not None:
            request.preempted_us += output.now_us - request.last_preempted_us
            request.last_preempted_us = None
        row = ScheduledRow(request, cached, self._chunk(request, budget - self._joining(request)), blocks)
        output.rows.append(row)
        output.admitted.append(row)
        return row.num_scheduled_tokens

    def _joining(self, request: Request) -> int:
        """How many tokens of the budget to leave for those who join the same static group."""
        if self.config.batching == Batching.CONTINUOUS or not self.config.enable_chunked_prefill:
            return 0
        return min(len(self.waiting), self.config.max_num_seqs - len(self.running))

    def _hold_queue(self, output: SchedulerOutput, index: int, reason: WaitReason) -> None:
        """Everybody from `index` on waits: the first for `reason`, the rest behind it."""
        if index >= len(self.waiting):
            return
        head, *rest = self.waiting[index:]
        output.ended_by = reason.code
        output.waiting.append(dataclasses.replace(reason, request=head.request_id))
        output.waiting.extend(_reason("behind_head", r.request_id, by=head.request_id) for r in rest)

    # -- preemption ----------------------------------------------------------------------------------------------

    def _make_room(self, output: SchedulerOutput) -> None:
        """Let the head of the queue take the place of less urgent running requests, if slots or blocks are short and
        if that is enough. It is admitted in the next step, or in this one if nobody is left running."""
        if not self.waiting or not self.running or self.config.batching == Batching.STATIC:
            return
        head = self.waiting[0]
        victims = [r for r in sorted(self.running, key=self.policy.key) if self.policy.outranks(head, r)]
        hits = self.kv.find_hits(head)
        while victims:
            reason = self._obstacle(head, hits, self.config.max_num_batched_tokens)
            if reason is None or reason.code not in ("slots_full", "blocks_short"):
                return
            needs = self._blocks_at_admission(head) - len(hits)
            if needs + self._watermark_blocks > self.kv.available(hits) + self.kv.freeable(victims):
                return  # all of them together would not be enough
            self._preempt(victims.pop(), head, needs, output)

    def _preempt(self, victim: Request, by: Request, needed: int, output: SchedulerOutput) -> None:
        """Take the victim's blocks. It keeps its tokens and will recompute their KV when it is admitted again."""
        self.running.remove(victim)
        at = bisect.bisect(self.waiting, self.policy.key(victim), key=self.policy.key)
        self.waiting.insert(at, victim)
        output.preempted.append(
            Preemption(
                request=victim,
                by=by.request_id,
                needed=needed,
                free=self.pool.num_free,
                num_lost_tokens=victim.num_computed_tokens,
                num_held_blocks=len(victim.block_table),
                queue_index=at,
            )
        )
        victim.status = RequestStatus.WAITING
        victim.num_preemptions += 1
        victim.num_lost_tokens += victim.num_computed_tokens
        victim.last_preempted_us = output.now_us
        victim.num_computed_tokens = 0
        self._release(victim)

    def _release(self, request: Request) -> None:
        """Give back blocks and slot."""
        self.kv.free(request)
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
            ending = None
            for token_id in token_ids:
                ending = self._accept(request, token_id, now_us)
                row.num_accepted += 1
                if ending is not None:
                    break
            request.num_computed_tokens = row.num_computed_after
            hashed.extend(self.kv.register(row))
            if ending is not None:
                self.finish(request, *ending, now_us)
        return hashed

    def _accept(self, request: Request, token_id: int, now_us: int) -> tuple[FinishReason, str] | None:
        """Take one output token; returns how the request ends, if it does."""
        request.token_ids.append(token_id)
        request.last_token_us = now_us
        if request.first_token_us is None:
            request.first_token_us = now_us
        if token_id in request.stop_token_ids and request.may_stop:
            return FinishReason.STOP, "stop_token"
        if self._on_token(request, token_id):
            return FinishReason.STOP, "stop_string"
        if request.num_output_tokens >= request.max_tokens:
            return FinishReason.LENGTH, "max_model_len" if request.num_tokens >= self.max_model_len else "max_tokens"
        if request.num_tokens > self.capacity:
            return FinishReason.LENGTH, "kv_capacity"
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
        if self.waiting != sorted(self.waiting, key=self.policy.key):
            found.append("the queue is not in policy order")
        slots = [r.slot for r in self.running if r.slot is not None]
        if len(slots) != len(self.running) or sorted([*slots, *self._free_slots]) != list(range(self._num_slots)):
            found.append("the slots and the running requests disagree")
        return found


def _reason(code: str, request: str = "", **facts: Any) -> WaitReason:
    """A reason with the line that decided it."""
    line = sys._getframe(1).f_lineno
    return WaitReason(request=request, code=code, source=f"engine/scheduler.py:{line}", **facts)
