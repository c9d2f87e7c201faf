"""The durations of METRICS, and the app's own share."""

from __future__ import annotations

from app.ledger import Entry
from app.timings import app_share, partial_timings, timings_of
from tests.app.fakes import Json, timings


def folded(**known: int | None) -> Json:
    times = dict.fromkeys(("scheduled_us", "first_token_us", "last_token_us"))
    return {"timings": None, "preempted_us": 0, "arrival_us": 0, **times, **known}


def test_a_request_that_was_never_scheduled_has_no_queue_time() -> None:
    assert partial_timings(folded())["queue_us"] is None


def test_ttft_is_queue_and_prefill() -> None:
    partial = partial_timings(folded(scheduled_us=2, first_token_us=3))
    assert (partial["queue_us"], partial["prefill_us"], partial["ttft_us"]) == (2, 1, 3)
    assert partial["tpot_us"] is None


def test_a_finished_request_has_its_engines_timings() -> None:
    final = timings(queue_us=2, ttft_us=3)
    assert partial_timings({**folded(scheduled_us=9), "timings": final}) == final


def test_ingress_ttft_and_egress_are_what_the_client_saw() -> None:
    entry = Entry(id="R1", engine="main", read_at=10.0)
    entry.first_token_at, entry.written_at = 10.5, 10.52
    share = app_share(entry, 400_000)
    assert share == {"ingress_us": 100_000, "egress_us": 20_000}
    assert share["ingress_us"] + 400_000 + share["egress_us"] == round((10.52 - 10.0) * 1e6)


def test_without_a_first_token_there_is_no_share() -> None:
    assert app_share(Entry(id="R1", engine="main", read_at=10.0), None) == {"ingress_us": None, "egress_us": None}


def test_an_unfinished_request_has_undefined_timings() -> None:
    told = timings_of(Entry(id="R1", engine="main"))
    assert told["request"] == "R1"
    assert told["ttft_us"] is None
