"""From the wire's command messages to Commands for the loop; runs in the receiving thread.

Everything slow about a request (template, tokenizer, checks) happens here, before the engine's thread hears of it.
A message that makes no sense is answered by a `reply`, never by an exception.
"""

from __future__ import annotations

import json
import queue
import traceback
from collections.abc import Callable
from typing import Any

from engine.core import EngineCore
from engine.errors import RequestError, brief, shown
from engine.frontend import Frontend
from engine.gate_action import GateAction
from engine.loop import Command
from engine.timing import Clock


class CommandReader:
    """Turns messages into commands and puts them into the inbox. `stop` ends the loop."""

    def __init__(
        self, frontend: Frontend, inbox: queue.SimpleQueue[Command], clock: Clock, stop: Callable[[], None]
    ) -> None:
        self._frontend = frontend
        self._inbox = inbox
        self._clock = clock
        self._stop = stop

    def read(self, message: str | bytes) -> None:
        """Handle one message from the app."""
        try:
            body = json.loads(message)
        except (ValueError, RecursionError):
            return  # not even a cmd_id to answer to
        if not isinstance(body, dict):
            return
        cmd_id = body.get("cmd_id")
        self._inbox.put(
            Command(
                self._action(body),
                cmd_id if _is_id(cmd_id) else None,
                "next_step" if body.get("cmd") == "submit" else "live",
            )
        )

    def _action(self, body: dict[str, Any]) -> Callable[[EngineCore], str | None]:
        match body.get("cmd"):
            case "submit" if _is_id(body.get("request")):
                return self._submit(body)
            case "abort" if _is_id(body.get("request")):
                request_id = body["request"]
                return lambda core: None if core.abort(request_id) else f"No request {brief(request_id)} is live."
            case "gate":
                return _gate(body)
            case "configure" if isinstance(body.get("changes"), dict):
                changes = body["changes"]
                return lambda core: core.configure(changes)
            case "reset_prefix_cache":
                return lambda core: _done(core.reset_prefix_cache())
            case "reset":
                return lambda core: core.reset()
            case "mark":
                return lambda core: core.mark(body.get("text"))
            case "key":
                return lambda core: core.reporter.key()
            case "shutdown":
                return lambda core: self._stop()
            case other:
                return lambda core: f"The command {shown(other)} is unknown or lacks its request."

    def _submit(self, body: dict[str, Any]) -> Callable[[EngineCore], str | None]:
        request_id, arrival_us = body["request"], self._clock()
        try:
            request = self._frontend.make_request(body, arrival_us)
        except RequestError as error:
            refused = error
        except Exception:  # our own fault, and no reason to end this thread: said here in full, to the client in brief
            traceback.print_exc()
            refused = RequestError("The engine could not read this request; its log says why.", status=500)
        else:
            return lambda core: core.add(request)
        return lambda core: core.reject(request_id, refused.status, refused.param, refused.message)


def _is_id(value: object) -> bool:
    """Whether this is a name that an event can carry."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _gate(body: dict[str, Any]) -> Callable[[EngineCore], str | None]:
    try:
        asked = GateAction.from_body(body)
    except RequestError as error:
        refused = error.message
        return lambda core: refused
    return lambda core: core.move_gate(asked)


def _done(_: object) -> None:
    """Drop a result: the command succeeded."""
