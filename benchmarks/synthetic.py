"""A busy engine without an engine: a stream of legal events, as large as asked for, at next to no cost.

Contract. What a Crowd says is what a scheduler could have said: its blocks come from the real pool, preemption and
admission follow the rules, and every event folds (tests/app/test_synthetic.py). Only the tokens are missing. Its time
is virtual: a step takes as long as it says, whenever it is asked for. Same seed, same stream.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.synthetic_step import BLOCK_SIZE, Queued, Step
from engine.block_pool import BlockPool
from engine.config import EngineConfig
from engine.events import NUM_VICTIMS
from engine.scripted import scripted_facts

Json = dict[str, Any]

SHARED_BLOCKS = 8  # at the head of every prompt of one family
FAMILIES = 6
WAITING = 6  # requests that wait, always


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of everything."""

    num_blocks: int = 20_000
    slots: int = 256
    token_budget: int = 2048
    steps_per_s: float = 200.0
    prompt_tokens: tuple[int, int] = (160, 1500)
    output_tokens: tuple[int, int] = (200, 1600)


class Crowd:
    """Requests that come, are computed, are preempted and end. `hello` and `key` first, then `step` again and again."""

    def __init__(self, size: Size | None = None, seed: int = 7) -> None:
        self.size = size or Size()
        self.pool = BlockPool(self.size.num_blocks)
        self.waiting: deque[Queued] = deque()
        self.running: list[Queued] = []
        self.seq = 0
        self.number = 0
        self._rng = random.Random(seed)
        self.step_us = int(1e6 / self.size.steps_per_s)
        self._free_slots = list(range(self.size.slots))[::-1]
        self._num_requests = 0
        self._num_hashes = 0
        self._said: list[Json] = []

    def hello(self) -> Json:
        config = EngineConfig(
            model="scripted",
            block_size=BLOCK_SIZE,
            num_blocks=self.size.num_blocks,
            max_num_seqs=self.size.slots,
            max_num_batched_tokens=self.size.token_budget,
            max_model_len=4096,
        )
        facts = asdict(scripted_facts(config))
        return self.event(
            "hello",
            v=1,
            **facts,
            num_blocks=self.size.num_blocks,
            block_size=BLOCK_SIZE,
            clock_unix_us=1_700_000_000_000_000,
            redaction="own",
            hash_salt="fixed",
            disabled=[],
            simulated=True,
        )

    def key(self, state: Json) -> Json:
        """The key after what was said last; `state` is what a fold made of it."""
        return {"kind": "key", "engine": "main", "epoch": "crowd", "seq": self.seq, "t": self.now_us, "state": state}

    def step(self) -> list[Json]:
        """All events of one more step, in order."""
        self.number += 1
        self._said = []
        while len(self.waiting) < WAITING:
            self._arrive()
        step = Step(self)
        step.schedule()
        self._said.append(step.event())
        self._finish(step.complete())
        step.body["blocks"] = asdict(self.pool.counts())
        step.body["victims"] = self.pool.victims(NUM_VICTIMS)
        return self._said

    # -- what it says ----------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        return self.number * self.step_us

    def event(self, kind: str, **body: Any) -> Json:
        self.seq += 1
        return {"kind": kind, "engine": "main", "epoch": "crowd", "seq": self.seq, "t": self.now_us, **body}

    def _tell(self, event: str, request: Queued, **body: Any) -> None:
        self._said.append(self.event("request", event=event, request=request.id, **body))

    def new_hash(self) -> str:
        self._num_hashes += 1
        return f"{self._num_hashes:032x}"

    # -- life of a request -----------------------------------------------------------------------------------

    def _arrive(self) -> None:
        self._num_requests += 1
        prompt = self._rng.randint(*self.size.prompt_tokens)
        family = self._rng.randrange(FAMILIES)
        hashes = [f"{family:016x}{i:016x}" for i in range(min(SHARED_BLOCKS, prompt // BLOCK_SIZE))]
        hashes += [self.new_hash() for _ in range(prompt // BLOCK_SIZE - len(hashes))]
        output = self._rng.randint(*self.size.output_tokens)
        request = Queued(f"R{self._num_requests}", prompt, output, hashes, self.now_us)
        self.waiting.append(request)
        self._tell(
            "arrived",
            request,
            label=None,
            parent=None,
            owner=None,
            arrival_us=self.now_us,
            num_prompt_tokens=prompt,
            max_tokens=output,
            sampling={},
            priority=0,
            request_class=None,
            block_hashes=hashes,
            queue_index=len(self.waiting) - 1,
            gate_held=False,
        )

    def preempt(self, by: Queued) -> Queued:
        """Take the blocks of the one that came last."""
        victim = self.running.pop()
        victim.preempted += 1
        held, lost = len(victim.table), victim.computed
        self._release(victim)
        self.waiting.appendleft(victim)
        self._tell(
            "preempted",
            victim,
            by=by.id,
            needed=1,
            free=0,
            num_lost_tokens=lost,
            num_held_blocks=held,
            num_preemptions=victim.preempted,
            queue_index=0,
            at_us=self.now_us,
        )
        return victim

    def admit(self, request: Queued, hits: list[int]) -> None:
        self.waiting.popleft()
        self.running.append(request)
        request.slot = self._free_slots.pop()
        request.computed = len(hits) * BLOCK_SIZE
        cached, now = request.computed, self.now_us
        if request.scheduled_us is None:
            request.scheduled_us = now
            self._tell("admitted", request, slot=request.slot, cached=cached, scheduled_us=now)
        else:
            self._tell("resumed", request, slot=request.slot, cached=cached, scheduled_us=now, preempted_us=1)

    def _finish(self, done: list[Queued]) -> None:
        for request in self.running:
            if request.out and request.first_token_us is None:
                request.first_token_us = self.now_us
                self._tell("first_token", request, first_token_us=self.now_us)
        for request in done:
            self.running.remove(request)
            self._release(request)
            self._tell(
                "finished",
                request,
                reason=self._rng.choice(("stop", "length")),
                detail=None,
                finished_us=self.now_us,
                num_output_tokens=request.out,
                timings=self._timings(request),
            )

    def _timings(self, request: Queued) -> Json:
        assert request.scheduled_us is not None
        assert request.first_token_us is not None
        arrival, first, now = request.arrival_us, request.first_token_us, self.now_us
        return {
            "queue_us": request.scheduled_us - arrival,
            "prefill_us": first - request.scheduled_us,
            "ttft_us": first - arrival,
            "decode_us": now - first,
            "tpot_us": (now - first) / (request.out - 1) if request.out > 1 else None,
            "e2e_us": now - arrival,
            "preempted_us": 0,
            "gated_us": 0,
        }

    def _release(self, request: Queued) -> None:
        self.pool.free(request.table)
        self._free_slots.append(request.slot)
        request.table, request.slot, request.computed = [], -1, 0
