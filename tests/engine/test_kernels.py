"""The Triton kernels without a GPU: interpreted they equal their torch oracles, and they compile for real ones.

TRITON_INTERPRET decides what `triton.jit` makes of a kernel, once, at import: so each half is a process of its own, and
none of it is imported here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "tests" / "engine" / "kernels"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is there on Linux only")


def run(name: str, tmp_path: Path, *, interpret: bool) -> None:
    """One file of tests, in a process with or without the interpreter; its output is the message if it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)  # what was compiled before proves nothing
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(FOLDER / name)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_interpreted_attention_kernels_equal_their_oracles(tmp_path: Path):
    run("interpreted_attention.py", tmp_path, interpret=True)


def test_attention_kernels_compile_for_a_gpu_that_is_not_here(tmp_path: Path):
    run("compiled_attention.py", tmp_path, interpret=False)


def test_the_engine_does_not_load_triton_unless_a_kernel_is_used():
    code = "import sys, engine.model_runner, engine.__main__; sys.exit('engine.kernels' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
