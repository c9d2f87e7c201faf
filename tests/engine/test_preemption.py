"""Preemption by recompute: who goes, what it keeps, when it returns, and that its answer stays one answer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import events
from engine.request import FinishReason, Request
from tests.engine.harness import Harness
from tests.engine.paged import cold_answer, paged_engine, prompt_of


def crowded(**config) -> tuple[Harness, list[Request]]:
    """Four requests of 40 and 90 tokens in 12 blocks of 16: their prompts fit together, their answers do not."""
    engine = paged_engine(num_blocks=12, watermark=0.0, **config)
    return engine, [engine.add(prompt_of(40, seed=seed), max_tokens=90) for seed in range(4)]


def tight() -> tuple[Harness, Request, Request]:
    """Two requests that fill four blocks between them; the next step takes the second one's."""
    engine = paged_engine(num_blocks=4, watermark=0.0, enable_prefix_caching=False)
    first, second = engine.add(prompt_of(30), max_tokens=20), engine.add(prompt_of(20, seed=1), max_tokens=20)
    for _ in range(3):
        engine.step()
    assert (first.num_tokens, second.num_tokens) == (33, 23)
    return engine, first, second


def test_the_last_running_request_is_the_victim():
    engine, first, second = tight()
    engine.step()
    (facts,) = engine.runner.outputs[-1].preempted
    assert facts.request is second
    assert facts.by == first.request_id


def test_a_victim_gives_back_its_blocks_and_its_slot():
    engine, _, second = tight()
    engine.step()
    assert (second.block_table, second.slot, second.num_computed_tokens) == ([], None, 0)
    assert engine.scheduler.problems() == []


def test_a_victim_keeps_the_tokens_it_has_generated():
    engine, _, second = tight()
    tokens = list(second.token_ids)
    engine.step()
    assert second.token_ids == tokens


def test_a_victim_returns_to_the_head_of_the_queue():
    """A42: the order is that of arrival, and preempted work does not lose its place."""
    engine, _, second = tight()
    later = engine.add("z")
    engine.step()
    assert engine.scheduler.waiting == [second, later]


def test_two_victims_of_one_step_wait_in_the_order_of_their_arrival():
    engine = paged_engine(num_blocks=5, watermark=0.0, enable_prefix_caching=False)
    first, second, third = [
        engine.add(prompt_of(size, seed=seed), max_tokens=9) for seed, size in enumerate((32, 32, 10))
    ]
    engine.step()
    engine.step()  # the first takes the block of the third, the second finds nobody behind it
    assert engine.scheduler.running == [first]
    assert engine.scheduler.waiting == [second, third]


def test_a_step_that_preempted_admits_nobody():
    engine, _, second = tight()
    small = engine.add("z")
    engine.step()
    output = engine.runner.outputs[-1]
    assert output.admitted == []
    assert output.ended_by == "after_preemption"
    assert [(r.request, r.code) for r in output.waiting] == [
        (second.request_id, "after_preemption"),
        (small.request_id, "behind_head"),
    ]


def test_a_preemption_says_what_it_cost_and_who_forced_it():
    engine, first, second = tight()
    lost = second.num_computed_tokens
    engine.step(us=500)
    (told,) = engine.of(events.Preempted)
    assert (told.request, told.by, told.needed, told.free) == (second.request_id, first.request_id, 1, 0)
    assert (told.num_lost_tokens, told.num_held_blocks, told.num_preemptions, told.at_us) == (lost, 2, 1, 500)
    assert engine.state()["totals"]["lost_tokens"] == lost


def test_a_request_that_is_the_last_preempts_itself_and_the_others_go_on():
    """A38: and it is in the queue only, not among the running."""
    engine = paged_engine(num_blocks=4, watermark=0.0, enable_prefix_caching=False)
    first, second = engine.add(prompt_of(20), max_tokens=40), engine.add(prompt_of(30, seed=1), max_tokens=20)
    while second.num_preemptions == 0:
        engine.step()
    (facts,) = engine.runner.outputs[-1].preempted
    assert facts.by == facts.request.request_id == second.request_id
    assert engine.scheduler.running == [first]
    assert engine.scheduler.waiting == [second]


