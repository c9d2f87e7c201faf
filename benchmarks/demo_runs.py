"""`python -m benchmarks.demo_runs`: the two small runs that /compare shows before there are any of one's own.

24 requests at once, 8 slots, every eighth answer long: the same arrivals under static and under continuous batching, in
virtual time at the built-in pace. Seeded, so the same files come out again.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lab import VirtualMachine
from benchmarks.lessons import one_long_mix, submit_mix
from benchmarks.school import School
from engine.cost_model import BUILTIN_MODEL
from engine.recording import Recording
from engine.simulation import simulate
from engine.workload import workload

FOLDER = Path(__file__).resolve().parent.parent / "static" / "demo"
REQUESTS, BLOCKS = 24, 128


def demo_runs() -> Iterator[tuple[str, Recording]]:
    """Each run's name and events."""
    school = School(VirtualMachine())
    lab = school.machine.lab(num_blocks=BLOCKS)
    submit_mix(school, lab, one_long_mix(school.rng(), REQUESTS))
    lab.run()
    run = lab.result()
    for batching in ("static", "continuous"):
        config = dataclasses.replace(run.config, batching=batching)
        yield batching, simulate(workload(run.recording), config, BUILTIN_MODEL, run.recording.hello, {"batching"})


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, recording in demo_runs():
        lines = (json.dumps(event, separators=(",", ":")) + "\n" for event in [recording.hello, *recording.events])
        data = gzip.compress("".join(lines).encode(), 9, mtime=0)
        (FOLDER / f"{name}.jsonl.gz").write_bytes(data)
        print(f"{name}: {len(recording.steps())} steps, {len(data):,} bytes")


if __name__ == "__main__":
    main()
