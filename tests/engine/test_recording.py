"""Reading recordings, and making up tokens that share what the recorded ones shared."""

import gzip
import json

import pytest

from engine.errors import LoadError
from engine.recording import Recording, read_recording, write_recording
from engine.scripted import EOS
from engine.workload import END_TOKEN, Guesses, Turn, workload
from tests.engine.harness import scripted
from tests.engine.recorded import Recorder

A, B, C = "a" * 16, "b" * 16, "c" * 16


def common_prefix(one, other):
    return next((i for i, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))


def arrivals(recorder):
    return {arrival.facts["request"]: arrival for arrival in workload(recorder.recording()).arrivals}


def test_a_recording_comes_back_as_it_was_written(tmp_path):
    recorder = Recorder()
    recorder.at(0, A, 3)
    recording = recorder.recording()
    write_recording(tmp_path / "r.jsonl.gz", [recording.hello, *recording.events])
    assert read_recording(tmp_path / "r.jsonl.gz") == recording


def test_a_recording_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path):
    recorder = Recorder()
    recorder.at(0, A, 40)
    recording = recorder.recording()
    file = tmp_path / "r.jsonl.gz"
    write_recording(file, [recording.hello, *recording.events])
    file.write_bytes(file.read_bytes()[:-400])
    read = read_recording(file)
    assert 0 < len(read.events) < len(recording.events)
    assert read.events == recording.events[: len(read.events)]


@pytest.mark.parametrize(
    "content",
    [b"", b"hello\nworld\n", gzip.compress(b'{"kind":"step"}\n', mtime=0), b"[1]\n[2]\n", b"[" * 200_000 + b"\n"],
)
def test_what_is_no_recording_is_refused_by_name(tmp_path, content):
    file = tmp_path / "r.jsonl"
    file.write_bytes(content)
    with pytest.raises(LoadError, match=r"r\.jsonl is no recording"):
        read_recording(file)


@pytest.mark.parametrize("changes", [{"engine": [1]}, {"epoch": {}}])
def test_a_hello_that_makes_no_sense_is_refused_by_name(tmp_path, changes):
    (tmp_path / "r.jsonl").write_text(json.dumps({"kind": "hello", **changes}))
    with pytest.raises(LoadError, match=r"r\.jsonl cannot be understood"):
        read_recording(tmp_path / "r.jsonl")


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(LoadError, match=r"nowhere\.gz cannot be read"):
        read_recording(tmp_path / "nowhere.gz")


def test_of_several_epochs_the_last_with_a_step_is_read(tmp_path):
    def epoch(name, *kinds):
        return [{"kind": kind, "engine": "main", "epoch": name} for kind in ("hello", *kinds)]

    lines = [*epoch("1", "key", "step"), *epoch("2", "key", "step"), *epoch("3", "key")]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_recording(tmp_path / "r.jsonl").hello["epoch"] == "2"


def test_lengths_and_arrivals_are_the_recorded_ones():
    recorder = Recorder()
    recorder.at(5_000, A + "tail", 7)
    recorder.at(90_000, B, 3)
    one, two = arrivals(recorder).values()
    assert (one.facts["arrival_us"], len(one.prompt_token_ids), len(one.output_token_ids)) == (5_000, 20, 7)
    assert (two.facts["arrival_us"], len(two.prompt_token_ids), len(two.output_token_ids)) == (90_000, 16, 3)


def test_an_answer_that_stopped_by_itself_ends_with_the_end_token():
    recorder = Recorder(script=scripted([97, 98, EOS]))
    recorder.at(0, A, 50)
    recorder.at(0, A, 2)
    stopped, full = arrivals(recorder).values()
    assert len(stopped.output_token_ids) == 3
    assert stopped.output_token_ids[-1] == END_TOKEN
    assert END_TOKEN not in full.output_token_ids


def test_made_up_prompts_share_just_the_blocks_that_the_recorded_ones_shared():
    recorder = Recorder()
    for prompt in (A + B + C, A + B + "x" * 16, A + "y" * 32, "z" + A + B):
        recorder.at(0, prompt, 2)
    one, two, three, four = (a.prompt_token_ids for a in arrivals(recorder).values())
    assert [common_prefix(one, other) for other in (two, three, four)] == [32, 16, 0]


