"""Which characters of an answer were accepted guesses: said with the text, token by token."""

from __future__ import annotations

from engine import events
from engine.request import Request
from engine.scripted import EOS
from tests.engine.harness import Harness, scripted


def guesses(engine: Harness, request: Request) -> list[list[int]]:
    """What the text messages say was guessed."""
    sent = [event for event in engine.of(events.Text) if event.request == request.request_id]
    return [run for event in sent for run in event.guessed]


def answer_to(prompt: str, answer: bytes, **config: object) -> tuple[Harness, Request]:
    engine = Harness(scripted([*answer, EOS]), speculative="ngram:3", **config)
    request = engine.add(prompt, 200)
    engine.run()
    return engine, request


def test_each_accepted_guess_is_placed_in_the_answer() -> None:
    """The guess is what followed "abc" in the prompt: "def" three times right, and "f" right behind "gde"."""
    engine, request = answer_to("abcdef gdefh", b"abcdefz")
    assert engine.text(request) == "abcdefz"
    assert guesses(engine, request) == [[2, 1, 1, 1]]


def test_as_many_are_told_as_the_steps_accepted() -> None:
    engine, request = answer_to("abc " * 6, b"abc " * 20)
    accepted = [row.accepted for step in engine.of(events.Step) for row in step.rows if row.accepted]
    assert [len(lengths) for _, *lengths in guesses(engine, request)] == accepted
    assert sum(accepted) > 20


def test_a_character_of_several_tokens_is_of_the_one_that_completes_it() -> None:
    """A guess completes the first emoji; that of the other answer is completed by the model's own token."""
    engine, request = answer_to("a😀b", "xa😀b".encode())
    assert guesses(engine, request) == [[2, 0, 0, 1]]
    engine, request = answer_to("é😀b", "é😀!".encode())
    assert guesses(engine, request) == [[1, 0, 0, 0]]


def test_text_held_back_for_a_stop_string_is_of_the_token_that_wrote_it() -> None:
    engine = Harness(scripted([*b"abcdef", EOS]), speculative="ngram:3")
    request = engine.add("abcdef", 50, stop=("cdz",))
    engine.run()
    assert engine.text(request) == "abcdef"
    assert guesses(engine, request) == [[2, 1, 1, 1]]


def test_nothing_is_said_where_nothing_is_guessed() -> None:
    engine = Harness(scripted([*b"abcabcabc", EOS]))
    request = engine.add("abcabc", 50)
    engine.run()
    assert guesses(engine, request) == []


def test_guesses_that_complete_a_stop_string_wrote_what_is_left_of_the_text() -> None:
    """The wire takes no negative lengths. "c" is the model's own and held back; "def" are guesses, cut off with it."""
    engine = Harness(scripted([*b"abcdef", EOS]), speculative="ngram:3")
    request = engine.add("abcdef", 50, stop=("bcde",))
    engine.run()
    assert engine.text(request) == "a"
    assert guesses(engine, request) == [[1, 0, 0, 0]]


def test_a_guessed_end_wrote_nothing_but_is_one_of_the_guesses() -> None:
    engine = Harness(scripted([*b"ab", EOS]), speculative="ngram:3")
    request = engine.add([*b"ab", EOS, *b"x"], 50)
    engine.run()
    accepted = sum(row.accepted for step in engine.of(events.Step) for row in step.rows)
    assert (engine.text(request), accepted, guesses(engine, request)) == ("ab", 1, [[2, 0]])


def lengths(engine: Harness, request: Request) -> list[int]:
    """What the text messages say that each token wrote."""
    sent = [event for event in engine.of(events.Text) if event.request == request.request_id]
    assert [len(event.lengths) for event in sent] == [len(event.token_ids) for event in sent]
    return [length for event in sent for length in event.lengths]


def test_every_token_says_how_many_characters_it_wrote() -> None:
    """A character of four tokens is of the last one, and the end token writes nothing; guessed or not."""
    for guessing in ({}, {"speculative": "ngram:3"}):
        engine = Harness(scripted([*"a😀b".encode(), EOS]), **guessing)
        request = engine.add("a😀b", 50)
        engine.run()
        assert lengths(engine, request) == [1, 0, 0, 0, 1, 1, 0]


def test_what_a_stop_string_cuts_off_was_written_by_no_token() -> None:
    engine = Harness(scripted([*b"abcdef", EOS]))
    request = engine.add("x", 50, stop=("cd",))
    engine.run()
    assert engine.text(request) == "ab"
    assert sum(lengths(engine, request)[:2]) == 2
