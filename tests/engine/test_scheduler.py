"""The scheduler's decisions: who is handed how many tokens, who is admitted, who waits and for what."""

import pytest

from engine.config import EngineConfig
from engine.request import FinishReason, Request, RequestStatus
from engine.scheduler import Scheduler
from tests.engine.harness import Harness


def last_step(engine: Harness) -> dict[str, int]:
    """Tokens handed out in the last step, by request."""
    return {row.request.request_id: row.num_scheduled_tokens for row in engine.runner.outputs[-1].rows}


def reasons(engine: Harness) -> dict[str, str]:
    return {reason.request: reason.code for reason in engine.runner.outputs[-1].waiting}


# -- tokens ------------------------------------------------------------------------------------------------------


def test_a_short_prompt_is_computed_in_one_step_and_then_decodes_one_token_a_step():
    engine = Harness()
    request = engine.add("x" * 20)
    engine.step()
    assert last_step(engine) == {request.request_id: 20}
    engine.step()
    assert last_step(engine) == {request.request_id: 1}


def test_a_long_prompt_is_computed_in_chunks_of_the_budget():
    engine = Harness(max_num_batched_tokens=32)
    request = engine.add("x" * 70, max_tokens=1)
    sizes = []
    while engine.core.has_work:
        engine.step()
        sizes.append(last_step(engine)[request.request_id])
    assert sizes == [32, 32, 6]


def test_only_the_chunk_that_ends_the_prompt_yields_a_token():
    engine = Harness(max_num_batched_tokens=32)
    request = engine.add("x" * 33)
    engine.step()
    assert request.num_output_tokens == 0
    engine.step()
    assert request.num_output_tokens == 1


def test_decodes_and_a_prefill_share_a_step():
    engine = Harness()
    first = engine.add("x" * 20)
    engine.step()
    second = engine.add("y" * 30)
    engine.step()
    assert last_step(engine) == {first.request_id: 1, second.request_id: 30}


def test_a_prompt_is_begun_with_what_the_decodes_leave_of_the_budget():
    engine = Harness(max_num_batched_tokens=16)
    first = engine.add("x" * 4)
    engine.step()
    second, third = engine.add("y" * 100), engine.add("z")
    engine.step()
    assert last_step(engine) == {first.request_id: 1, second.request_id: 15}
    assert reasons(engine) == {third.request_id: "budget_spent"}


def test_a_chunk_leaves_one_token_for_each_running_request_behind_it():
    engine = Harness(max_num_batched_tokens=16)
    first, second = engine.add("x" * 4), engine.add("y" * 100)
    engine.step()
    engine.scheduler.running.reverse()  # as a policy other than first come, first served may order them
    engine.step()
    assert last_step(engine) == {second.request_id: 15, first.request_id: 1}


def test_a_running_prefill_never_starves_the_decodes_behind_it():
    engine = Harness(max_num_batched_tokens=8, max_num_seqs=3, enable_prefix_caching=False)
    requests = [engine.add(letter * 40, max_tokens=4) for letter in "ab"]
    while engine.core.has_work:
        running = [r.request_id for r in engine.scheduler.running]
        engine.step()
        assert set(running) <= set(last_step(engine))
    assert all(r.num_output_tokens == 4 for r in requests)


def test_with_a_budget_of_exactly_the_slots_everybody_still_moves():
    engine = Harness(max_num_batched_tokens=4, max_num_seqs=4)
    requests = [engine.add(letter * 9, max_tokens=3) for letter in "abcd"]
    engine.run()
    assert [r.num_output_tokens for r in requests] == [3] * 4


def test_without_chunked_prefill_the_whole_remainder_goes_in_one_step_beside_the_decodes():
    engine = Harness(
        enable_chunked_prefill=False, max_num_batched_tokens=64, max_model_len=64, enable_prefix_caching=False
    )
    first = engine.add("a" * 10, max_tokens=20)
    engine.step()
    second = engine.add("b" * 60, max_tokens=3)
    engine.step()
    assert last_step(engine) == {first.request_id: 1, second.request_id: 60}


