"""JSON on the wire: reading what engines and viewers send, writing what we send.

Contract: whatever `read_*` returns has the members and types that the hub relies on; anything else raises
WireError with a sentence that may be sent to the peer as its close reason. The only importer of msgspec in app/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

Json = dict[str, Any]

MAX_VIEWER_MESSAGE = 4096  # bytes of one message from a viewer
MAX_SAFE_INTEGER = 2**53 - 1


POLICY_VIOLATION = 1008
TOO_BIG = 1009


class WireError(Exception):
    """A peer sent something that is not what INTERFACES says; `code` is for closing its socket."""

    def __init__(self, message: str, code: int = POLICY_VIOLATION) -> None:
        super().__init__(message)
        self.code = code


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def encode(value: Any) -> str:
    """Plain values as JSON text."""
    return _encode(value).decode()


def encode_bytes(value: Any) -> bytes:
    return _encode(value)


def _object(text: str, who: str) -> Json:
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise WireError(f"{who} sent something that is not JSON") from None
    if not isinstance(value, dict):
        raise WireError(f"{who} sent JSON that is not an object")
    return value


def _require(message: Json, name: str, kind: type, who: str) -> None:
    value = message.get(name)
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise WireError(f"{who} sent a message whose {name} is missing or of the wrong type")
    if isinstance(value, int) and not 0 <= value <= MAX_SAFE_INTEGER:
        raise WireError(f"{who} sent a message whose {name} is out of range")


# What is shown of an engine before, beside and after its folded state: nothing else would notice that it is missing.
_MEMBERS: dict[str, tuple[tuple[str, type], ...]] = {
    "text": (("request", str), ("offset", int), ("text", str)),
    "load": (("phase", str), ("done", int), ("total", int), ("unit", str)),
    "hello": (("config", dict), ("model", dict), ("clock_unix_us", int)),
    "key": (("state", dict),),
    "step": (("step", int), ("rows", list)),
    "request": (("event", str), ("request", str)),
    "bye": (("reason", str),),
}


def read_event(text: str) -> Json:
    """One message of an engine: a public event with its whole header, or a `text` message."""
    event = _object(text, "the engine")
    for name in ("kind", "engine", "epoch"):
        _require(event, name, str, "the engine")
    for name in ("seq", "t") if event["kind"] != "text" else ():
        _require(event, name, int, "the engine")
    for name, kind in _MEMBERS.get(event["kind"], ()):
        _require(event, name, kind, "the engine")
    if event["kind"] == "hello":
        _require(event["model"], "name", str, "the engine")
    if event["kind"] == "text" and not _are_runs(event.get("guessed", [])):
        raise WireError("the engine sent a text message whose guessed is not lists of numbers of characters")
    if event["kind"] == "text" and not _are_lengths(event.get("lengths", [])):
        raise WireError("the engine sent a text message whose lengths is not a list of numbers of characters")
    return event


def _are_runs(value: Any) -> bool:
    """Whether these are the accepted guesses of a text message: lists of a position and lengths."""
    return isinstance(value, list) and all(_are_lengths(run) and run for run in value)


def _are_lengths(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= MAX_SAFE_INTEGER for n in value)


@dataclass(frozen=True, slots=True)
class Resume:
    """What a viewer that was here before already has: every frame of `hub` up to number `n`."""

    hub: str | None
    n: int


@dataclass(frozen=True, slots=True)
class ViewerMessage:
    """One control message of a viewer; members it did not send are None."""

    ack: int | None = None
    resume: Resume | None = None
    visible: bool | None = None
    rows: str | None = None


def read_viewer_message(text: str) -> ViewerMessage:
    """`{"ack":n}`, `{"resume":{"hub","n"}}`, `{"visible":bool}` or `{"rows":"list"|"columns"}`, or several of them in
    one; unknown members are ignored."""
    if len(text) > MAX_VIEWER_MESSAGE or len(text.encode()) > MAX_VIEWER_MESSAGE:
        raise WireError(f"a viewer's message is limited to {MAX_VIEWER_MESSAGE} bytes", TOO_BIG)
    message = _object(text, "the viewer")
    if "ack" in message:
        _require(message, "ack", int, "the viewer")
    if "visible" in message:
        _require(message, "visible", bool, "the viewer")
    if message.get("rows", "list") not in ("list", "columns"):
        raise WireError("the viewer sent a message whose rows is neither list nor columns")
    resume = None
    if "resume" in message:
        _require(message, "resume", dict, "the viewer")
        resume = _read_resume(message["resume"])
    return ViewerMessage(
        ack=message.get("ack"), resume=resume, visible=message.get("visible"), rows=message.get("rows")
    )


def _read_resume(value: Json) -> Resume:
    if value.get("hub") is None:
        return Resume(None, 0)
    _require(value, "hub", str, "the viewer")
    _require(value, "n", int, "the viewer")
    return Resume(value["hub"], value["n"])
