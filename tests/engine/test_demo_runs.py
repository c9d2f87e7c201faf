"""The runs that /compare shows before there are any of one's own."""

from benchmarks.demo_runs import FOLDER, demo_runs
from engine.recording import read_recording
from engine.summary import summarize


def test_the_demo_is_what_its_script_makes_and_small():
    for name, run in demo_runs():
        kept = FOLDER / f"{name}.jsonl.gz"
        assert summarize(read_recording(kept)) == summarize(run)
        assert kept.stat().st_size < 30_000