def test_without_chunked_prefill_a_prompt_above_the_rest_of_the_budget_waits():
    engine = Harness(enable_chunked_prefill=False, max_num_batched_tokens=64, max_model_len=64)
    first, second = engine.add("a" * 40, max_tokens=3), engine.add("b" * 40, max_tokens=3)
    engine.step()
    assert last_step(engine) == {first.request_id: 40}
    assert reasons(engine) == {second.request_id: "budget_spent"}


def test_without_chunked_prefill_a_cached_prefix_is_not_counted_against_the_budget():
    engine = Harness(enable_chunked_prefill=False, max_num_batched_tokens=64, max_model_len=64)
    engine.add("a" * 60, max_tokens=1)
    engine.run()
    first, second = engine.add("b" * 40, max_tokens=3), engine.add("a" * 60, max_tokens=1)
    engine.step()
    assert last_step(engine) == {first.request_id: 40, second.request_id: 12}


# -- order and slots ---------------------------------------------------------------------------------------------


def test_requests_are_admitted_in_the_order_of_their_arrival():
    engine = Harness(max_num_seqs=2)
    requests = [engine.add(letter, max_tokens=2) for letter in "abcd"]
    engine.step()
    assert engine.scheduler.running == requests[:2]
    assert engine.scheduler.waiting == requests[2:]


def test_a_request_keeps_its_slot_while_it_runs():
    engine = Harness(max_num_seqs=2)
    first, second = engine.add("a", max_tokens=2), engine.add("b", max_tokens=9)
    engine.step()
    assert (first.slot, second.slot) == (0, 1)
    engine.step()
    assert (first.slot, second.slot) == (None, 1)


def test_a_free_slot_is_given_to_the_next_request():
    engine = Harness(max_num_seqs=2)
    engine.add("a", max_tokens=1)
    engine.add("b", max_tokens=9)
    third = engine.add("c", max_tokens=9)
    engine.step()
    engine.step()
    assert third.slot == 0


def test_a_full_batch_holds_the_queue_and_says_so():
    engine = Harness(max_num_seqs=1)
    _, head, behind = [engine.add(letter) for letter in "abc"]
    engine.step()
    output = engine.runner.outputs[-1]
    assert output.ended_by == "slots_full"
    assert [(r.request, r.code, r.limit, r.by) for r in output.waiting] == [
        (head.request_id, "slots_full", 1, None),
        (behind.request_id, "behind_head", None, head.request_id),
    ]


def test_the_head_of_the_queue_is_not_overtaken_by_a_smaller_request():
    engine = Harness(num_blocks=8, watermark=0.0)
    engine.add("a" * 60)
    head, small = engine.add("b" * 80), engine.add("c")
    engine.step()
    assert reasons(engine) == {head.request_id: "blocks_short", small.request_id: "behind_head"}


def test_nothing_waiting_means_that_all_was_scheduled():
    engine = Harness()
    engine.add("a")
    engine.step()
    assert engine.runner.outputs[-1].ended_by == "all_scheduled"


def test_a_chunk_cut_by_the_budget_says_that_it_was():
    engine = Harness(max_num_batched_tokens=32)
    engine.add("a" * 40)
    engine.step()
    assert engine.runner.outputs[-1].ended_by == "budget_spent"


# -- the admission gate ------------------------------------------------------------------------------------------


def test_the_blocks_of_the_whole_prompt_are_allocated_at_admission():
    engine = Harness(max_num_batched_tokens=16)
    request = engine.add("x" * 100)
    engine.step()
    assert request.num_computed_tokens == 16
    assert len(request.block_table) == 7