def test_a_resumed_request_computes_its_answer_so_far_as_a_prompt():
    engine, first, second = tight()
    engine.step()
    engine.core.abort(first.request_id)
    engine.step()
    (row,) = engine.runner.outputs[-1].rows
    assert (row.request, row.num_computed_tokens, row.num_scheduled_tokens) == (second, 0, 23)
    (step,) = engine.of(events.Step)[-1:]
    assert [r.phase for r in step.rows] == ["prefill"]


def test_a_resumption_is_no_second_admission():
    engine, first, second = tight()
    engine.step()
    engine.core.abort(first.request_id)
    engine.step()
    admitted = [event.request for event in engine.of(events.Admitted)]
    assert admitted.count(second.request_id) == 1
    assert [event.request for event in engine.of(events.Resumed)] == [second.request_id]


def test_a_resumption_is_no_second_first_token():
    """A52: one record per request."""
    engine, _, second = tight()
    engine.run()
    first_tokens = [event.request for event in engine.of(events.FirstToken)]
    assert first_tokens.count(second.request_id) == 1
    assert [event.request for event in engine.of(events.Finished)].count(second.request_id) == 1


def test_preempted_time_is_the_sum_of_the_gaps():
    engine, first, second = tight()
    engine.step(us=100)  # preempted at 100
    engine.step(us=50)
    engine.core.abort(first.request_id)
    engine.step(us=250)  # resumed at 400
    assert second.preempted_us == 300


def test_a_preempted_request_can_be_aborted():
    engine, _, second = tight()
    engine.step()
    assert engine.core.abort(second.request_id)
    assert second.finish_reason is FinishReason.ABORT
    engine.run()
    engine.check()
    assert engine.scheduler.pool.counts().referenced == 0


@pytest.mark.parametrize("caching", [True, False])
def test_all_finish_although_the_pool_is_too_small_for_them(caching):
    """A36: nobody is recomputed for ever."""
    engine, requests = crowded(enable_prefix_caching=caching)
    engine.run(limit=1000)
    assert [r.num_output_tokens for r in requests] == [90] * 4
    assert sum(r.num_preemptions for r in requests) > 0
    engine.check()


def test_requests_whose_prompts_do_not_fit_together_take_turns():
    """A36: four of 100 and 60 tokens in 12 blocks are served one after the other, without a preemption."""
    engine = paged_engine(num_blocks=12)
    requests = [engine.add(prompt_of(100, seed=seed), max_tokens=60) for seed in range(4)]
    engine.run(limit=300)
    assert [(r.num_output_tokens, r.num_preemptions) for r in requests] == [(60, 0)] * 4


def test_the_oldest_request_moves_on_in_every_step():
    """A36: at least one request makes net progress in every step, so that all of them end."""
    engine, _ = crowded(max_num_batched_tokens=32)
    while engine.core.has_work:
        oldest = next(iter(engine.scheduler.requests.values()))
        before = oldest.num_computed_tokens
        engine.step()
        assert oldest.num_computed_tokens > before


def last_rows(engine: Harness):
    return engine.runner.outputs[-1].rows


def test_the_first_request_is_never_preempted():
    """A36: so the number of preemptions is bounded by those who came before."""
    engine, requests = crowded()
    engine.run()
    assert requests[0].num_preemptions == 0
    assert all(r.num_preemptions <= 8 for r in requests)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 60)), min_size=2, max_size=9),
    num_blocks=st.integers(6, 16),
    budget=st.integers(5, 100),
    max_num_seqs=st.integers(1, 5),
    caching=st.booleans(),
)
def test_between_two_preemptions_of_a_request_an_older_one_finishes(sizes, num_blocks, budget, max_num_seqs, caching):
    """A36: so nobody is preempted more often than there were older ones in slots beside it (benchmarks/lessons.py)."""
    engine = Harness(
        num_blocks=num_blocks,
        max_num_batched_tokens=budget,
        max_num_seqs=max_num_seqs,
        enable_prefix_caching=caching,
        watermark=0.0,
    )
    requests = [
        engine.add([seed, *prompt_of(length, seed=seed)], max_tokens=max_tokens)
        for seed, (length, max_tokens) in enumerate(sizes)
    ]
    older_ones: dict[str, set[str]] = {}  # of a preempted request: those alive when it was preempted
    while engine.core.has_work:
        alive = {request_id: request.order for request_id, request in engine.scheduler.requests.items()}
        engine.step()
        for facts in engine.runner.outputs[-1].preempted:
            now = {name for name, order in alive.items() if order < facts.request.order}
            before = older_ones.get(facts.request.request_id)
            assert before is None or now < before
            older_ones[facts.request.request_id] = now
    assert all(request.num_preemptions < max_num_seqs for request in requests)


