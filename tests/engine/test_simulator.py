"""Virtual time: a replay under the same knobs is the recording again; under others it says what would have been."""

import json
import random

import pytest

from app.state import fold
from engine.config import EngineConfig
from engine.cost_model import fit
from engine.errors import ConfigError
from engine.recording import Recording
from engine.scripted import EOS
from engine.simulation import simulate
from engine.summary import summarize
from engine.workload import workload
from tests.engine.recorded import PACE, Recorder


def record(seed=1, count=40, turns=(), **config):
    """Requests at random moments, some of which share a beginning; `turns` are the knobs turned before one of them."""
    rng = random.Random(seed)
    recorder = Recorder(**{"num_blocks": 64, "max_num_batched_tokens": 64, "watermark": 0.0} | config)
    now = 0
    for index in range(count):
        now += rng.randrange(120_000)
        if index in dict(turns):
            recorder.turn(now, **dict(turns)[index])
        prompt = "shared" * rng.choice([0, 8, 16]) + "".join(rng.choices("abcdef", k=rng.randrange(4, 120)))
        recorder.at(now, prompt, rng.randrange(1, 40))
    return recorder.recording()


def replay(recording: Recording, cost=PACE, **changes) -> Recording:
    config = {**recording.hello["config"], **changes}
    return simulate(workload(recording), EngineConfig(**config), cost, recording.hello, held=set(changes))


def squares(request, index):
    """Answers that repeat themselves, but not quite: some guesses are right."""
    return ord("a") + (index * index + index // 20) % 7


def squares_that_end(request, index):
    """The same, but some answers end by themselves, and a guess may be what ends them."""
    return EOS if index in (19, 39) and len(request.prompt_token_ids) % 2 else squares(request, index)


def ending(request, index):
    """Answers that end by themselves after a few tokens: a guess may be right about the end too."""
    return EOS if index >= 3 + request.num_prompt_tokens % 7 else ord("a") + index % 2


def outline(recording):
    """What happened, without what is made up: hashes and header."""
    kept = ("step", "start_us", "wall_us", "accepted_us", "rows", "waiting", "tables", "evicted", "blocks", "ended_by")
    return json.loads(json.dumps([{name: step[name] for name in kept} for step in recording.steps()]))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_blocks": 16, "max_model_len": 250},
        {"batching": "static"},
        {"enable_prefix_caching": False},
        {"scheduling_policy": "shortest-first"},
        {"speculative": "ngram:3", "script": squares},
        {"speculative": "draft:scripted:3"},
        {"speculative": "draft:scripted:3", "script": squares_that_end},
        {"speculative": "draft:scripted:3", "script": ending},
        {"speculative": "ngram:3", "script": ending},
        {"turns": [(10, {"batching": "static"}), (25, {"max_num_seqs": 2, "batching": "continuous"})]},
    ],
)
def test_under_the_same_knobs_every_step_is_the_recorded_one(config):
    recording = record(**config)
    assert outline(replay(recording)) == outline(recording)


def test_the_recordings_above_have_something_to_reproduce():
    summary = summarize(record(num_blocks=16, max_model_len=250))
    assert summary.preemptions > 0
    assert summary.cached_tokens > 0


def test_with_the_fitted_cost_model_the_makespan_is_the_recorded_one():
    recording = record()
    fitted = fit(recording.steps()).model
    was, now = summarize(recording), summarize(replay(recording, cost=fitted))
    assert now.makespan_us == pytest.approx(was.makespan_us, rel=0.01)


def test_a_cost_model_fitted_on_one_workload_foretells_another():
    fitted = fit(record(seed=1).steps()).model
    other = record(seed=2, batching="static", max_num_seqs=8)
    assert summarize(replay(other, cost=fitted)).makespan_us == pytest.approx(summarize(other).makespan_us, rel=0.02)


def test_another_knob_gives_what_the_engine_would_have_done_with_it():
    static, continuous = record(batching="static"), record()
    assert outline(replay(static, batching="continuous")) == outline(continuous)


def test_a_replay_of_a_replay_is_the_same():
    once = replay(record())
    assert outline(replay(once)) == outline(once)


def test_the_hello_says_that_it_is_simulated():
    recording = record(count=3)
    hello = replay(recording).hello
    assert (hello["simulated"], hello["replay_missing_steps"]) == (True, 0)
    assert hello["replay_of"] == recording.hello["epoch"] != hello["epoch"]


def test_the_events_fold_to_their_own_keys():
    replayed = replay(record())
    state, keys = fold(None, replayed.hello), 0
    for event in replayed.events:
        event = json.loads(json.dumps(event))
        if event["kind"] == "key" and keys:
            assert state == event["state"]
        else:
            state = fold(state, event)
        keys += event["kind"] == "key"
    assert keys > 1


