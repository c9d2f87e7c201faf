"""One step of a synthetic engine (synthetic.py): who gets how many tokens and blocks, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.synthetic import Crowd

Json = dict[str, Any]

BLOCK_SIZE = 16
CHUNK = 512  # most prompt tokens of one request in one step
PHASES = {"schedule": 0.06, "prepare": 0.08, "forward": 0.68, "sample": 0.08, "update": 0.05, "publish": 0.01}


@dataclass(slots=True, eq=False)
class Queued:
    """A request, waiting or running."""

    id: str
    prompt_tokens: int
    max_tokens: int
    hashes: list[str]
    arrival_us: int
    slot: int = -1
    computed: int = 0
    out: int = 0
    table: list[int] = field(default_factory=list)
    preempted: int = 0
    scheduled_us: int | None = None
    first_token_us: int | None = None

    @property
    def num_tokens(self) -> int:
        return self.prompt_tokens + self.out


class Step:
    """One step in the making: first who gets how many tokens, then what comes of it."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.body: Json = {}
        self._budget = crowd.size.token_budget
        self._rows: list[tuple[Queued, Json]] = []
        self._tables: list[tuple[str, list[int]]] = []
        self._evicted: list[int] = []
        self._victims = 0

    def schedule(self) -> None:
        running, at = self.crowd.running, 0
        while at < len(running):
            request = running[at]
            grown = request.computed < BLOCK_SIZE * len(request.table) or self._grow(request, request.computed + 1)
            if not grown and self._preempted_itself(request):
                break
            self._add_row(request)
            at += 1
        if not self._victims:
            self._admit()

    def _preempted_itself(self, request: Queued) -> bool:
        while True:
            self._victims += 1
            if self.crowd.preempt(request) is request:
                return True
            if self._grow(request, request.computed + 1):
                return False

    def _admit(self) -> None:
        crowd = self.crowd
        while crowd.waiting and len(crowd.running) < crowd.size.slots and self._budget > 0:
            request = crowd.waiting[0]
            hits = crowd.pool.find_cached(request.hashes)[: (request.num_tokens - 1) // BLOCK_SIZE]
            fresh = -(-request.num_tokens // BLOCK_SIZE) - len(hits)
            if fresh > crowd.pool.num_free - crowd.pool.num_idle(hits) - crowd.size.num_blocks // 1000:
                break
            crowd.admit(request, hits)
            crowd.pool.touch(hits)
            request.table += hits
            if hits:
                self._tables.append((request.id, hits))
            self._grow(request, request.num_tokens)
            self._add_row(request)

    def _grow(self, request: Queued, tokens: int) -> bool:
        """Blocks for so many tokens; False when there are none."""
        needed = -(-tokens // BLOCK_SIZE) - len(request.table)
        if needed <= 0:
            return True
        if needed > self.crowd.pool.num_free:
            return False
        taken, evicted = self.crowd.pool.allocate(needed)
        request.table += taken
        self._evicted += evicted
        self._tables.append((request.id, taken))
        return True

    def _add_row(self, request: Queued) -> None:
        left = request.prompt_tokens + request.out - request.computed
        scheduled = left if left == 1 else min(left, CHUNK)
        if scheduled > self._budget:
            scheduled = self._budget
        if scheduled == 0:
            return
        self._budget -= scheduled
        row = {
            "request": request.id,
            "slot": request.slot,
            "phase": "prefill" if left > 1 or request.out == 0 else "decode",
            "scheduled": scheduled,
            "drafted": 0,
            "accepted": 0,
            "computed": request.computed + scheduled,
            "out": int(scheduled == left),
        }
        self._rows.append((request, row))

    def event(self) -> Json:
        crowd, step_us = self.crowd, self.crowd.step_us
        prefill = sum(row["scheduled"] for _, row in self._rows if row["phase"] == "prefill")
        spent = crowd.size.token_budget - self._budget
        self.body = crowd.event(
            "step",
            step=crowd.number,
            start_us=crowd.now_us - step_us,
            wall_us=step_us,
            accepted_us=crowd.now_us,
            phases_us={phase: int(share * step_us) for phase, share in PHASES.items()},
            scopes={phase: "device" if phase == "forward" else "host" for phase in PHASES},
            num_scheduled_tokens=spent,
            num_prefill_tokens=prefill,
            num_decode_tokens=spent - prefill,
            token_budget=crowd.size.token_budget,
            ended_by="after_preemption" if self._victims else "slots_full",
            rows=[row for _, row in self._rows],
            waiting=self._reasons(),
            tables=self._tables,
            hashed=[],
            evicted=self._evicted,
            victims=[],
            blocks={},
            flops=spent * 10**9,
            bytes=10**9,
            gated=False,
        )
        return self.body

    def _reasons(self) -> list[Json]:
        if self._victims:
            facts: Json = {"code": "after_preemption"}
        elif len(self.crowd.running) == self.crowd.size.slots:
            facts = {"code": "slots_full", "limit": self.crowd.size.slots}
        else:
            facts = {"code": "blocks_short", "needs": 9, "free": self.crowd.pool.num_free}
        blank = {"needs": None, "free": None, "limit": None, "by": None, "source": "engine/scheduler.py:1"}
        return [{**blank, "request": request.id, **facts} for request in self.crowd.waiting]

    def complete(self) -> list[Queued]:
        """What was computed counts now; returns those that have said all they had to say."""
        done = []
        for request, row in self._rows:
            computed = row["computed"]
            if computed // BLOCK_SIZE != request.computed // BLOCK_SIZE:
                self._hash(request, computed)
            request.computed = computed
            request.out += row["out"]
            if request.out == request.max_tokens:
                done.append(request)
        return done

    def _hash(self, request: Queued, computed: int) -> None:
        """Full blocks can be used again."""
        for index in range(request.computed // BLOCK_SIZE, computed // BLOCK_SIZE):
            known = index < len(request.hashes)
            block_hash = request.hashes[index] if known else self.crowd.new_hash()
            if self.crowd.pool.register(request.table[index], block_hash):
                self.body["hashed"].append((request.table[index], block_hash))