def test_a_request_whose_prompt_does_not_fit_the_free_blocks_waits_and_says_how_many_it_needs():
    engine = Harness(num_blocks=10, watermark=0.0)
    engine.add("a" * 90)
    request = engine.add("b" * 70)
    engine.step()
    (reason,) = engine.runner.outputs[-1].waiting
    assert (reason.request, reason.code, reason.needs, reason.free) == (request.request_id, "blocks_short", 5, 4)


def test_a_watermark_is_kept_free_while_something_runs():
    engine = Harness(num_blocks=20, watermark=0.1)
    engine.add("a" * 160)
    request = engine.add("b" * 144)  # nine of the ten blocks left, of which two are to stay free
    engine.step()
    assert reasons(engine) == {request.request_id: "blocks_short"}


def test_the_watermark_is_waived_when_nothing_runs():
    """A37: else a prompt that needs the whole pool would wait for ever."""
    engine = Harness(num_blocks=20, watermark=0.4)
    request = engine.add("a" * 320, max_tokens=1)
    engine.run()
    assert request.num_output_tokens == 1


def test_idle_cache_hits_count_as_consumed_at_admission():
    engine = Harness(num_blocks=8, watermark=0.0)
    engine.add("p" * 64, max_tokens=1)
    engine.run()  # four blocks are cached idle now
    engine.add("q" * 48, max_tokens=20)  # three more are referenced: one free, four idle
    engine.step()
    request = engine.add("p" * 64 + "r" * 32)  # hits four idle ones, needs two more: only one is left
    engine.step()
    (reason,) = engine.runner.outputs[-1].waiting
    assert (reason.request, reason.code, reason.needs) == (request.request_id, "blocks_short", 2)
    engine.check()


def test_referenced_cache_hits_cost_no_block_at_admission():
    engine = Harness(num_blocks=8, watermark=0.0)
    engine.add("p" * 96, max_tokens=16)
    engine.step()
    request = engine.add("p" * 96 + "q", max_tokens=2)
    engine.step()
    assert request.status is RequestStatus.RUNNING
    assert len(request.block_table) == 7


# -- endings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_tokens", [1, 5, 20])
def test_max_tokens_is_exact(max_tokens):
    """A10, A11: N is N, and the reason is length."""
    engine = Harness()
    request = engine.add("abc", max_tokens=max_tokens)
    engine.run()
    assert request.num_output_tokens == max_tokens
    assert (request.finish_reason, request.finish_detail) == (FinishReason.LENGTH, "max_tokens")


def test_a_stop_token_on_the_last_allowed_token_is_a_stop():
    """A11: reaching the limit with the end token is an end, not a limit."""
    engine = Harness(lambda request, index: 300 if index == 2 else 97)
    request = engine.add("abc", max_tokens=3, stop_token_ids=(300,))
    engine.run()
    assert request.num_output_tokens == 3
    assert request.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(("ignore_eos", "count", "reason"), [(True, 5, "length"), (False, 2, "stop")])
def test_ignore_eos_ignores_every_end_token_of_the_model(ignore_eos, count, reason):
    """A8: with the end tokens 2 and 7, the output 5, 7, 2, 5, 2 ends at 7 unless ignore_eos."""
    engine = Harness(lambda request, index: [5, 7, 2, 5, 2][index])
    request = engine.request("abc", max_tokens=5, ignore_eos=ignore_eos)
    request.stop_token_ids = frozenset() if ignore_eos else frozenset({2, 7})
    engine.core.add(request)
    engine.run()
    assert (request.num_output_tokens, request.finish_reason.value) == (count, reason)


def test_a_request_that_fills_the_context_says_so():
    engine = Harness(max_model_len=32)
    request = engine.add("a" * 30, max_tokens=2)
    engine.run()
    assert (request.num_tokens, request.finish_detail) == (32, "max_model_len")


