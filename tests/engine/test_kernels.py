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

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Triton is there on Linux only"),
    pytest.mark.timeout(900),  # a process of many tests; on a busy machine it takes minutes
]


def run(kind: str, tmp_path: Path, **environment: str) -> None:
    """The files of one kind, in one process; its output is the message if it fails."""
    foreign = ("TRITON_INTERPRET", "PYTEST_")  # of a run that this one is a test of
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    cache = {"TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}  # what was compiled before proves nothing
    files = [str(path) for path in sorted(FOLDER.glob(f"{kind}_*.py"))]
    assert files
    # A worker per core: interpreting is one thread of Python, and so is most of compiling.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "logical", *files]
    done = subprocess.run(
        command, cwd=ROOT, env=inherited | cache | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_interpreted_they_equal_their_oracles(tmp_path: Path):
    run("interpreted", tmp_path, TRITON_INTERPRET="1")


def test_they_compile_for_gpus_that_are_not_here(tmp_path: Path):
    run("compiled", tmp_path)


def test_the_engine_does_not_load_triton_unless_a_kernel_is_used():
    code = "import sys, engine.model_runner, engine.__main__; sys.exit('engine.kernels' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
