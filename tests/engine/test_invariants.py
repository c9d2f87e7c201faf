"""Whatever happens in whatever order, the invariants hold after every step, and the events tell the whole truth.

A33: every block comes back after finish, abort, preemption, error, cache hit, eviction and reset, in random order.
A38: a request is in exactly one queue. A41: in every step each running request is handed tokens or preempted.
"""

import contextlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine import events
from engine.config import CHOICES
from engine.errors import ConfigError, RequestError
from engine.request import FinishReason, Request, RequestStatus
from engine.scripted import EOS
from tests.engine.harness import Harness, letters

PREFIXES = ("", "x" * 40, "x" * 64 + "y" * 33, "z" * 16)


def sometimes_ends(request: Request, index: int) -> int:
    token = letters(request, index)
    return EOS if token == ord("q") and index > 40 else token


class EngineMachine(RuleBasedStateMachine):
    """add, step, abort, fail, reset, pause and step by hand, over a pool that is too small."""

    @initialize(
        num_blocks=st.integers(6, 24),
        block_size=st.sampled_from([2, 4, 16]),
        max_num_seqs=st.integers(1, 5),
        extra_budget=st.integers(0, 60),
        caching=st.booleans(),
        watermark=st.sampled_from([0.0, 0.1]),
        batching=st.sampled_from(CHOICES["batching"]),
        policy=st.sampled_from(CHOICES["scheduling_policy"]),
        threshold=st.sampled_from([0, 3]),
        speculative=st.sampled_from(["none", "ngram:1", "ngram:5", "draft:scripted:3"]),
    )
    def start(
        self,
        num_blocks,
        block_size,
        max_num_seqs,
        extra_budget,
        caching,
        watermark,
        batching,
        policy,
        threshold,
        speculative,
    ):
        self.engine = Harness(
            sometimes_ends,
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_seqs + extra_budget,
            enable_prefix_caching=caching,
            watermark=watermark,
            batching=batching,
            scheduling_policy=policy,
            long_prefill_token_threshold=threshold,
            speculative=speculative,
            max_model_len=4096,
        )
        self.added: list[Request] = []

    @rule(
        prefix=st.sampled_from(PREFIXES),
        tail=st.text("ab", max_size=20),
        max_tokens=st.integers(1, 120),
        copies=st.integers(1, 4),
        priority=st.integers(-1, 1),
    )
    def add(self, prefix, tail, max_tokens, copies, priority):
        prompt = (prefix + tail)[: self.engine.scheduler.capacity] or "a"
        for _ in range(copies):
            request = self.engine.request(prompt, max_tokens)
            request.priority = priority
            self.engine.core.add(request)
            self.added.append(request)

    @rule(
        changes=st.fixed_dictionaries(
            {},
            optional={
                "max_num_seqs": st.integers(1, 6),
                "max_num_batched_tokens": st.integers(4, 40),
                "batching": st.sampled_from(CHOICES["batching"]),
                "scheduling_policy": st.sampled_from(CHOICES["scheduling_policy"]),
                "enable_prefix_caching": st.booleans(),
                "long_prefill_token_threshold": st.sampled_from([0, 2, 7]),
                "watermark": st.sampled_from([0.0, 0.2]),
            },
        )
    )
    def turn_knobs(self, changes):
        with contextlib.suppress(ConfigError):  # more slots than tokens in the budget
            self.engine.core.configure(changes)

    @precondition(lambda self: self.engine.core.has_work)
    @rule(count=st.integers(1, 40), us=st.integers(0, 5000))
    def step(self, count, us):
        for _ in range(count):
            if self.engine.core.has_work:
                self.one_step(us)

    def one_step(self, us):
        running = list(self.engine.scheduler.running)
        self.engine.step(us)
        output = self.engine.runner.outputs[-1]
        rows = {row.request.request_id: row for row in output.rows}
        preempted = {facts.request.request_id for facts in output.preempted}
        resumed = {row.request.request_id for row in output.admitted}
        limit = max(self.engine.core.config.max_num_batched_tokens, len(running))
        assert output.num_scheduled_tokens <= limit
        assert all(row.num_scheduled_tokens >= 1 for row in output.rows)
        # every running request is handed something or preempted, never both
        assert all((r.request_id in rows) != (r.request_id in preempted - resumed) for r in running)
        # and a step that does nothing at all is impossible
        assert output.rows
        # each waiting request says why
        waiting = {r.request_id for r in self.engine.scheduler.waiting}
        assert {reason.request for reason in output.waiting} == waiting
        self.engine.check()

    @precondition(lambda self: self.added)
    @rule(data=st.data())
    def abort(self, data):
        request = data.draw(st.sampled_from(self.added))
        live = request.status is not RequestStatus.FINISHED
        assert self.engine.core.abort(request.request_id) is live
        assert self.engine.core.abort(request.request_id) is False

    @precondition(lambda self: self.engine.core.has_work)
    @rule()
    def fail(self):
        """The engine ends every live request with an error."""
        self.engine.core.fail_all("engine_error")
        assert self.engine.scheduler.pool.counts().referenced == 0

    @rule()
    def reset_prefix_cache(self):
        self.engine.core.reset_prefix_cache()

    @rule(text=st.text(min_size=1, max_size=5).filter(str.strip))
    def mark(self, text):
        with contextlib.suppress(RequestError):
            self.engine.core.mark(text)

    @rule()
    def reset(self):
        self.engine.core.reset()
        assert self.engine.scheduler.pool.counts().free == self.engine.config.num_blocks

    @rule(steps=st.integers(1, 3))
    def hold_and_step(self, steps):
        self.engine.gate("step", steps=steps)
        while self.engine.core.can_step:
            self.one_step(10)
        self.engine.gate("run")

    @invariant()
    def sound(self):
        if hasattr(self, "engine"):
            self.engine.check()

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        engine.run()
        engine.check()
        counts = engine.scheduler.pool.counts()
        assert counts.referenced == 0
        assert counts.free + counts.cached_idle == counts.total
        for request in self.added:
            answer = [sometimes_ends(request, i) for i in range(request.num_output_tokens)]
            assert request.output_token_ids == answer  # continuous across preemptions
            if request.finish_reason is FinishReason.LENGTH:
                assert request.num_output_tokens == request.max_tokens or request.finish_detail == "kv_capacity"
        order = [event.seq for event in engine.sink if isinstance(event, events.Event) and event.kind != "key"]
        assert order == list(range(1, len(order) + 1))


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(max_examples=settings.default.max_examples // 2, stateful_step_count=30)
