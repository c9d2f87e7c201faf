"""The numbers of a run, as METRICS defines them."""

import pytest

from engine.summary import gaps_us, summarize, table
from tests.engine.recorded import PACE, Recorder


@pytest.fixture
def recorder():
    return Recorder(max_num_seqs=2)


def step_us(**terms):
    return PACE.step_us + sum(getattr(PACE, f"{name}_us") * count for name, count in terms.items())


def test_one_request_by_hand(recorder):
    recorder.at(50_000, "x" * 10, 3)
    summary = summarize(recorder.recording())
    prefill = round(step_us(prefill_token=10, prefill_pair=55))
    decode = [round(step_us(decode_row=1, kv_token=tokens)) for tokens in (11, 12)]
    assert summary.ttft_us["p50"] == prefill
    assert summary.tpot_us["p50"] == sum(decode) / 2
    assert summary.makespan_us == prefill + sum(decode)
    assert summary.output_tokens_per_s == pytest.approx(3e6 / summary.makespan_us)
    assert (summary.num_steps, summary.prefill_tokens, summary.decode_tokens) == (3, 10, 2)
    assert summary.slot_occupancy == 0.5


def test_one_token_has_no_tpot(recorder):
    recorder.at(0, "x", 1)
    assert summarize(recorder.recording()).tpot_us == {"p50": None, "p95": None, "p99": None}


def test_preemptions_are_counted_with_what_they_cost():
    recorder = Recorder(num_blocks=4, watermark=0.0)
    requests = [recorder.at(0, letter * 20, 20) for letter in "ab"]
    summary = summarize(recorder.recording())
    assert summary.preemptions == sum(request.num_preemptions for request in requests) > 0
    assert summary.lost_tokens == sum(request.num_lost_tokens for request in requests)
    assert summary.most_preemptions == max(request.num_preemptions for request in requests)


def test_the_worst_gap_is_the_longest_wait_for_a_next_token(recorder):
    recorder.at(0, "x", 8)
    recorder.at(30_000, "y" * 200, 2)
    worst = summarize(recorder.recording()).worst_gap_us
    assert worst == round(step_us(prefill_token=200, prefill_pair=200 * 201 // 2, decode_row=1, kv_token=4))


def test_slots_are_counted_as_many_as_there_were_in_each_step(recorder):
    recorder.at(0, "x", 3)
    recorder.turn(5_000_000, max_num_seqs=4)
    recorder.at(5_000_000, "y", 3)
    assert summarize(recorder.recording()).slot_occupancy == 6 / (3 * 2 + 3 * 4)


def test_gated_times_are_in_no_percentile(recorder):
    recorder.at(0, "x", 3)
    recording = recorder.recording()
    for event in recording.events:
        if event["kind"] == "request" and event["event"] == "finished":
            event["timings"]["gated_us"] = 1
    assert summarize(recording).ttft_us == {"p50": None, "p95": None, "p99": None}


def test_a_run_without_steps_has_no_numbers_but_a_table(recorder):
    assert "–" in table({"nothing": summarize(recorder.recording())})


def paused(recorder, at_us, for_us):
    """Hold the gate there for so long."""
    recorder._until(at_us)
    recorder.harness.gate("pause")
    recorder.harness.core.timer.idle()
    recorder.harness.clock.advance(for_us)
    recorder.harness.gate("run")


def test_a_gap_that_the_gate_held_is_left_out_and_the_requests_other_gaps_are_not(recorder):
    recorder.at(0, "x", 12)
    paused(recorder, 60_000, 5_000_000)
    recording = recorder.recording()
    finished = next(e for e in recording.events if e["kind"] == "request" and e["event"] == "finished")
    gaps = list(gaps_us(recording.steps()))
    assert finished["timings"]["gated_us"] >= 5_000_000
    assert len(gaps) == 12 - 1 - 1
    assert 0 < summarize(recording).worst_gap_us == max(gaps) < 50_000


def test_a_step_by_hand_ends_no_gap(recorder):
    recorder.at(0, "x", 6)
    steps = recorder.recording().steps()
    steps[2]["gated"] = True
    assert len(list(gaps_us(steps))) == 5 - 1


def test_a_gap_into_which_lost_steps_fall_is_not_known(recorder):
    recorder.at(0, "x", 6)
    steps = recorder.recording().steps()
    del steps[2]
    assert len(list(gaps_us(steps))) == 5 - 2
