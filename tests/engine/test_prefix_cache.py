"""Prefix caching: what is shared, what is not, and that nobody ever reads a block with other tokens in it.

Answers come from a PagedRunner, which answers from what its cache holds and fails on a block that nobody wrote.
"""

import pytest

from engine import events
from engine.request import RequestStatus
from tests.engine.harness import Harness
from tests.engine.paged import cold_answer, paged_engine, prompt_of


def finish(engine: Harness, prompt: list[int], max_tokens: int = 4):
    request = engine.add(prompt, max_tokens=max_tokens)
    engine.run()
    return request


# -- what is hit -------------------------------------------------------------------------------------------------


def test_a_whole_prompt_in_the_cache_still_computes_its_last_block():
    """A23: 64 tokens twice at block size 16: 48 are cached, never 64, and the answer is the same."""
    engine = paged_engine()
    first, second = finish(engine, prompt_of(64)), finish(engine, prompt_of(64))
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 48)
    assert first.output_token_ids == second.output_token_ids == cold_answer(first)


def test_a_longer_prompt_reuses_every_full_block_of_the_shorter_one():
    """A24: the last full block joins the chain although its own request could not hit it."""
    engine = paged_engine()
    for _ in range(2):
        finish(engine, prompt_of(64))
    engine.add(prompt_of(64) + prompt_of(16, seed=1))
    engine.step()
    (row,) = engine.runner.outputs[-1].rows
    assert (row.num_computed_tokens, row.num_scheduled_tokens) == (64, 16)


def test_an_answer_is_reusable_as_the_prefix_of_the_next_turn():
    engine = paged_engine()
    first = finish(engine, prompt_of(30), max_tokens=20)
    second = finish(engine, first.token_ids + prompt_of(10, seed=2))
    assert second.num_cached_tokens == 48  # 49 tokens of KV: the last token was never computed


@pytest.mark.parametrize(("length", "cached"), [(16, 0), (17, 16), (32, 16), (33, 32)])
def test_a_hit_ends_before_the_last_token(length, cached):
    engine = paged_engine()
    finish(engine, prompt_of(length))
    assert finish(engine, prompt_of(length)).num_cached_tokens == cached


def test_a_prompt_that_differs_in_its_first_token_hits_nothing():
    """A27."""
    engine = paged_engine()
    finish(engine, prompt_of(64))
    other = [122, *prompt_of(64)[1:]]
    request = finish(engine, other)
    assert request.num_cached_tokens == 0
    assert request.output_token_ids == cold_answer(request)


def test_a_prompt_that_differs_in_the_middle_hits_up_to_there():
    engine = paged_engine()
    finish(engine, prompt_of(64))
    other = prompt_of(64)
    other[40] = 122
    assert finish(engine, other).num_cached_tokens == 32


def test_without_prefix_caching_nothing_is_hashed_or_hit():
    engine = paged_engine(enable_prefix_caching=False)
    requests = [finish(engine, prompt_of(64)) for _ in range(2)]
    assert [r.num_cached_tokens for r in requests] == [0, 0]
    assert engine.scheduler.pool.counts().cached_idle == 0
    assert not any(step.hashed for step in engine.of(events.Step))


# -- sharing while it is computed --------------------------------------------------------------------------------


def test_eight_copies_of_one_prompt_compute_it_once():
    """200 tokens are 12 full blocks and a rest: seven of the eight have 192 cached.

    A26: they were submitted together, and all answers are that of a cold run.
    """
    engine = paged_engine(num_blocks=64, max_num_seqs=8)
    requests = [engine.add(prompt_of(200)) for _ in range(8)]
    engine.run()
    assert [r.num_cached_tokens for r in requests] == [0] + [192] * 7
    assert {tuple(r.output_token_ids) for r in requests} == {tuple(cold_answer(requests[0]))}


def test_copies_share_even_when_the_prompt_takes_many_steps():
    engine = paged_engine(num_blocks=64, max_num_seqs=8, max_num_batched_tokens=24)
    requests = [engine.add(prompt_of(200)) for _ in range(8)]
    engine.run()
    assert [r.num_cached_tokens for r in requests] == [0] + [192] * 7


