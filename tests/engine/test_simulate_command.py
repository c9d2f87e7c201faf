"""The simulator as a command: what it prints and writes, and what it refuses in one sentence."""

import json

import pytest

from engine.config import EngineConfig
from engine.recording import read_recording, write_recording
from engine.scripted import scripted_facts
from engine.simulator import main
from engine.virtual_time import paced_runner
from tests.engine.test_simulator import record, squares, two_runs, with_a_hole


@pytest.fixture
def file(tmp_path):
    recording = record()
    write_recording(tmp_path / "r.jsonl.gz", [recording.hello, *recording.events])
    return tmp_path / "r.jsonl.gz"


def test_the_command_prints_both_runs_and_writes_what_is_asked(file, tmp_path, capsys):
    out, numbers, cost = tmp_path / "o.jsonl.gz", tmp_path / "n.json", tmp_path / "c.json"
    flags = ["--batching=static", f"--out={out}", f"--json={numbers}", f"--save-cost-model={cost}"]
    assert main([str(file), *flags]) == 0
    said = capsys.readouterr().out
    assert "Simulated: 40 requests arrive when they did" in said
    assert "slot occupancy" in said
    assert "R² 1.000" in said
    written = json.loads(numbers.read_text())
    assert written["simulated"]["num_steps"] > written["recorded"]["num_steps"]
    assert read_recording(out).hello["config"]["batching"] == "static"
    assert main([str(file), f"--cost-model={cost}"]) == 0


def test_flags_that_are_not_given_are_those_of_the_recording(file, tmp_path):
    out = tmp_path / "o.jsonl.gz"
    assert main([str(file), "--max-num-seqs=2", f"--out={out}"]) == 0
    config = read_recording(out).hello["config"]
    assert (config["max_num_seqs"], config["max_num_batched_tokens"], config["num_blocks"]) == (2, 64, 64)


def test_another_block_size_keeps_the_size_of_the_pool_in_tokens(file, tmp_path):
    out = tmp_path / "o.jsonl.gz"
    assert main([str(file), "--block-size=32", f"--out={out}"]) == 0
    assert read_recording(out).hello["num_blocks"] == 32


def test_the_command_says_what_was_done_to_the_engine(tmp_path, capsys):
    turns = [(20, {"max_num_seqs": 2, "batching": "static"})]
    recording = record(speculative="ngram:3", script=squares, turns=turns)
    write_recording(tmp_path / "r.jsonl.gz", [recording.hello, *recording.events])
    assert main([str(tmp_path / "r.jsonl.gz")]) == 0
    said = capsys.readouterr().out
    assert "Knobs turned again when they were: --batching, --max-num-seqs." in said
    assert "Speculation (ngram:3) is replayed with the guesses that it made." in said
    assert main([str(tmp_path / "r.jsonl.gz"), "--max-num-seqs=4", "--speculative=none"]) == 0
    said = capsys.readouterr().out
    assert "Knobs turned again when they were: --batching; held, since given here: --max-num-seqs." in said
    assert "Speculation (ngram:3) is left out." in said


def test_a_flag_that_says_what_was_recorded_holds_the_knob(tmp_path, capsys):
    recording = record(turns=[(20, {"max_num_seqs": 2})])
    write_recording(tmp_path / "r.jsonl.gz", [recording.hello, *recording.events])
    assert main([str(tmp_path / "r.jsonl.gz"), "--max-num-seqs=4"]) == 0
    assert "turned again when they were: none; held" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "word"),
    [
        ("--speculative=ngram:2", "--speculative"),
        ("--model=x", "--model"),
        ("--kv-cache-dtype=int8", "--kv-cache-dtype"),
        ("--watermark=2", "watermark"),
    ],
)
def test_a_knob_that_cannot_be_simulated_is_refused(file, capsys, flag, word):
    assert main([str(file), flag]) == 2
    assert word in capsys.readouterr().err


def test_a_recording_without_requests_is_refused(tmp_path, capsys):
    recording = record(count=0)
    write_recording(tmp_path / "r.jsonl.gz", [recording.hello, *recording.events])
    assert main([str(tmp_path / "r.jsonl.gz")]) == 2
    assert "nothing to replay" in capsys.readouterr().err


def test_the_command_says_what_is_missing(tmp_path, capsys):
    recording = with_a_hole(record(count=12), 20, 29)
    write_recording(tmp_path / "r.jsonl.gz", [recording.hello, *recording.events])
    assert main([str(tmp_path / "r.jsonl.gz"), f"--json={tmp_path / 'n.json'}"]) == 0
    assert "The recording lost 10 steps: " in capsys.readouterr().out
    assert json.loads((tmp_path / "n.json").read_text())["missing_steps"] == 10


def test_the_command_replays_the_last_run(tmp_path, capsys):
    recording = two_runs()
    write_recording(tmp_path / "r.jsonl.gz", [recording.hello, *recording.events])
    out = tmp_path / "o.jsonl.gz"
    assert main([str(tmp_path / "r.jsonl.gz"), "--last-run", "--batching=static", f"--out={out}"]) == 0
    assert "Simulated: 7 requests arrive when they did" in capsys.readouterr().out
    assert read_recording(out).hello["config"]["max_num_seqs"] == 2


def test_an_engine_that_simulates_loads_no_model():
    config = EngineConfig(simulate=True)
    assert config.scripted
    assert scripted_facts(config).model.name == "scripted"


def test_its_cost_model_is_checked_before_it_serves():
    with pytest.raises(Exception, match=r"nowhere\.json"):
        paced_runner("nowhere.json")


def _without(kind, name):
    """The same recording from a program whose events of this kind lack a field."""
    return lambda event: {key: value for key, value in event.items() if event["kind"] != kind or key != name}


def _with(kind, name, value):
    return lambda event: {**event, name: value} if event["kind"] == kind and name in event else event


@pytest.mark.parametrize(
    "damage",
    [
        *(_without("hello", name) for name in ("config", "model", "memory", "block_size", "engine")),
        *(_without("step", name) for name in ("rows", "tables", "hashed", "wall_us", "phases_us", "gated")),
        *(_without("request", name) for name in ("event", "request", "arrival_us", "sampling", "owner", "priority")),
        _with("hello", "config", {"num_blocks": None}),
        _with("hello", "config", []),
        _with("request", "num_prompt_tokens", -5),
        _with("request", "num_prompt_tokens", 10**9),
        _with("request", "num_output_tokens", 10**9),
        _with("request", "arrival_us", "soon"),
        _with("step", "rows", 7),
    ],
)
def test_a_recording_that_cannot_be_understood_is_one_sentence(tmp_path, capsys, damage):
    recording = record(count=8)
    file = tmp_path / "r.jsonl.gz"
    write_recording(file, map(damage, [recording.hello, *recording.events]))
    assert main([str(file)]) == 2
    said = capsys.readouterr().err
    assert "cannot be understood" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("option", ["--out", "--json", "--save-cost-model"])
def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path, capsys, option):
    recording = record(count=12)
    file = tmp_path / "r.jsonl.gz"
    write_recording(file, [recording.hello, *recording.events])
    assert main([str(file), option, str(tmp_path / "no" / "such")]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err
