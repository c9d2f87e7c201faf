"""`make gpu-check` where there is no GPU: it says so, and DRY=1 goes all the way through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def gpu_check(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_check", *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_one_sentence_and_exit_2():
    done = gpu_check()
    assert done.returncode == 2
    assert done.stdout.startswith("No CUDA device: ")
    assert done.stdout.count("\n") == 1


def test_a_dry_run_goes_through_everything_and_writes_its_table(tmp_path: Path):
    done = gpu_check("--dry", "--output", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    names = [line["name"] for line in found["findings"]]
    assert found["device"] == "dry run on the CPU"
    for part in (
        "copy",
        "attention float32, heads of 128, cache int8",
        "replayed",
        "waits per decode step",
        "8B: decode",
        "picks equal",
        "ours over theirs",
    ):
        assert any(part in name for name in names), part
    assert all(line["kept"] for line in found["findings"])
    assert found["tuning"][0].keys() >= {"tile", "num_warps", "num_stages", "programs_per_processor", "us"}