def test_a_copy_waits_with_the_computing_request_as_its_reason():
    """A26: it never hits blocks whose KV is not written yet."""
    engine = paged_engine()
    first, second = engine.add(prompt_of(64)), engine.add(prompt_of(64))
    engine.step()
    output = engine.runner.outputs[-1]
    assert [row.request for row in output.rows] == [first]
    (reason,) = output.waiting
    assert (reason.request, reason.code, reason.by) == (second.request_id, "prefix_pending", first.request_id)
    assert output.ended_by == "prefix_pending"


def test_a_request_behind_one_that_waits_for_its_prefix_may_pass():
    engine = paged_engine()
    engine.add(prompt_of(64))
    copy, other = engine.add(prompt_of(64)), engine.add(prompt_of(20, seed=3))
    engine.step()
    assert other.status is RequestStatus.RUNNING
    assert copy.status is RequestStatus.WAITING


def test_short_copies_have_nothing_to_share_and_do_not_wait():
    engine = paged_engine()
    copies = [engine.add(prompt_of(16)) for _ in range(3)]
    engine.step()
    assert engine.scheduler.running == copies


def test_a_copy_does_not_wait_for_a_request_that_was_aborted():
    engine = paged_engine(max_num_batched_tokens=32)
    first, second = engine.add(prompt_of(100)), engine.add(prompt_of(100))
    engine.step()
    engine.core.abort(first.request_id)
    engine.run()
    assert second.num_cached_tokens == 32
    assert second.output_token_ids == cold_answer(second)


def test_two_equal_prompts_of_whole_blocks_leave_the_duplicate_hashless():
    engine = paged_engine()
    first, second = engine.add(prompt_of(64)), engine.add(prompt_of(64))
    engine.step()
    engine.step()
    pool = engine.scheduler.pool
    assert pool.blocks[first.block_table[3]].block_hash is not None
    assert pool.blocks[second.block_table[3]].block_hash is None
    assert first.block_table[:3] == second.block_table[:3]


def test_blocks_become_reusable_before_a_request_that_ends_in_the_same_step_frees_them():
    engine = paged_engine()
    finish(engine, prompt_of(64), max_tokens=1)
    assert engine.scheduler.pool.counts().cached_idle == 4


# -- eviction and reset ------------------------------------------------------------------------------------------


def test_a_hit_is_counted_anew_when_the_prefix_was_evicted_while_the_request_waited():
    """A25: what was cached when it arrived does not matter, only what is when it is admitted."""
    engine = paged_engine(num_blocks=8, max_num_seqs=1, watermark=0.0)
    finish(engine, prompt_of(64))
    engine.add(prompt_of(120, seed=5), max_tokens=2)  # takes the whole pool
    engine.step()
    waiting = engine.add(prompt_of(64))
    engine.run()
    assert waiting.num_cached_tokens == 0
    assert waiting.output_token_ids == cold_answer(waiting)


def test_a_hit_seen_by_a_try_that_failed_is_not_remembered():
    """A25: it waits with four hits in sight, which the running request then evicts one by one as it grows."""
    engine = paged_engine(num_blocks=8, watermark=0.0)
    finish(engine, prompt_of(64))
    engine.add(prompt_of(60, seed=5), max_tokens=60)
    engine.step()
    waiting = engine.add(prompt_of(64) + prompt_of(40, seed=6))
    engine.step()
    (reason,) = engine.runner.outputs[-1].waiting
    assert (reason.code, reason.needs) == ("blocks_short", 3)  # of seven
    while waiting.status is RequestStatus.WAITING:
        engine.step()
    assert engine.state()["totals"]["evictions"] >= 4
    engine.run()
    assert waiting.num_cached_tokens == 0
    assert waiting.output_token_ids == cold_answer(waiting)


def test_the_least_recently_used_prefix_is_evicted_first():
    engine = paged_engine(num_blocks=8, watermark=0.0)
    finish(engine, prompt_of(48), max_tokens=1)
    finish(engine, prompt_of(48, seed=1), max_tokens=1)
    finish(engine, [*prompt_of(48), 97], max_tokens=1)  # used again
    finish(engine, prompt_of(64, seed=2), max_tokens=1)  # evicts two blocks of the second prompt
    assert finish(engine, [*prompt_of(48), 97], max_tokens=1).num_cached_tokens == 48
    assert finish(engine, [*prompt_of(48, seed=1), 97], max_tokens=1).num_cached_tokens < 48


