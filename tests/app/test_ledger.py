"""The ledger: bounded, and honest about holes."""

from __future__ import annotations

import asyncio

from app.ledger import KEPT, PROMPT_SHOWN, TIMELINE_KEPT, Entry, Ledger


def text(request: str, offset: int, piece: str) -> dict[str, object]:
    return {"request": request, "offset": offset, "text": piece}


def ledger_with(*requests: str, owner: str | None = "me") -> Ledger:
    ledger = Ledger()
    for request in requests:
        ledger.open(Entry(id=request, engine="main", owner=owner))
    return ledger


def test_text_grows_by_what_is_new() -> None:
    ledger = ledger_with("R1")
    for offset, piece in ((0, "Hel"), (3, "lo"), (0, "Hello"), (4, "o!")):
        ledger.add_text(text("R1", offset, piece))
    assert ledger.entries["R1"].text == "Hello!"


def test_a_hole_loses_the_request() -> None:
    ledger = ledger_with("R1")
    ledger.add_text(text("R1", 1, "ello"))
    assert ledger.entries["R1"].lost


def test_pieces_for_viewers_are_joined_per_request() -> None:
    ledger = ledger_with("R1", "R2")
    for request, offset, piece in (("R1", 0, "a"), ("R2", 0, "x"), ("R1", 1, "b")):
        ledger.add_text(text(request, offset, piece))
    told = [(delta.request, delta.offset, delta.text) for delta in ledger.drain_deltas()]
    assert told == [("R1", 0, "ab"), ("R2", 0, "x")]
    assert ledger.drain_deltas() == []


def test_accepted_guesses_are_kept_once_with_the_text_they_wrote() -> None:
    ledger = ledger_with("R1")
    first, second = {"guessed": [[0, 1]]}, {"guessed": [[2, 0], [2, 1]]}
    for offset, piece, runs in ((0, "ab", first), (2, "cd", second), (0, "ab", first), (2, "cde", second)):
        ledger.add_text({**text("R1", offset, piece), **runs})
    (delta,) = ledger.drain_deltas()
    assert (delta.text, delta.guessed) == ("abcde", [[0, 1], [2, 0], [2, 1]])
    assert ledger.entries["R1"].guessed == delta.guessed


def test_what_each_token_wrote_is_kept_once_with_the_text() -> None:
    ledger = ledger_with("R1")
    for offset, piece, lengths in ((0, "ab", [1, 1]), (2, "cd", [0, 2]), (0, "ab", [1, 1])):
        ledger.add_text({**text("R1", offset, piece), "lengths": lengths})
    (delta,) = ledger.drain_deltas()
    assert delta.lengths == ledger.entries["R1"].lengths == [1, 1, 0, 2]


def test_only_the_owner_may_read_unless_everything_is_shared() -> None:
    ledger = ledger_with("R1")
    ledger.open(Entry(id="R2", engine="main", owner=None))
    assert [entry.id for entry in ledger.readable("me", everything=False)] == ["R1"]
    assert list(ledger.readable(None, everything=False)) == []
    assert [entry.id for entry in ledger.readable(None, everything=True)] == ["R1", "R2"]


def test_only_the_newest_requests_that_are_over_are_kept() -> None:
    ledger = ledger_with("live")
    for number in range(KEPT + 10):
        ledger.lose(ledger.open(Entry(id=f"R{number}", engine="main")), "why")
    assert len(ledger.entries) == KEPT + 1
    assert "live" in ledger.entries
    assert "R0" not in ledger.entries


def test_a_request_ends_once() -> None:
    ledger = ledger_with("R1")
    ledger.lose(ledger.entries["R1"], "first")
    ledger.lose(ledger.entries["R1"], "second")
    assert ledger.entries["R1"].lost == "first"
    assert len(ledger._over) == 1


def test_a_lost_request_whose_end_comes_after_all_takes_one_place() -> None:
    ledger = ledger_with("R1")
    ledger.lose(ledger.entries["R1"], "why")
    ledger.apply({"kind": "request", "event": "finished", "request": "R1", "engine": "main"}, now=0.0)
    assert len(ledger._over) == 1


def test_a_long_timeline_keeps_its_newest_part() -> None:
    ledger = ledger_with("R1")
    row = {"request": "R1", "phase": "decode", "scheduled": 1, "computed": 1, "out": 1}
    for step in range(TIMELINE_KEPT + 5):
        ledger.apply({"kind": "step", "step": step, "t": step, "rows": [row]}, now=0.0)
    assert len(ledger.entries["R1"].timeline()) == TIMELINE_KEPT
    assert ledger.entries["R1"].timeline()[-1]["step"] == TIMELINE_KEPT + 4


def test_a_prompt_is_cut_on_a_character() -> None:
    entry = Ledger().open(Entry(id="R1", engine="main", prompt="日" * (PROMPT_SHOWN + 1)))
    assert entry.prompt == "日" * PROMPT_SHOWN + "…"


def test_every_waiter_is_woken_by_a_change() -> None:
    async def check() -> None:
        ledger = ledger_with("R1")
        entry = ledger.entries["R1"]
        waiting = [asyncio.create_task(entry.change()) for _ in range(3)]
        await asyncio.sleep(0)
        ledger.add_text(text("R1", 0, "a"))
        await asyncio.wait_for(asyncio.gather(*waiting), 5)

    asyncio.run(check())
