"""`python -m benchmarks.mutants [WORD …]`: break the GPU kernels one line at a time and see which test notices.

Each mutant is one replacement in a copy of the sources. The tests that fit its file run there, under Triton's
interpreter, until one fails; that one's name is printed. Exit 1 if a mutant survives that is not marked as equal.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "tests/engine/kernels"


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str  # in engine/kernels, without .py
    name: str
    old: str  # there once
    new: str
    equal: str = ""  # why no test can tell the difference


MUTANTS = [
    Mutant("span", "causal mask: one token too many", "<= position[:", "- 1 <= position[:"),
    Mutant("span", "causal mask: one too few", "<= position[:", "< position[:"),
    Mutant("span", "unwritten slots read", "mask &= inside[:, None]", "mask &= (inside | True)[:, None]"),
    Mutant("span", "lanes past head_dim not masked", "mask = (d < HEAD_DIM)", "mask = (d < BLOCK_D)"),
    Mutant("span", "block ids of the wrong tile", "table, start + TILE, end", "table, start, end"),
    Mutant("span", "no scale", "        scores *= scale\n", "        scores *= 1.0\n"),
    Mutant("span", "no scale, quantised", "MASKED) * scale)[None", "MASKED))[None"),
    Mutant("span", "sum not rescaled", "total *= rescale[:, None]", "total *= 1.0"),
    Mutant("span", "norm not rescaled", "norm * rescale + tl.sum", "norm + tl.sum"),
    Mutant("span", "values take the keys' scales", "_load(value_scales + at", "_load(key_scales + at"),
    Mutant("span", "values' scales left out", "weights *= (value_scale / largest)", "weights *= (value_scale * 0 + 1)"),
    Mutant("span", "values' largest scale left out", 'input_precision="ieee") * largest', 'input_precision="ieee")'),
    Mutant("span", "scales not relative to the largest", "tl.maximum(tl.max(value_scale, 0), 1e-30)", "1.0"),
    Mutant("launch", "natural exponent to the base 2", "head_dim**-0.5 * math.log2(math.e)", "head_dim**-0.5"),
    Mutant("launch", "scale of the padded head", "head_dim**-0.5 *", "block_d**-0.5 *"),
    Mutant("attention", "first query looks one too far", "context + first + 1,", "context + first + 2,"),
    Mutant("attention", "fewer tiles without a mask", "context + first + 1,", "context + first,", "masked, not wrong"),
    Mutant(
        "attention", "last token of a tile dropped", "first + BLOCK_Q, query_len)", "first + BLOCK_Q, query_len) - 1"
    ),
    Mutant(
        "attention", "GQA: heads of another KV head", "kv_head * GROUP + lane % G", "(1 - kv_head) * GROUP + lane % G"
    ),
    Mutant("attention", "next tile's queries written", "(lane // GROUP < BLOCK_Q) & ", ""),
    Mutant("attention", "next row's queries written", " & (query < query_len)", ""),
    Mutant("attention", "rows found one late", "+ middle <= tile", "+ middle < tile"),
    Mutant("attention", "too few programs", "// block_q + num_rows", "// block_q + 1"),
    Mutant("split_kv", "token dropped at a split's edge", "(split + 1) * part, seq", "(split + 1) * part - 1, seq"),
    Mutant("split_kv", "parts rounded down", "tl.cdiv(seq_len, num_splits)", "(seq_len // num_splits)"),
    Mutant("split_kv", "GQA: heads of another KV head", "kv_head * GROUP + lane,", "(1 - kv_head) * GROUP + lane,"),
    Mutant("split_kv", "lanes of the next KV head written", "lane < GROUP", "lane < BLOCK_M"),
    Mutant("split_kv", "merged without maxima", "highest - tl.max(highest, 0)", "highest * 0"),
    Mutant("split_kv", "norms merged without maxima", "part_norm + at) * rescale", "part_norm + at)"),
    Mutant("split_kv", "a padding row is 0 / 0", "tl.maximum(norm, 1e-30)[:", "norm[:"),
    Mutant("split_kv", "a split padding row is 0 / 0", "/ tl.maximum(norm, 1e-30)\n", "/ norm\n"),
    Mutant("store", "slot -1 stored", "slot >= 0", "slot >= -1"),
    Mutant("store", "values' scales among the keys'", "mask, value_scales + at", "mask, key_scales + at"),
    Mutant("quantized", "int8 truncated", "return ((x + _INTEGERS) - _INTEGERS)", "return x"),
    Mutant("quantized", "fp8: ties away from zero", "0x7FFFF + ((bits >> 20) & 1)", "0x80000"),
    Mutant("quantized", "fp8: small numbers as large ones", "size < _LEAST_NORMAL", "size < 0.0"),
    Mutant("quantized", "fp8 read without its sign", "(stored & 0x80)", "(stored & 0)"),
    Mutant("quantized", "1 / scale overflows", "tl.where(scale >= _LEAST_SCALE", "tl.where(scale >= 0.0"),
    Mutant("rope", "sign of the first half", "first * c - second * s", "first * c + second * s"),
    Mutant("rope", "sign of the second half", "second * c + first * s", "second * c - first * s"),
    Mutant("rope", "values turned too", "if head < FIRST_V:\n        angle", "if head >= 0:\n        angle"),
    Mutant("rope", "slot -1 stored", "slot >= 0", "slot >= -1"),
    Mutant("norm", "no eps", "/ SIZE + eps", "/ SIZE"),
    Mutant("norm", "residual not added", "row += tl.load", "row += 0 * tl.load"),
    Mutant("norm", "sum not rounded", "row = rounded.to(tl.float32)", "row += 0"),
    Mutant(
        "activation", "silu of the wrong half", "gate / (1.0 + tl.exp(-gate)) * up", "up / (1.0 + tl.exp(-up)) * gate"
    ),
    Mutant("sampling", "top-k: a tie too few", "<= ties", "< ties"),
    Mutant("sampling", "top-k: one too many", "if count == top_k", "if count == top_k + 1"),
    Mutant("sampling", "top-p: the edge itself", ">= wanted", "> wanted"),
    Mutant("sampling", "min-p: the edge itself", ">= log_min_p", "> log_min_p"),
    Mutant("sampling", "min-p times, not over temperature", "- highest, temperature)", "- highest, 1 / temperature)"),
    Mutant("sampling", "ties of top-k below min-p's edge", "tl.where(unlikely >= least, 0, ties)", "ties"),
    Mutant("sampling", "forbidden ignored", "without_forbidden(logits, draws)\n", "logits\n"),
    Mutant("sampling", "the last of the best", "top > highest, start", "top >= highest, start"),
    Mutant("sampling", "the same noise at each index", "zero + output_index", "zero"),
]
TESTS = {
    "span": ("attention", "not is_stored and not be_stored and not halves"),
    "launch": ("attention", "any_head_size"),
    "attention": ("attention", "batch or tiles or program or chunk or padding or mask"),
    "split_kv": ("attention", "split or decode or padding"),
    "store": ("attention", "is_stored or nothing"),
    "quantized": ("attention", "is_stored or be_stored or halves or fp8"),
    "norm": ("ops", "norm"),
    "activation": ("ops", "silu"),
    "rope": ("ops", "rotate"),
    "sampling": ("sampling", ""),
}
"""By file: which of the tests' files, and pytest's -k."""


class FirstFailure:
    """A pytest plugin."""

    name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.name = self.name or report.nodeid.rpartition("::")[2]


def run(mutant: Mutant, answer: Connection) -> None:
    """In a process of its own: which test fails first."""
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    first = FirstFailure()
    kind, chosen = TESTS[mutant.file]
    command = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", os.getcwd(), "-k", chosen]
    status = pytest.main([*command, f"{FOLDER}/interpreted_{kind}.py"], plugins=[first])
    answer.send(first.name or ("" if status == pytest.ExitCode.OK else f"pytest: {status!r}"))


def caught_by(mutant: Mutant, copy: Path) -> str:
    """The name of the first test that fails; none if all pass."""
    path = copy / "engine" / "kernels" / f"{mutant.file}.py"
    source = path.read_text()
    assert source.count(mutant.old) == 1, f"{mutant.file}: {mutant.old!r} is there {source.count(mutant.old)} times"
    path.write_text(source.replace(mutant.old, mutant.new))
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=run, args=(mutant, theirs))
    process.start()
    theirs.close()
    try:
        found: str = ours.recv()
    except EOFError:
        found = "the process died"
    process.join()
    path.write_text(source)
    return found


def prepare(copy: Path) -> None:
    """Move to a copy, and import all but the kernels and their tests: once, not once per mutant."""
    for name in ("engine", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "browser", "app"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    os.chdir(copy)
    os.environ |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True  # two mutants of a second and a size would pass for the same
    for name in (
        "hypothesis",
        "torch.distributed.tensor",  # which assert_close imports when it is first called
        "triton",
        "engine.sampler",
        "tests.engine.test_attention",
    ):
        importlib.import_module(name)


def main(words: list[str]) -> int:
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        prepare(copy)
        for mutant in MUTANTS:
            title = f"{mutant.file}: {mutant.name}"
            if words and not any(word in title for word in words):
                continue
            found = caught_by(mutant, copy)
            survivors += not found and not mutant.equal
            print(f"{title:<56}{found or ('equal: ' + mutant.equal if mutant.equal else 'SURVIVED')}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