def test_preemptions_are_shown_per_request():
    """A36."""
    engine, requests = crowded()
    engine.run()
    assert [r["num_preemptions"] for r in engine.state()["requests"].values()] == [r.num_preemptions for r in requests]


def test_the_engine_never_waits_with_nothing_running():
    """A37: an empty batch, free blocks and somebody waiting cannot be."""
    engine, _ = crowded()
    while engine.core.has_work:
        engine.step()
        assert last_rows(engine)


def test_the_answer_of_a_preempted_request_is_one_continuous_answer():
    """A39: nothing is repeated and nothing is missing in the text that a client has."""
    engine, requests = crowded()
    engine.run()
    assert any(r.num_preemptions for r in requests)
    for request in requests:
        assert request.output_token_ids == cold_answer(request)
        assert engine.text(request) == bytes(cold_answer(request)).decode()


def test_a_preemption_after_seven_streamed_tokens_does_not_show_in_the_text():
    """A39."""
    engine = paged_engine(num_blocks=4, watermark=0.0)
    # three blocks for the two prompts, and one left: the first takes it, and later needs another
    first, second = engine.add(prompt_of(26), max_tokens=30), engine.add(prompt_of(12, seed=1), max_tokens=30)
    while second.num_preemptions == 0:
        engine.step()
    assert second.num_output_tokens >= 7
    sent = engine.text(second)
    assert len(sent) == second.num_output_tokens
    engine.run()
    assert engine.text(second).startswith(sent)
    assert engine.text(second) == bytes(cold_answer(second)).decode()
    assert engine.text(first) == bytes(cold_answer(first)).decode()


# -- the whole kind: any schedule gives the same answers (K9) -----------------------------------------------------


@settings(max_examples=settings.default.max_examples // 2)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 90), st.integers(1, 40), st.integers(0, 2)), min_size=1, max_size=7),
    num_blocks=st.integers(6, 40),
    budget=st.integers(4, 100),
    max_num_seqs=st.integers(1, 4),
    caching=st.booleans(),
    watermark=st.sampled_from([0.0, 0.2]),
    gaps=st.lists(st.integers(0, 6), min_size=7, max_size=7),
)
def test_any_schedule_gives_the_same_answers(sizes, num_blocks, budget, max_num_seqs, caching, watermark, gaps):
    """A43: batch mates, chunk sizes, preemptions, a warm or a cold cache change no token."""
    engine = paged_engine(
        num_blocks=num_blocks,
        max_num_batched_tokens=budget,
        max_num_seqs=max_num_seqs,
        enable_prefix_caching=caching,
        watermark=watermark,
    )
    requests = []
    for (length, max_tokens, seed), gap in zip(sizes, gaps, strict=False):
        requests.append(engine.add(prompt_of(length, seed=seed), max_tokens=max_tokens))
        for _ in range(gap):
            if engine.core.has_work:
                engine.step()
    engine.run()
    for request in requests:
        assert request.output_token_ids == cold_answer(request)
        complete = request.num_output_tokens == request.max_tokens
        assert complete or request.finish_detail == "kv_capacity"
    engine.check()


@pytest.mark.parametrize("neighbours", [0, 1, 3, 7])
def test_neighbours_change_no_token(neighbours):
    """A43."""
    engine = paged_engine(num_blocks=64, max_num_seqs=8)
    request = engine.add(prompt_of(50), max_tokens=20)
    for seed in range(1, neighbours + 1):
        engine.add(prompt_of(10 * seed, seed=seed), max_tokens=10 + seed)
    engine.run()
    assert request.output_token_ids == cold_answer(request)
