"""Recordings of a scripted engine whose steps take what a cost model says, for tests."""

from __future__ import annotations

from typing import Any

from engine import events
from engine.cost_model import CostModel, StepShape
from engine.recording import Recording
from engine.request import Request
from tests.engine.harness import Harness, to_json

PACE = CostModel(step_us=10_000, prefill_token_us=300, decode_row_us=800, kv_token_us=2, prefill_pair_us=0.1)


class Recorder:
    """An engine in virtual time; `at(us, …)` submits when it is that late."""

    def __init__(self, **config: Any) -> None:
        self.harness = Harness(**config)
        forward = self.harness.runner.forward

        def slow(output: Any) -> Any:
            self.harness.clock.advance(PACE.predict(StepShape.of_rows(output.rows)))
            return forward(output)

        self.harness.runner.forward = slow  # type: ignore[method-assign]

    def at(self, us: int, prompt: str | list[int], max_tokens: int, **params: Any) -> Request:
        """Step until that moment, idle if need be, then submit with that moment as its arrival."""
        self._until(us)
        request = self.harness.request(prompt, max_tokens, **params)
        request.arrival_us = us
        self.harness.core.add(request)
        return request

    def turn(self, us: int, **changes: Any) -> None:
        """Step until that moment, idle if need be, then turn knobs."""
        self._until(us)
        self.harness.core.configure(changes)

    def _until(self, us: int) -> None:
        harness = self.harness
        while harness.core.has_work and harness.clock() < us:
            harness.step()
        if harness.clock() < us:
            harness.core.timer.idle()
            harness.clock.now_us = us

    def recording(self) -> Recording:
        """Run to the end; everything that was said."""
        self.harness.run()
        hello, *rest = (to_json(event) for event in self.harness.sink if not isinstance(event, events.Text))
        return Recording(hello, rest)
