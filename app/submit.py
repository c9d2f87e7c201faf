"""From a checked Submission to a request that the engine has taken, or a Problem that says why not."""

from __future__ import annotations

import asyncio
import time

from app.bodies import Submission
from app.hub import Hub
from app.ledger import Entry
from app.problems import Problem
from app.record import EngineRecord, Status

ARRIVAL_TIMEOUT_S = 30.0  # templating and tokenising a prompt takes milliseconds


def find_engine(hub: Hub, name: str | None = None) -> EngineRecord:
    """The named engine, or the only one. Raises Problem."""
    if name is not None:
        if name not in hub.engines:
            raise Problem(404, "There is no engine of this name.", param="engine")
        return hub.engines[name]
    if not hub.engines:
        raise Problem(503, "No engine is connected.")
    if len(hub.engines) > 1:
        raise Problem(400, f"There are several engines ({', '.join(hub.engines)}); name one.", param="engine")
    return next(iter(hub.engines.values()))


def require_serving(hub: Hub, record: EngineRecord) -> None:
    """Raise Problem unless the engine can take requests now."""
    if hub.closing:
        raise Problem(503, "Stepscope is shutting down.")
    status = hub.status(record)
    if status not in (Status.READY, Status.PAUSED):
        raise Problem(503, f"The engine is {status.value}. {record.reason(status) or ''}".strip())


def served_model(record: EngineRecord) -> str:
    return str(record.hello["model"]["name"]) if record.hello else ""


def submit(
    hub: Hub,
    submission: Submission,
    *,
    owner: str | None,
    label: str | None,
    read_at: float | None = None,
    conversation: str | None = None,
    engine: str | None = None,
) -> Entry:
    """Send it to the named engine, or the only one. Raises Problem or EngineAway; the entry tells the rest."""
    record = find_engine(hub, engine)
    require_serving(hub, record)
    if submission.model not in (None, "default", served_model(record)):
        message = f"This server serves {served_model(record)} (or default), not the model asked for."
        raise Problem(404, message, param="model", code="model_not_found")
    entry = Entry(
        id=hub.next_request_id(),
        engine=record.id,
        owner=owner,
        prompt=submission.shown_prompt,
        conversation=conversation,
        read_at=read_at if read_at is not None else time.monotonic(),
    )
    command = {
        "label": label,
        "parent": None,
        "owner": owner,
        "priority": submission.priority,
        "request_class": submission.request_class,
        **submission.content,
        "sampling": submission.sampling,
    }
    hub.submit(record, entry, command)
    return entry


async def arrival(hub: Hub, entry: Entry) -> None:
    """Wait until the engine has taken the request. Raises Problem when it refuses or cannot answer."""
    try:
        async with asyncio.timeout(ARRIVAL_TIMEOUT_S):
            while entry.arrived is None and not entry.over:
                await entry.change()
    except TimeoutError:
        hub.ledger.lose(entry, f"The engine has not taken the request within {ARRIVAL_TIMEOUT_S:g} s.")
        hub.abort(entry)
    if entry.rejected is not None:
        raise Problem(entry.rejected["status"], entry.rejected["message"], param=entry.rejected["param"])
    if entry.arrived is None:
        raise Problem(503, entry.lost or "The engine is away.")