def test_the_tail_of_a_prefix_is_evicted_before_its_head():
    engine = paged_engine(num_blocks=8, watermark=0.0)
    finish(engine, prompt_of(96), max_tokens=1)  # six blocks cached, two free
    finish(engine, prompt_of(50, seed=1), max_tokens=1)  # four blocks: evicts two
    assert engine.of(events.Step)[-1].evicted != []
    assert finish(engine, prompt_of(96), max_tokens=1).num_cached_tokens == 64


def test_evictions_are_told():
    engine = paged_engine(num_blocks=8, watermark=0.0)
    finish(engine, prompt_of(128), max_tokens=1)
    finish(engine, prompt_of(33, seed=1), max_tokens=1)
    assert len(engine.of(events.Step)[-1].evicted) == 3
    assert engine.state()["totals"]["evictions"] == 3


def test_a_reset_makes_the_next_run_cold():
    engine = paged_engine()
    finish(engine, prompt_of(64))
    engine.core.reset_prefix_cache()
    assert finish(engine, prompt_of(64)).num_cached_tokens == 0
    engine.check()


def test_a_reset_says_how_many_blocks_were_forgotten():
    engine = paged_engine()
    finish(engine, prompt_of(64))
    engine.core.reset_prefix_cache()
    assert [told.num_blocks for told in engine.of(events.CacheReset)] == [4]


def test_a_reset_while_requests_run_forgets_what_they_hold_too():
    """A28: an ok that resets nothing would be a lie."""
    engine = paged_engine()
    engine.add(prompt_of(64), max_tokens=8)
    engine.step()
    engine.core.reset_prefix_cache()
    assert finish(engine, prompt_of(64)).num_cached_tokens == 0
    engine.check()


def test_after_a_reset_a_copy_does_not_wait_for_what_will_not_be_computed_again():
    """A37: the running request has passed those blocks; nothing is pending."""
    engine = paged_engine()
    engine.add(prompt_of(64), max_tokens=50)
    engine.step()
    engine.core.reset_prefix_cache()
    copy = engine.add(prompt_of(64))
    engine.step()
    assert copy.status is RequestStatus.RUNNING


def test_a_reset_is_shown_while_requests_run():
    """A28: the page's blocks lose their hashes at once, before any further step."""
    engine = paged_engine()
    engine.add(prompt_of(64), max_tokens=8)
    engine.step()
    assert any(engine.folded()["blocks"]["hashes"])
    engine.core.reset_prefix_cache()
    assert not any(engine.folded()["blocks"]["hashes"])
    assert engine.folded()["blocks"]["counts"]["referenced"] > 0


def test_a_reset_changes_no_running_answer():
    """A28."""
    engine = paged_engine()
    request = engine.add(prompt_of(64), max_tokens=40)
    while engine.core.has_work:
        engine.step()
        engine.core.reset_prefix_cache()
    assert request.output_token_ids == cold_answer(request)
    engine.check()


# -- what the numbers say ----------------------------------------------------------------------------------------


def test_the_hit_rate_counts_prompt_tokens_of_first_admissions():
    engine = paged_engine()
    for _ in range(2):
        finish(engine, prompt_of(64))
    totals = engine.state()["totals"]
    assert (totals["prefix_queried_tokens"], totals["prefix_hit_tokens"]) == (128, 48)


def test_re_reads_after_a_preemption_are_counted_apart():
    engine = paged_engine(num_blocks=12, watermark=0.0)
    for seed in range(2):
        engine.add(prompt_of(80, seed=seed), max_tokens=40)
    engine.run()
    totals = engine.state()["totals"]
    assert totals["preemptions"] > 0
    assert totals["reread_tokens"] > 0
    assert totals["prefix_hit_tokens"] == 0


def test_a_cached_prefix_is_not_computed_again():
    engine = paged_engine()
    finish(engine, prompt_of(64), max_tokens=1)
    before = engine.state()["totals"]["prefill_tokens"]
    finish(engine, prompt_of(64), max_tokens=1)
    assert engine.state()["totals"]["prefill_tokens"] - before == 16
