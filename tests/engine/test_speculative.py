"""Guesses change how fast an answer comes, never what it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import events
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.request import Request
from engine.scripted import EOS
from engine.speculative import NgramProposer
from tests.engine.harness import Harness, scripted

LOOP = [5, 6, 7, 8] * 12


def request(tokens: list[int]) -> Request:
    return Harness().request(tokens)


@pytest.mark.parametrize(
    ("tokens", "guess"),
    [
        ([1, 2, 3, 9, 9, 1, 2, 3], [9, 9, 1]),
        ([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], [8, 1, 2]),  # the latest occurrence counts
        ([4, 2, 3, 7, 5, 2, 3], [7, 5, 2]),  # two tokens are enough
        ([1, 2, 3], []),
        ([1], []),
        ([1, 1, 1], [1]),
    ],
)
def test_the_guess_is_what_followed_the_last_time(tokens, guess):
    assert NgramProposer(3).propose(request(tokens)) == guess


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 6))
def test_the_guess_stood_behind_the_same_tokens_before(tokens, count):
    guess = NgramProposer(count).propose(request(tokens))
    if guess:
        found = [at for at in range(2, len(tokens)) if tokens[at - 2 : at] == tokens[-2:]]
        assert any(tokens[at : at + count] == guess for at in found)


def test_a_repetitive_answer_takes_fewer_steps_and_is_the_same():
    plain, guessing = Harness(scripted(LOOP)), Harness(scripted(LOOP), speculative="ngram:4")
    answers, steps = [], []
    for engine in (plain, guessing):
        answer = engine.add("hello", 48)
        steps.append(engine.run())
        answers.append(answer.output_token_ids)
        engine.check()
    assert answers[0] == answers[1] == LOOP
    assert steps[1] * 2 < steps[0]


def test_a_wrong_guess_costs_nothing_but_the_try():
    """A46: the first guess is checked like any other."""
    engine = Harness(scripted([9, 8, 7, 6, 5]), speculative="ngram:3")
    answer = engine.add([1, 9, 3, 1, 9, 3, 1], 5)
    engine.run()
    assert answer.output_token_ids == [9, 8, 7, 6, 5]


def test_guesses_are_accepted_or_rejected_and_none_is_lost():
    """A47."""
    engine = Harness(scripted([*LOOP[:10], EOS]), speculative="ngram:5")
    answer = engine.add("x", 40)
    engine.run()
    rows = [row for step in engine.of(events.Step) for row in step.rows]
    assert sum(row.out for row in rows) == answer.num_output_tokens == 11
    assert all(0 <= row.accepted <= row.drafted for row in rows)
    assert all(row.scheduled == 1 + row.drafted for row in rows if row.phase == "decode")
    assert answer.finish_reason.value == "stop"


def told(engine: Harness) -> tuple[int, int]:
    """(drafted, accepted) over all steps so far."""
    rows = [row for step in engine.of(events.Step) for row in step.rows]
    return sum(row.drafted for row in rows), sum(row.accepted for row in rows)


def test_a_guess_that_ends_the_answer_counts_as_accepted():
    """A47: a conversation holds end tokens, so they are guessed; behind 7, 8 stood EOS, 2, 8."""
    engine = Harness(scripted([7, 8, EOS]), speculative="ngram:3")
    answer = engine.add([7, 8, EOS, 1, 7, 8, EOS, 2, 8], 40)
    engine.run()
    assert (answer.output_token_ids, answer.finish_reason.value) == ([7, 8, EOS], "stop")
    assert told(engine) == (3, 1)
    engine.check()


def test_a_guess_that_completes_a_stop_string_counts_as_accepted():
    """A47: behind ab stood cdX, of which cd is right and completes the stop string."""
    engine = Harness(scripted([*b"abcdef"]), speculative="ngram:3")
    answer = engine.add("abcdXYZ", 40, stop=("cd",))
    engine.run()
    assert (engine.text(answer), answer.output_token_ids) == ("ab", [*b"abcd"])
    assert told(engine) == (3, 2)
    engine.check()


def test_every_guess_is_either_accepted_or_thrown_away():
    """A47: accepted and rejected ones are all that were drafted, none is padding."""
    engine = Harness(scripted([*LOOP[:9], 1, 1, *LOOP[:9]]), speculative="ngram:4")
    answer = engine.add([5, 6, 7], 40)
    engine.run()
    drafted, accepted = told(engine)
    scheduled = sum(step.num_decode_tokens for step in engine.of(events.Step))
    steps = sum(row.phase == "decode" for step in engine.of(events.Step) for row in step.rows)
    assert scheduled == steps + drafted
    assert answer.num_output_tokens == 1 + steps + accepted  # each decode gives one token beside the right guesses
    assert 0 < accepted < drafted


def test_max_tokens_is_kept():
    for max_tokens in range(1, 12):
        engine = Harness(scripted(LOOP), speculative="ngram:6")
        answer = engine.add("x", max_tokens)
        engine.run()
        assert answer.num_output_tokens == max_tokens


def test_guesses_count_against_the_budget():
    engine = Harness(scripted(LOOP), speculative="ngram:8", max_num_seqs=2, max_num_batched_tokens=6)
    for _ in range(2):
        engine.add("x", 40)
    engine.run()
    assert max(step.num_scheduled_tokens for step in engine.of(events.Step)) == 6


@pytest.mark.parametrize(("num_blocks", "guesses"), [(4, 0), (5, 3)])
def test_nobody_is_preempted_for_a_guess(num_blocks: int, guesses: int):
    """Guesses of the first one would need one block more, and the next token of the second one does need it."""
    engine = Harness(num_blocks=num_blocks, block_size=4, watermark=0.0)
    first, second = engine.add("abcdef", 8), engine.add("wxyz", 8)
    engine.step()
    engine.scheduler.propose = lambda request: [1, 2, 3] if request is first else []
    engine.step()
    assert [len(row.draft_token_ids) for row in engine.runner.outputs[-1].rows] == [guesses, 0]
    assert (first.num_output_tokens, second.num_output_tokens) == (2, 2)
    assert engine.of(events.Preempted) == []


@pytest.mark.parametrize("text", ["ngram", "ngram:0", "ngram:17", "ngram:x", "magic:3", ""])
def test_a_flag_that_makes_no_sense_is_refused(text):
    with pytest.raises(ConfigError, match="--speculative"):
        EngineConfig(speculative=text)
