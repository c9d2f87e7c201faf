"""What /api tells of an engine: the folded state, flat, with facts from `hello` and the invariants checked."""

from __future__ import annotations

import time
from collections import Counter

from app.hub import Hub
from app.ledger import Entry
from app.record import EngineRecord, Status
from app.state import State
from app.timings import app_share, partial_timings
from app.wire import Json

_MEMBERS = ("step", "config", "gate", "queues", "requests", "finished", "blocks", "totals", "last_step")
_FACTS = ("model", "device", "memory", "disabled", "simulated", "hash_salt", "redaction", "clock_unix_us")


def engine_state(hub: Hub, record: EngineRecord) -> Json:
    """GET /api/state: one engine's keyframe, flat. Members are null until the engine has said hello."""
    status = hub.status(record)
    state, hello = record.state, record.hello
    return {
        "hub": hub.id,
        "engine": record.id,
        "epoch": record.epoch,
        "seq": record.seq,
        "t": record.t,
        "status": status.value,
        "reason": record.reason(status),
        "engines": hub.summaries(),
        **{name: state[name] if state else None for name in _MEMBERS},
        **{name: hello.get(name) if hello else None for name in _FACTS},
        "invariants": {"ok": not (failed := failed_invariants(state)), "failed": failed},
    }


def failed_invariants(state: State | None) -> list[str]:
    """The sentences of METRICS' invariant that do not hold; empty when all do."""
    if state is None:
        return []
    failed = []
    counts, refs = state["blocks"]["counts"], state["blocks"]["refs"]
    if counts["free"] + counts["cached_idle"] + counts["referenced"] != counts["total"]:
        failed.append("free + cached idle + referenced == total")
    held = Counter(block for request in state["requests"].values() for block in request["block_table"])
    if any(held.get(block, 0) != ref for block, ref in enumerate(refs)):
        failed.append("ref == number of block tables that hold the block")
    if counts["referenced"] != sum(ref > 0 for ref in refs):
        failed.append("referenced == number of blocks with a ref")
    places = Counter([*state["queues"]["waiting"], *state["queues"]["running"], *state["finished"]])
    if places.keys() != state["requests"].keys() or any(count > 1 for count in places.values()):
        failed.append("every request is in exactly one of waiting, running, finished")
    return failed


def request_list(hub: Hub, record: EngineRecord) -> list[Json]:
    """GET /api/requests: the requests that the state shows, oldest first."""
    requests = record.state["requests"].values() if record.state else ()
    return [_as_ended(hub, record, request) for request in requests]


def request_detail(hub: Hub, entry: Entry, owner: str | None) -> Json:
    """GET /api/requests/{id}: one request with its timeline, and its text for those who may read it."""
    record = hub.engine(entry.engine)
    shown = (record.state or {}).get("requests", {}).get(entry.id) or entry.snapshot
    request = _as_ended(hub, record, shown) if shown else None
    timings = None
    if shown is not None:
        timings = partial_timings(shown)
        timings |= app_share(entry, timings["ttft_us"])
    may_read = hub.share_all or (owner is not None and owner == entry.owner)
    return {
        "hub": hub.id,
        "engine": entry.engine,
        "id": entry.id,
        "status": request["status"] if request else "rejected" if entry.rejected else "waiting",
        "request": request,
        "rejected": _rejection(entry),
        "lost": entry.lost,
        "timings": timings,
        "timeline": list(entry.timeline),
        "prompt": entry.prompt if may_read else None,
        "text": entry.text if may_read else None,
    }


def _rejection(entry: Entry) -> Json | None:
    if entry.rejected is None:
        return None
    return {name: entry.rejected[name] for name in ("status", "param", "message")}


def _as_ended(hub: Hub, record: EngineRecord, request: Json) -> Json:
    """A request of an engine that is gone has ended with it, whatever the last state says."""
    if request["status"] == "finished" or record.status(time.monotonic()) is not Status.GONE:
        return request
    return {
        **request,
        "status": "finished",
        "finish_reason": "error",
        "finish_detail": record.gone,
        "reason": None,
        "slot": None,
    }
