"""EngineCore: the engine's step, and what may happen between two steps. Start reading here.

A step is schedule → (draft →) prepare → forward → sample → update → report. Everything else (arrivals, aborts, the
gate) is a method called between steps, by one thread. No torch here: the model is whatever implements runner.Runner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine import events, knobs
from engine.breakpoints import Breakpoints, Hit, StepFacts
from engine.config import EngineConfig, flag
from engine.detokenizer import Detokenizer
from engine.emitter import Emitter
from engine.errors import ConfigError
from engine.gate import Gate
from engine.gate_action import GateAction
from engine.mark import check_mark
from engine.reporter import Reporter, StepCost
from engine.request import FinishReason, Request
from engine.runner import Runner, ScheduledRow, SchedulerOutput
from engine.scheduler import Scheduler
from engine.snapshot import gate_facts
from engine.text import TextOutput
from engine.timing import Clock, StepTimer
from engine.watchdog import Watchdog


def no_cost(rows: list[ScheduledRow]) -> tuple[int, int]:
    """The cost of a model that moves no bytes."""
    return 0, 0


class EngineCore:
    """One engine: a scheduler, a runner, and what they say about themselves.

    `config` is resolved. `make_detokenizer` gives each request its own; `root_hash` starts the block hashes.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: Runner,
        emitter: Emitter,
        clock: Clock,
        make_detokenizer: Callable[[Request], Detokenizer],
        *,
        cost: StepCost = no_cost,
        root_hash: str = "",
    ) -> None:
        self.config = config
        self.runner = runner
        self.emitter = emitter
        self.clock = clock
        self.timer = StepTimer(clock)
        self.gate = Gate(paused=config.start_paused, now_us=clock())
        self.text = TextOutput(make_detokenizer)
        self.scheduler = Scheduler(config, root_hash, self.text.on_token)
        self.watchdog = Watchdog(self.scheduler)
        self.reporter = Reporter(emitter, self.scheduler, self.gate, self.text, cost)

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.requests)

    @property
    def can_step(self) -> bool:
        return self.has_work and self.gate.open

    @property
    def wait_us(self) -> int:
        """How long a rate-limited gate wants the next step to be put off."""
        return self.gate.wait_us(self.clock())

    def step(self) -> None:
        """Run one step. One step, one `step` event."""
        timer, gated = self.timer, self.gate.by_hand

        output = self.scheduler.schedule(timer.begin())
        timer.lap("schedule")
        if self.runner.draft(output):
            timer.lap("draft")
        batch = self.runner.prepare(output)
        timer.lap("prepare")
        logits = self.runner.forward(batch)
        timer.lap("forward")
        sampled = self.runner.sample(batch, logits)
        device_us = self.runner.device_us()
        accepted_us = timer.lap("sample")
        timer.on_device(device_us)
        hashed = self.scheduler.update_from_output(output, sampled, accepted_us)
        timer.lap("update")

        self.reporter.step(output, hashed, timer, accepted_us, gated=gated)
        self._settle_gate(output, self._report_finished())
        timer.published()

    # -- between steps -------------------------------------------------------------------------------------------

    def add(self, request: Request) -> str | None:
        """Take a request that passed the door, unless the queue is full; returns why it was refused."""
        if request.request_id in self.scheduler.requests:
            return f"A request {request.request_id} is live already."
        waiting = len(self.scheduler.waiting)
        if waiting >= self.config.max_queue:
            message = (
                f"The queue is full: {waiting} requests wait, --max-queue is {self.config.max_queue}. Retry later."
            )
            return self.reject(request.request_id, 429, None, message)
        request.gated_mark_us = self.gate.held_us(request.arrival_us)
        self.scheduler.add(request)
        self.text.start(request)
        self.reporter.arrived(request)
        return None

    def reject(self, request_id: str, status: int, param: str | None, message: str) -> str:
        """Refuse a request: it was in no queue and owned no block. Returns the message."""
        self.reporter.rejected(request_id, status, param, message)
        return message

    def abort(self, request_id: str) -> bool:
        """End a request in whatever state it is; False if it is not live (any more)."""
        request = self.scheduler.requests.get(request_id)
        if request is None:
            return False
        self.scheduler.finish(request, FinishReason.ABORT, None, self.clock())
        self._report_finished()
        return True

    def fail_all(self, detail: str) -> None:
        """End every live request with an error: the engine cannot go on."""
        for request in list(self.scheduler.requests.values()):
            self.scheduler.finish(request, FinishReason.ERROR, detail, self.clock())
        self._report_finished()

    def configure(self, changes: Mapping[str, Any]) -> None:
        """Change knobs, all or none. Raises ConfigError naming the one that cannot be so, or needs a new engine."""
        config = knobs.changed(self.config, changes)
        for name in changes:
            if knobs.effect(name) == knobs.RESTART:
                raise ConfigError(f"{name} cannot change while the engine runs; restart it with {flag(name)}.")
        self.config = config
        self.scheduler.configure(config)
        self.emitter.emit(
            events.Config,
            changed=dict(changes),
            waiting=[request.request_id for request in self.scheduler.waiting],
        )

    def move_gate(self, asked: GateAction) -> None:
        """Pause, run, step, slow or break the engine."""
        gate, now = self.gate, self.clock()
        match asked.action:
            case "pause":
                gate.pause(now)
            case "run":
                gate.run(now)
            case "step":
                gate.step(asked.steps, now)
            case "rate":
                gate.rate(asked.per_second, now)
            case "break":
                gate.breakpoints = asked.breakpoints or Breakpoints()
        self._report_gate()

    def reset_prefix_cache(self) -> int:
        """Forget every cached prefix; returns how many blocks. Live requests keep what they hold."""
        num_blocks = self.scheduler.pool.reset_cache()
        self.reporter.cache_reset(num_blocks)
        return num_blocks

    def mark(self, text: object) -> None:
        """Put somebody's words into the stream, right after the last step. Raises RequestError."""
        self.reporter.mark(check_mark(text))

    def reset(self) -> None:
        """The stage reset: end every request, empty the cache, forget what was. Knobs, gate and counters stay."""
        for request in list(self.scheduler.requests.values()):
            self.scheduler.finish(request, FinishReason.ABORT, "stage_reset", self.clock())
        self._report_finished()
        self.scheduler.pool.reset()
        self.gate.hit = None  # the step it names is forgotten
        self._report_gate()
        self.reporter.reset()

    def _settle_gate(self, output: SchedulerOutput, finished: list[Request]) -> None:
        """After a step has been reported: count it, and close the gate if it hit a breakpoint or cannot be."""
        gate, moved = self.gate, self.gate.took_step(self.timer.start_us)
        wrong = self.watchdog.after_step(output)
        hit = None if wrong is None else Hit(wrong, self.reporter.record.totals.steps, None)
        if hit is None and gate.breakpoints.texts:
            facts = StepFacts(output, finished, self.reporter.numbers(output, finished, self.timer))
            hit = gate.breakpoints.check(facts)
        if hit is not None:
            gate.pause(self.clock(), hit)
        if moved or hit is not None:
            self._report_gate()

    def check(self) -> None:
        """While idle: close the gate if an invariant is broken, and say which."""
        wrong = self.watchdog.when_idle()
        if wrong is not None and (self.gate.hit is None or self.gate.hit.on != wrong):
            self.gate.pause(self.clock(), Hit(wrong, self.reporter.record.totals.steps, None))
            self._report_gate()

    def _report_gate(self) -> None:
        self.emitter.emit(events.Gate, **gate_facts(self.gate))

    def _report_finished(self) -> list[Request]:
        finished = self.scheduler.take_finished()
        for request in finished:
            assert request.finished_us is not None
            request.gated_us = self.gate.held_us(request.finished_us) - request.gated_mark_us
        self.reporter.finished(finished)
        return finished