def test_a_request_that_outgrows_the_whole_pool_ends_with_what_it_has():
    """A13: prompt 100 and max_tokens 100 over 8 blocks of 16 ends as length, and never loops."""
    engine = Harness(num_blocks=8, max_model_len=1024)
    request = engine.add("a" * 100, max_tokens=100)
    assert engine.run() == 29
    assert (request.finish_reason, request.finish_detail) == (FinishReason.LENGTH, "kv_capacity")
    assert request.num_tokens == 8 * 16 + 1  # the last token's KV would have been the first too many
    engine.check()


def test_a_request_that_outgrows_the_pool_does_not_hold_up_the_others():
    """A13."""
    engine = Harness(num_blocks=8, max_model_len=1024)
    greedy_one, small = engine.add("a" * 100, max_tokens=500), engine.add("hello", max_tokens=3)
    engine.run()
    assert greedy_one.finish_detail == "kv_capacity"
    assert small.num_output_tokens == 3


def test_a_prompt_that_just_fits_the_pool_is_answered_with_one_token():
    engine = Harness(num_blocks=8, max_model_len=1024)
    request = engine.add("a" * 128, max_tokens=9)
    engine.run()
    assert (request.num_output_tokens, request.finish_detail) == (1, "kv_capacity")


def test_finishing_twice_is_finishing_once():
    """K6: one finish path, idempotent."""
    engine = Harness()
    request = engine.add("abc")
    engine.step()
    for reason in (FinishReason.ABORT, FinishReason.ERROR):
        engine.scheduler.finish(request, reason, None, 0)
    assert engine.scheduler.take_finished() == [request]
    assert request.finish_reason is FinishReason.ABORT
    assert engine.scheduler.problems() == []


def test_a_finished_request_holds_nothing():
    engine = Harness()
    request = engine.add("abc" * 20, max_tokens=2)
    engine.run()
    assert (request.block_table, request.slot) == ([], None)
    assert engine.scheduler.pool.counts().referenced == 0


# -- determinism and the oracle ----------------------------------------------------------------------------------


def test_equal_arrivals_make_equal_decisions():
    def decisions():
        engine = Harness(num_blocks=12, max_num_batched_tokens=24, max_num_seqs=3)
        for i in range(6):
            engine.add(chr(ord("a") + i % 3) * (10 + 7 * i), max_tokens=30)
        engine.run()
        return [
            [(row.request.request_id, row.num_scheduled_tokens, row.slot, row.new_blocks) for row in output.rows]
            for output in engine.runner.outputs
        ]

    assert decisions() == decisions()


def test_the_scheduler_runs_without_an_engine():
    scheduler = Scheduler(EngineConfig(max_num_seqs=1).resolve(max_model_len=64, num_blocks=4))
    request = Harness().request("abc", max_tokens=2)
    scheduler.add(request)
    for now_us in (1, 2):
        output = scheduler.schedule(now_us)
        scheduler.update_from_output(output, [[97]], now_us)
    assert scheduler.take_finished() == [request]
    assert request.output_token_ids == [97, 97]


@pytest.mark.parametrize("damage", ["slot", "queue", "blocks"])
def test_problems_sees_a_broken_invariant(damage):
    engine = Harness()
    running, waiting = engine.add("a"), None
    engine.step()
    waiting = engine.request("b")
    engine.scheduler.add(waiting)
    if damage == "slot":
        running.slot = 3
    elif damage == "queue":
        engine.scheduler.waiting.append(running)
    else:
        waiting.slot = 2
    assert engine.scheduler.problems() != []


def test_a_request_is_in_exactly_one_queue_after_every_step():
    """A38."""
    engine = Harness(num_blocks=12, max_num_seqs=4)
    requests: list[Request] = [engine.add(letter * 100, max_tokens=60) for letter in "abcd"]
    while engine.core.has_work:
        engine.step()
        for request in requests:
            places = [request in engine.scheduler.waiting, request in engine.scheduler.running]
            places.append(request.status is RequestStatus.FINISHED)
            assert sum(places) == 1
