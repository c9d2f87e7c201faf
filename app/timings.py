"""One request's durations as METRICS defines them, and the app's own share of what its client saw.

All engine durations come from the engine's clock, all others from one clock of the app; the two are only ever
combined as durations. None is undefined, never 0.
"""

from __future__ import annotations

from app.ledger import Entry
from app.wire import Json

_NONE: Json = dict.fromkeys(("queue_us", "prefill_us", "ttft_us", "decode_us", "tpot_us", "e2e_us"))


def timings_of(entry: Entry) -> Json:
    """The finished request's timings with ingress and egress."""
    timings = dict(entry.finished["timings"]) if entry.finished else dict(_NONE)
    return {"request": entry.id, **timings, **app_share(entry, timings["ttft_us"])}


def partial_timings(request: Json) -> Json:
    """What is defined so far of a live request (as folded), else its final timings."""
    if request["timings"] is not None:
        return dict(request["timings"])
    timings = dict(_NONE)
    arrival, scheduled, first = request["arrival_us"], request["scheduled_us"], request["first_token_us"]
    if scheduled is not None:
        timings["queue_us"] = scheduled - arrival
        if first is not None:
            timings["prefill_us"] = first - scheduled
            timings["ttft_us"] = first - arrival
    return timings | {"preempted_us": request["preempted_us"]}


def app_share(entry: Entry, ttft_us: int | None) -> Json:
    """ingress + TTFT + egress is the first-token time that the client's side of our socket saw.

    Egress ends when the first text was handed to the socket, so a non-streaming answer has none.
    """
    share: Json = {"ingress_us": None, "egress_us": None}
    if ttft_us is None or entry.read_at is None or entry.first_token_at is None:
        return share
    heard_us = (entry.first_token_at - entry.read_at) * 1e6
    share["ingress_us"] = max(0, round(heard_us - ttft_us))
    if entry.written_at is not None:
        share["egress_us"] = max(0, round((entry.written_at - entry.first_token_at) * 1e6))
    return share
