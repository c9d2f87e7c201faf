"""What /api tells of an engine: the folded state, flat, with facts from `hello` and the invariants checked."""

from __future__ import annotations

from collections import Counter

from app.hub import Hub
from app.ledger import Entry
from app.record import EngineRecord
from app.state import State
from app.timings import app_share, partial_timings
from app.wire import Json

_MEMBERS = (
    "step",
    "config",
    "gate",
    "queues",
    "requests",
    "finished",
    "blocks",
    "totals",
    "last_step",
    "marks",
    "num_resets",
)
_FACTS = ("model", "draft", "device", "memory", "disabled", "simulated", "hash_salt", "redaction", "clock_unix_us")


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
        "viewers": hub.watching(),
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
    requests = record.state["requests"] if record.state else {}
    return [_told(request, hub.ledger.entries.get(request_id)) for request_id, request in requests.items()]


def request_summary(hub: Hub, entry: Entry, owner: str | None) -> Json:
    """One request without its timeline; text only for those who may read it."""
    state = hub.engine(entry.engine).state
    folded = state["requests"].get(entry.id) if state else None
    known = folded or entry.snapshot
    request = _told(known, entry) if known else None
    timings = None
    if request is not None:
        timings = partial_timings(request)
        timings |= app_share(entry, timings["ttft_us"])
    readable = hub.share_all or (owner is not None and owner == entry.owner)
    return {
        "hub": hub.id,
        "engine": entry.engine,
        "id": entry.id,
        "status": _status(request, entry),
        "request": request,
        "rejected": _rejection(entry),
        "lost": entry.lost,
        "timings": timings,
        "conversation": entry.conversation if readable else None,
        "prompt": entry.prompt if readable else None,
        "text": entry.text if readable else None,
    }


def request_detail(hub: Hub, entry: Entry, owner: str | None) -> Json:
    """GET /api/requests/{id}: one request with its whole timeline."""
    return {**request_summary(hub, entry, owner), "timeline": entry.timeline()}


def _status(request: Json | None, entry: Entry) -> str:
    if entry.rejected is not None:
        return "rejected"
    if request is None:
        return "finished" if entry.over else "waiting"
    return str(request["status"])


def _rejection(entry: Entry) -> Json | None:
    if entry.rejected is None:
        return None
    return {name: entry.rejected[name] for name in ("status", "param", "message")}


def _told(request: Json, entry: Entry | None) -> Json:
    """A request as it is to be told: one that was lost has ended, whatever the last state says of it."""
    if entry is None or entry.lost is None or request["status"] == "finished":
        return request
    ended = {"status": "finished", "finish_reason": "error", "finish_detail": entry.lost}
    return {**request, **ended, "reason": None, "slot": None}