def test_a_prompt_that_would_not_fit_is_refused_and_the_rest_goes_on():
    recording = record(count=12)
    summary = summarize(replay(recording, max_model_len=100))
    assert summary.num_rejected > 0
    assert summary.num_finished + summary.num_rejected == 12


def test_least_lengths_are_asked_for_again():
    recorder = Recorder(script=ending)
    recorder.at(0, "a" * 13, 20, min_tokens=7)
    recorder.at(0, "b" * 9, 12, min_tokens=12)
    cancelled = recorder.at(0, "c", 20, min_tokens=15)
    recorder._until(60_000)
    recorder.harness.core.abort(cancelled.request_id)
    recording = recorder.recording()
    replayed = replay(recording)

    def told(run, event, *names):
        return [[e[n] for n in names] for e in run.events if e["kind"] == "request" and e["event"] == event]

    least = [sampling["min_tokens"] for (sampling,) in told(replayed, "arrived", "sampling")]
    assert least == [7, 12, cancelled.num_output_tokens - 1]
    assert told(replayed, "finished", "request", "num_output_tokens") == sorted(
        told(recording, "finished", "request", "num_output_tokens"),
        key=lambda one: [request for request, _ in told(replayed, "finished", "request", "reason")].index(one[0]),
    )


# -- a recording with a hole ---------------------------------------------------------------------------------------


def with_a_hole(recording, first, last):
    """As a hub records it: the events of these steps are lost, and a key follows."""
    state = kept = fold(None, recording.hello)
    events, lost = [], []
    for event in recording.events:
        state = fold(state, json.loads(json.dumps(event)))
        inside = first <= state["step"] + (event["kind"] != "step") <= last
        if not inside and lost:
            events.append({**lost[-1], "kind": "gap", "first": lost[0]["seq"], "last": lost[-1]["seq"]})
            events.append({**lost[-1], "kind": "key", "state": kept})
            lost = []
        if inside:
            lost.append({name: event[name] for name in ("engine", "epoch", "seq", "t")})
            kept = json.loads(json.dumps(state))
        else:
            events.append(event)
    return Recording(recording.hello, events)


def test_steps_that_a_recording_lost_are_counted_and_told():
    recording = with_a_hole(record(count=12), 20, 29)
    assert workload(recording).num_missing_steps == 10
    assert replay(recording).hello["replay_missing_steps"] == 10


def test_requests_that_came_in_a_hole_are_replayed_and_answers_that_went_on_in_it_are_as_long():
    whole = record(count=12)
    recording = with_a_hole(whole, 20, 29)
    lengths = {arrival.facts["request"]: arrival.num_output_tokens for arrival in workload(whole).arrivals}
    found = {arrival.facts["request"]: arrival.num_output_tokens for arrival in workload(recording).arrivals}
    assert found == lengths


def test_a_knob_that_was_turned_in_a_hole_is_turned_at_its_end():
    recording = record(turns=[(6, {"max_num_seqs": 2})], count=12)
    turned = next(i for i, event in enumerate(recording.events) if event["kind"] == "config")
    step = sum(event["kind"] == "step" for event in recording.events[:turned])
    (turn,) = workload(with_a_hole(recording, step - 2, step + 3)).turns
    assert (turn.changes, turn.at_us > recording.events[turned]["t"]) == ({"max_num_seqs": 2}, True)


# -- of several runs the last ------------------------------------------------------------------------------------


def two_runs(**config):
    """The second run begins when the first one's end is long past, and with words that the first one left cached."""
    recorder = Recorder(**{"num_blocks": 64, "max_num_seqs": 4} | config)
    for index in range(6):
        recorder.at(index * 1000, "shared" * 12 + str(index), 10)
    recorder.turn(20_000_000, max_num_seqs=2)
    for index in range(7):
        recorder.at(30_000_000 + index * 1000, "shared" * 12 + str(index % 3) + "second" * 8, 12)
    return recorder.recording()


def test_the_last_run_is_replayed_with_what_the_one_before_left_in_the_cache_and_the_knobs():
    recording = two_runs()
    work = workload(recording, last_run=True)
    run = recording.since(work.start)
    assert summarize(run).cached_tokens > 7 * 64
    replayed = simulate(work, EngineConfig(**run.hello["config"]), PACE, run.hello)
    first = run.steps()[0]["step"]

    def decisions(steps):
        kept = ("start_us", "accepted_us", "rows", "waiting", "ended_by")
        return [{name: step[name] for name in kept} for step in json.loads(json.dumps(steps))]

    assert decisions(replayed.steps()) == decisions(run.steps())
    assert (replayed.steps()[0]["step"], first > 1) == (1, True)
    assert (len(work.arrivals), run.hello["config"]["max_num_seqs"]) == (7, 2)


