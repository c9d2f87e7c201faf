"""Virtual time: a clock that only moves when it is told to, and a runner that lets the time of a cost model pass.

No torch. The runner computes nothing: it follows a script.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.cost_model import CostModel, StepShape, load_cost_model
from engine.runner import SchedulerOutput
from engine.scripted import Script, ScriptedRunner, echo_script


class VirtualClock:
    """Microseconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now_us = 0

    def __call__(self) -> int:
        return self.now_us

    def advance(self, us: int) -> None:
        self.now_us += us


class SimulatedRunner(ScriptedRunner):
    """Follows a script, and lets pass the time that `cost` predicts for each step."""

    def __init__(self, script: Script, cost: CostModel, let_pass: Callable[[int], None]) -> None:
        super().__init__(script)
        self._cost = cost
        self._let_pass = let_pass

    def draft(self, output: SchedulerOutput) -> bool:
        return False  # a simulation proposes all its guesses itself

    def forward(self, batch: SchedulerOutput) -> SchedulerOutput:
        self._let_pass(self._cost.predict(StepShape.of_rows(batch.rows)))
        return batch


def paced_runner(cost_model: str) -> SimulatedRunner:
    """For an engine that serves: it sleeps as long as a model would compute. Raises ConfigError."""
    return SimulatedRunner(echo_script, load_cost_model(cost_model), lambda us: time.sleep(us / 1_000_000))
