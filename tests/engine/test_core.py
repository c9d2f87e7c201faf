"""EngineCore: one step, one event; what it says of requests; abort in every state; every block back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import events
from engine.request import FinishReason, Request, RequestStatus
from engine.scripted import EOS
from tests.engine.harness import Harness, letters, scripted, to_json


def kinds(engine: Harness, start: int = 0) -> list[str]:
    """The events since `start`, by name."""
    return [getattr(event, "event", event.kind) for event in engine.sink[start:]]


def referenced(engine: Harness) -> int:
    return engine.scheduler.pool.counts().referenced


# -- one step ----------------------------------------------------------------------------------------------------


def test_a_step_is_one_event():
    engine = Harness()
    engine.add("abc", max_tokens=5)
    assert engine.run() == 5
    assert [step.step for step in engine.of(events.Step)] == [1, 2, 3, 4, 5]


def test_the_events_of_a_step_come_in_the_order_in_which_they_fold():
    engine = Harness()
    engine.add("abc", max_tokens=1)
    before = len(engine.sink)
    engine.step()
    assert kinds(engine, before) == ["admitted", "step", "first_token", "text", "finished"]


def test_a_preemption_is_told_before_the_admissions_and_the_step():
    engine = Harness(num_blocks=4, watermark=0.0, enable_prefix_caching=False)
    engine.add("a" * 30, max_tokens=20)
    engine.add("b" * 20, max_tokens=20)
    for _ in range(3):
        engine.step()
    before = len(engine.sink)
    engine.step()
    assert kinds(engine, before)[:2] == ["preempted", "step"]


def test_a_step_names_every_request_it_served():
    engine = Harness()
    first = engine.add("a" * 20)
    engine.step()
    second = engine.add("b" * 30)
    engine.step()
    rows = engine.of(events.Step)[-1].rows
    assert [(r.request, r.slot, r.phase, r.scheduled, r.computed, r.out) for r in rows] == [
        (first.request_id, 0, "decode", 1, 21, 1),
        (second.request_id, 1, "prefill", 30, 30, 1),
    ]


def test_a_step_counts_prefill_and_decode_apart():
    engine = Harness()
    engine.add("a" * 20)
    engine.step()
    engine.add("b" * 30)
    engine.step()
    step = engine.of(events.Step)[-1]
    assert (step.num_scheduled_tokens, step.num_prefill_tokens, step.num_decode_tokens) == (31, 30, 1)
    assert step.token_budget == engine.config.max_num_batched_tokens


def test_a_step_says_which_blocks_were_appended_and_which_became_reusable():
    engine = Harness()
    request = engine.add("a" * 40)
    engine.step()
    (step,) = engine.of(events.Step)
    assert step.tables == [(request.request_id, [0, 1, 2])]
    assert [block for block, _ in step.hashed] == [0, 1]


def test_a_step_counts_the_blocks_of_its_finished_requests_as_returned():
    engine = Harness()
    engine.add("a" * 40, max_tokens=1)
    engine.step()
    (step,) = engine.of(events.Step)
    assert (step.blocks.referenced, step.blocks.cached_idle, step.blocks.total) == (0, 2, 32)


def test_a_step_names_the_next_victims():
    engine = Harness()
    engine.add("a" * 40)
    engine.step()
    assert engine.of(events.Step)[-1].victims == list(range(3, 3 + events.NUM_VICTIMS))


def test_the_cost_of_a_step_is_derived_from_its_rows():
    engine = Harness()
    engine.core.reporter._cost = lambda rows: (len(rows), 7)
    engine.add("abc")
    engine.step()
    assert (engine.of(events.Step)[0].flops, engine.of(events.Step)[0].bytes) == (1, 7)


def test_without_anybody_listening_no_step_event_is_put_together():
    """Rule 3: detached cost is one branch."""
    engine = Harness()
    engine.core.emitter._sink = None
    engine.core.reporter._cost = lambda rows: 1 // 0
    engine.add("abc", max_tokens=3)
    assert engine.run() == 3


# -- the life of a request ---------------------------------------------------------------------------------------


def test_arrived_says_all_that_a_simulator_needs_and_no_text():
    engine = Harness()
    request = engine.add("a" * 40, max_tokens=3, stop=("secret",))
    (arrived,) = engine.of(events.Arrived)
    assert (arrived.num_prompt_tokens, arrived.max_tokens, arrived.arrival_us) == (40, 3, 0)
    assert arrived.block_hashes == request.block_hashes
    assert len(arrived.block_hashes) == 2
    assert arrived.sampling["num_stop_strings"] == 1
    assert "secret" not in str(to_json(arrived))


def test_two_batches_in_a_row_each_return_all_their_own_answers_in_order():
    """A76."""
    engine = Harness()
    for batch in ("abc", "abcd"):
        requests = [engine.add(letter * 20, max_tokens=5) for letter in batch]
        engine.run()
        for request in requests:
            assert engine.text(request) == bytes(letters(request, i) for i in range(5)).decode()
        ended = [event.request for event in engine.of(events.Finished)][-len(batch) :]
        assert ended == [r.request_id for r in requests]
        engine.check()


def test_the_same_script_gives_the_same_text_streamed_or_at_once():
    """A6."""
    engine = Harness(scripted(list("Grüße, 世界! 😀".encode())))
    request = engine.add("x", max_tokens=50)
    engine.run()
    assert engine.text(request) == "Grüße, 世界! 😀"
    assert request.output_token_ids[-1] == EOS


def test_text_grows_by_one_delta_per_step():
    """A3."""
    engine = Harness()
    engine.add("x", max_tokens=6)
    engine.run()
    assert [len(event.text) for event in engine.of(events.Text)] == [1, 1, 1, 1, 1, 1]


def test_a_refused_request_leaves_no_trace_but_its_rejection():
    """A34."""
    engine = Harness(max_queue=1, start_paused=True)
    engine.add("a")
    refused = engine.request("b")
    message = engine.core.add(refused)
    (rejected,) = engine.of(events.Rejected)
    assert (rejected.request, rejected.status, rejected.message) == (refused.request_id, 429, message)
    assert refused.request_id not in engine.state()["requests"]
    engine.check()


def test_a_queue_of_eight_takes_eight_of_fifty_and_serves_them_all():
    """A59: the others are told at once, and counted."""
    engine = Harness(max_queue=8)
    requests = [engine.request(chr(ord("a") + i % 26) * 5, max_tokens=3) for i in range(50)]
    refused = [r for r in requests if engine.core.add(r) is not None]
    assert len(refused) == len(engine.of(events.Rejected)) == engine.state()["totals"]["rejected"] == 42
    engine.run()
    assert sum(r.status is RequestStatus.FINISHED for r in requests) == 8
    engine.check()


# -- abort -------------------------------------------------------------------------------------------------------


def test_a_request_that_was_never_scheduled_is_aborted_with_nothing_to_give_back():
    """A32."""
    engine = Harness()
    request = engine.add("abc")
    assert engine.core.abort(request.request_id)
    assert (request.finish_reason, request.num_computed_tokens, request.block_table) == (FinishReason.ABORT, 0, [])
    assert not engine.core.has_work
    engine.check()


@pytest.mark.parametrize("steps", range(9))
def test_a_long_prompt_can_be_aborted_after_any_chunk(steps):
    """A31: and a second clean-up finds nothing to do."""
    engine = Harness(max_num_batched_tokens=16)
    request, other = engine.add("x" * 100), engine.add("y" * 30, max_tokens=2)
    for _ in range(steps):
        engine.step()
    assert engine.core.abort(request.request_id)
    assert not engine.core.abort(request.request_id)
    assert [event.request for event in engine.of(events.Finished)].count(request.request_id) == 1
    engine.check()
    engine.run()
    assert other.num_output_tokens == 2
    assert referenced(engine) == 0


def test_aborting_twice_is_aborting_once():
    engine = Harness()
    request = engine.add("abc")
    engine.step()
    assert engine.core.abort(request.request_id)
    assert not engine.core.abort(request.request_id)
    assert len(engine.of(events.Finished)) == 1


def test_a_finished_request_cannot_be_aborted():
    engine = Harness()
    request = engine.add("abc", max_tokens=1)
    engine.run()
    assert not engine.core.abort(request.request_id)
    assert request.finish_reason is FinishReason.LENGTH


def test_an_unknown_request_cannot_be_aborted():
    assert not Harness().core.abort("nobody")


def test_an_abort_sends_the_text_that_was_held_back_and_then_the_end():
    engine = Harness(scripted(list(b"abzz")))
    request = engine.add("x", stop=("zzzz",))
    for _ in range(4):
        engine.step()
    assert engine.text(request) == "ab"
    engine.core.abort(request.request_id)
    assert engine.text(request) == "abzz"
    assert kinds(engine)[-2:] == ["text", "finished"]


def test_all_gauges_fall_to_zero_when_everybody_is_aborted_while_no_step_runs():
    """A54: the state that a reader has says so at once, not with the next step."""
    engine = Harness()
    requests = [engine.add(letter * 50) for letter in "abcdef"]
    engine.step()
    engine.gate("pause")
    for request in requests:
        engine.core.abort(request.request_id)
    known = engine.folded()
    assert known["queues"] == {"waiting": [], "running": []}
    assert known["blocks"]["counts"]["referenced"] == 0
    assert known["totals"]["finished"]["abort"] == 6
    engine.check()


def test_two_hundred_streams_closed_after_one_piece_give_every_block_back():
    """A30: and each is counted once as aborted."""
    engine = Harness(max_num_seqs=8, num_blocks=64, max_queue=1000)
    start = engine.scheduler.pool.counts().referenced
    live = [engine.add(chr(ord("a") + i % 26) * (10 + i % 40), max_tokens=50) for i in range(200)]
    while engine.core.has_work:
        engine.step()
        for request in [r for r in live if r.num_output_tokens and r.status is RequestStatus.RUNNING]:
            assert engine.core.abort(request.request_id)
    assert referenced(engine) == start
    assert engine.state()["totals"]["finished"] == {"stop": 0, "length": 0, "abort": 200, "error": 0}
    engine.check()


@settings(max_examples=settings.default.max_examples // 2)
@given(st.data())
def test_an_abort_works_with_every_option_on(data):
    """A35: there are no logprobs to be on (tests/app/test_bodies.py says so); everything else is."""
    engine = Harness(num_blocks=8, watermark=0.0, max_num_batched_tokens=16, speculative="ngram:3")
    params = {"stop": ("qq", "zzzz"), "stop_token_ids": (120,), "ignore_eos": True}
    requests: list[Request] = [engine.add(letter * 40, max_tokens=60, **params) for letter in "abc"]
    for request in data.draw(st.permutations(requests)):
        for _ in range(data.draw(st.integers(0, 12))):
            if engine.core.has_work:
                engine.step()
        engine.core.abort(request.request_id)
        engine.check()
    assert referenced(engine) == 0


# -- the engine's own end ----------------------------------------------------------------------------------------


def test_when_the_engine_cannot_go_on_every_live_request_ends_with_an_error():
    """A33."""
    engine = Harness(max_num_seqs=1)
    running, waiting = engine.add("abc"), engine.add("def")
    engine.step()
    engine.core.fail_all("engine_error")
    ended = [(event.request, event.reason, event.detail) for event in engine.of(events.Finished)]
    assert sorted(ended) == [
        (running.request_id, "error", "engine_error"),
        (waiting.request_id, "error", "engine_error"),
    ]
    assert referenced(engine) == 0
    engine.check()


def test_a_step_that_fails_leaves_an_engine_that_can_still_end_its_requests():
    engine = Harness()
    request = engine.add("abc")
    engine.step()
    engine.runner.forward = lambda batch: 1 // 0
    with pytest.raises(ZeroDivisionError):
        engine.core.step()
    engine.core.fail_all("engine_error")
    assert request.finish_reason is FinishReason.ERROR
    assert engine.scheduler.problems() == []


# -- what is kept ------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_number_of_requests_served():
    """A75: what is remembered of the finished is bounded."""
    engine = Harness()

    def kept() -> tuple[int, ...]:
        core, record = engine.core, engine.core.reporter.record
        return (
            len(core.text._answers),
            len(core.scheduler.requests),
            len(record.reasons),
            len(record.finished),
            len(engine.state()["requests"]),
        )

    sizes = []
    for _ in range(3):
        for _ in range(40):
            engine.add("abc", max_tokens=1)
            engine.run()
        sizes.append(kept())
    assert sizes == [(0, 0, 0, events.FINISHED_KEPT, events.FINISHED_KEPT)] * 3


def test_the_whole_state_says_what_the_events_said():
    engine = Harness(num_blocks=8, watermark=0.0, max_num_batched_tokens=24)
    for letter in "abc":
        engine.add(letter * 30, max_tokens=30)
    while engine.core.has_work:
        engine.step(us=3)
        engine.check()


def test_an_idle_engine_is_back_where_it_started():
    """METRICS: usage returns to the start value."""
    engine = Harness()
    before = engine.state()["blocks"]["counts"]
    for letter in "abcd":
        engine.add(letter * 10, max_tokens=3)  # not one full block, so nothing is cached
    engine.run()
    assert engine.state()["blocks"]["counts"] == before


@pytest.mark.parametrize(("min_tokens", "expected"), [(0, 3), (2, 3), (3, 7), (6, 7), (7, 8)])
def test_an_end_token_counts_only_after_min_tokens(min_tokens: int, expected: int):
    """An answer of min_tokens is not ended: the end token has to be one more."""
    engine = Harness(scripted([97, 97, EOS, 97, 97, 97, EOS, 97, 97]))
    request = engine.add("x", 8, min_tokens=min_tokens)
    engine.run()
    assert request.num_output_tokens == expected


def test_a_stop_string_before_min_tokens_is_text():
    engine = Harness(scripted(list(b"one stop two stop three")))
    request = engine.add("x", 40, stop=("stop",), min_tokens=10)
    engine.run()
    assert engine.text(request) == "one stop two "
    assert request.finish_detail == "stop_string"


def test_text_held_for_a_stop_string_is_sent_when_it_may_not_stop():
    engine = Harness(scripted(list(b"one stop")))
    request = engine.add("x", 40, stop=("stop",), min_tokens=30)
    engine.run()
    assert engine.text(request) == "one stop"


def test_a_stop_string_begun_before_min_tokens_and_completed_after_ends_the_answer():
    engine = Harness(scripted(list(b"one stop two")))
    request = engine.add("x", 40, stop=("stop",), min_tokens=6)
    engine.run()
    assert (engine.text(request), request.finish_detail) == ("one ", "stop_string")


def test_a_stop_string_within_the_beginning_of_another_counts_only_where_it_was_completed():
    engine = Harness(scripted(list(b"abx")))
    request = engine.add("x", 3, stop=("b", "abc"), min_tokens=2)
    engine.run()
    assert (engine.text(request), request.finish_detail) == ("abx", "max_tokens")
