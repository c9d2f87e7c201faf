"""EngineLoop: takes commands between steps, steps when it may, and beats when it does not.

One thread runs it, and only that thread touches the core. Others hand over a Command; it is carried out between two
steps, whatever state the engine is in, and answered by a `reply` event.
"""

from __future__ import annotations

import queue
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from engine import events
from engine.core import EngineCore
from engine.errors import StepscopeError

BEAT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Command:
    """`action` works on the core; it returns an error sentence or None, or raises a StepscopeError.

    Without a `cmd_id` there is no reply.
    """

    action: Callable[[EngineCore], str | None]
    cmd_id: str | None = None
    effect: str = "live"


class EngineLoop:
    """Runs a core until `stop`."""

    def __init__(self, core: EngineCore, inbox: queue.SimpleQueue[Command]) -> None:
        self.core = core
        self._inbox = inbox
        self._stopped = False
        self._last_step_us: int | None = None

    def stop(self) -> None:
        """Leave `run` before the next step. Call it from a command."""
        self._stopped = True

    def run(self) -> None:
        """Raises whatever a step raises: the caller says so and ends the engine."""
        while not self._stopped:
            self._take_commands()
            if self._stopped:
                return
            if self.core.can_step:
                self.core.step()
                self._last_step_us = self.core.clock()

    def _take_commands(self) -> None:
        """Carry out what has come in; wait for more while there is nothing else to do."""
        while True:
            patience = self._patience()
            if patience:
                self.core.timer.idle()
            try:
                command = self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait()
            except queue.Empty:
                if not patience:
                    return
                if patience == BEAT_SECONDS:
                    self.core.check()
                    self._beat()
            else:
                self._carry_out(command)

    def _patience(self) -> float:
        """Seconds to wait for a command: none if a step is due."""
        if self._stopped:
            return 0.0
        if not self.core.can_step:
            return BEAT_SECONDS
        return min(BEAT_SECONDS, self.core.wait_us / 1_000_000)

    def _carry_out(self, command: Command) -> None:
        try:
            error = command.action(self.core)
        except StepscopeError as refused:
            error = str(refused)
        except Exception:  # a command is one client's; it fails alone, and its reason is for the terminal
            traceback.print_exc()
            error = "The engine could not carry out this command; its log says why."
        if command.cmd_id is not None:
            self.core.emitter.emit(
                events.Reply,
                cmd_id=command.cmd_id,
                ok=error is None,
                effect=command.effect if error is None else None,
                error=error,
            )

    def _beat(self) -> None:
        last = self._last_step_us
        self.core.emitter.emit(events.Beat, step_age_us=None if last is None else self.core.clock() - last)