def test_the_simulated_run_begins_with_a_key_that_holds_the_cached_blocks():
    recording = two_runs()
    work = workload(recording, last_run=True)
    key = simulate(work, EngineConfig(**recording.hello["config"]), PACE, recording.hello).events[0]
    counts = key["state"]["blocks"]["counts"]
    assert (key["kind"], counts["cached_idle"] > 0, counts["referenced"]) == ("key", True, 0)


def test_a_cache_that_was_reset_between_two_runs_leaves_nothing():
    recording = two_runs()
    start = workload(recording, last_run=True).start
    recording.events.insert(start, {"kind": "cache_reset"})
    assert workload(recording, last_run=True).cached == []


def test_a_recording_that_begins_within_its_last_run_does_not_hold_it():
    recorder = Recorder()
    recorder.at(0, "first", 20)
    recorder.at(50_000, "second", 20)
    recorder.harness.core.reporter.key()
    recording = recorder.recording()
    keys = [index for index, event in enumerate(recording.events) if event["kind"] == "key"]
    recording = Recording(recording.hello, json.loads(json.dumps(recording.events[keys[-1] :])))
    with pytest.raises(ConfigError, match="does not reach back to the first arrival"):
        workload(recording, last_run=True)


# -- speculation -------------------------------------------------------------------------------------------------


def guesses(recording):
    """(guessed, right) of all requests together."""
    rows = [row for step in recording.steps() for row in step["rows"]]
    return sum(row["drafted"] for row in rows), sum(row["accepted"] for row in rows)


def test_the_recordings_that_speculate_guess_right_and_wrong():
    guessed, right = guesses(record(speculative="ngram:3", script=squares))
    assert 0 < right < guessed


def test_under_other_knobs_the_same_places_are_guessed_as_well():
    flags = {"speculative": "ngram:3", "script": squares}
    static, continuous = record(batching="static", **flags), record(**flags)
    assert outline(replay(static, batching="continuous")) == outline(continuous)


def test_where_a_preemption_moves_the_places_nothing_is_guessed_and_all_finish():
    recording = record(speculative="ngram:3", script=squares)
    replayed = replay(recording, num_blocks=16, max_model_len=250)
    assert summarize(replayed).preemptions > 0
    assert summarize(replayed).output_tokens == summarize(recording).output_tokens
    assert 0 < guesses(replayed)[1] <= guesses(recording)[1]


def test_speculation_can_be_left_out_and_the_answers_stay_as_long():
    recording = record(speculative="ngram:3", script=squares)
    recording.hello["draft"] = recording.hello["model"]
    assert replay(recording).hello["draft"]
    without = replay(recording, speculative="none")
    assert without.hello["draft"] is None
    assert guesses(without) == (0, 0)
    assert outline(without) == outline(record(script=squares))


# -- turned knobs ------------------------------------------------------------------------------------------------


def slots_in_use(recording):
    return [len(step["rows"]) for step in recording.steps()]


def test_a_knob_is_turned_when_it_was():
    recording = record(turns=[(20, {"max_num_seqs": 2})])
    assert max(slots_in_use(recording)[-20:]) == 2 < max(slots_in_use(recording))
    (turned,) = (event for event in replay(recording).events if event["kind"] == "config")
    assert turned["changed"] == {"max_num_seqs": 2}


def test_a_knob_that_is_given_is_not_turned():
    recording = record(turns=[(20, {"max_num_seqs": 2, "batching": "static"})])
    replayed = replay(recording, max_num_seqs=4)
    assert [event["changed"] for event in replayed.events if event["kind"] == "config"] == [{"batching": "static"}]
    assert max(slots_in_use(replayed)[-20:]) > 2


def test_a_knob_is_turned_while_nobody_is_there():
    recorder = Recorder()
    recorder.at(0, "first", 4)
    recorder.turn(10_000_000, max_num_seqs=1)
    for _ in range(2):
        recorder.at(20_000_000, "later", 4)
    recording = recorder.recording()
    assert outline(replay(recording)) == outline(recording)


def test_a_turn_that_does_not_go_with_a_given_knob_is_refused():
    recording = record(turns=[(20, {"max_num_seqs": 6})])
    with pytest.raises(ConfigError, match=r"into the recording a knob was turned: .*--max-num-seqs 6"):
        replay(recording, max_num_batched_tokens=4)


def test_a_recording_with_steps_lost_is_replayed_all_the_same(tmp_path):
    """Its rows lie: more guesses were right than the answer had tokens."""
    recording = record(count=20, speculative="draft:scripted:3", script=ending)
    for step in recording.steps():
        for row in step["rows"]:
            row.update(drafted=9, accepted=9)
    assert summarize(replay(recording)).num_finished == 20