def test_tails_that_fill_no_block_are_not_shared():
    recorder = Recorder()
    recorder.at(0, A + "same", 2)
    recorder.at(0, A + "same", 2)
    one, two = (a.prompt_token_ids for a in arrivals(recorder).values())
    assert common_prefix(one, two) == 16


def test_a_next_turn_shares_the_answer_of_the_one_before():
    recorder = Recorder()
    first = recorder.at(0, A + "question", 28)
    recorder.harness.run()
    recorder.at(recorder.harness.clock(), [*first.token_ids, *b"next"], 2)
    one, two = arrivals(recorder).values()
    assert common_prefix(one.token_ids, two.token_ids) == 48


def test_sharing_survives_a_preemption():
    recorder = Recorder(num_blocks=6, watermark=0.0)
    first = recorder.at(0, A + "one", 40)
    second = recorder.at(0, B + "two", 40)
    recorder.harness.run()
    assert first.num_preemptions + second.num_preemptions > 0
    recorder.at(recorder.harness.clock(), [*second.token_ids, *b"next"], 2)
    _, two, three = arrivals(recorder).values()
    assert common_prefix(two.token_ids, three.token_ids) == 48


def test_requests_that_lived_before_the_recording_began_are_in_it():
    recorder = Recorder(max_num_seqs=1)
    recorder.at(0, A + "tail", 9)
    recorder.at(0, B, 5)
    for _ in range(4):
        recorder.harness.step()
    recorder.harness.core.reporter.key()
    whole = recorder.recording()
    keys = [i for i, event in enumerate(whole.events) if event["kind"] == "key"]
    late = workload(Recording(whole.hello, whole.events[keys[1] :]))
    assert [(a.facts["request"], a.num_output_tokens) for a in late.arrivals] == [("r1", 9), ("r2", 5)]
    assert workload(whole).arrivals[0].prompt_token_ids == late.arrivals[0].prompt_token_ids


def test_who_never_got_a_token_is_left_out_and_counted():
    recorder = Recorder(max_num_seqs=1)
    recorder.at(0, A, 20)
    recorder.at(0, B, 20)
    recorder.harness.step()
    recorder.harness.core.abort("r2")
    work = workload(recorder.recording())
    assert ([a.facts["request"] for a in work.arrivals], work.num_left_out) == (["r1"], 1)


def test_who_had_not_finished_ends_where_the_recording_does():
    recorder = Recorder()
    recorder.at(0, A, 20)
    whole = recorder.recording()
    fifth = [i for i, event in enumerate(whole.events) if event["kind"] == "step"][4]
    work = workload(Recording(whole.hello, whole.events[: fifth + 1]))
    assert (work.num_unfinished, work.arrivals[0].num_output_tokens) == (1, 5)


def test_guesses_are_found_by_how_long_the_answer_was():
    recorder = Recorder(speculative="ngram:2", script=scripted([*b"abcabcabx", EOS]))
    recorder.at(0, "xyz", 20)
    (arrival,) = workload(recorder.recording()).arrivals
    # after "abcab" the guess is "ca", and right; after "abcabcab" it is "ca" again, and wrong
    assert arrival.guesses == {5: Guesses(2, 2), 8: Guesses(2, 0)}


def test_turned_knobs_are_found_with_their_times():
    recorder = Recorder()
    recorder.at(0, A, 20)
    recorder.turn(50_000, max_num_seqs=2)
    recorder.turn(60_000, batching="static", max_queue=9)
    first, second = workload(recorder.recording()).turns
    assert (first.changes, second.changes) == ({"max_num_seqs": 2}, {"batching": "static", "max_queue": 9})
    assert 50_000 <= first.at_us < second.at_us


def test_knobs_that_were_turned_before_the_recording_began_are_turned_from_the_start():
    recorder = Recorder()
    recorder.turn(50_000, max_num_seqs=2)
    recorder.at(60_000, A, 5)
    recorder.harness.core.reporter.key()
    whole = recorder.recording()
    keys = [i for i, event in enumerate(whole.events) if event["kind"] == "key"]
    assert workload(Recording(whole.hello, whole.events[keys[1] :])).turns == [Turn(0, {"max_num_seqs": 2})]
