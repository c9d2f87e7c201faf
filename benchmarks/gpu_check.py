"""`make gpu-check`: what only a GPU can tell, in one table; under five minutes, without network or web packages.

Kernels against fp32 oracles; replayed decode steps against eager ones; the engine's tokens against the CPU's; how often
a step waits for the device; an engine as `serve` makes it. Then speed, beside roofs measured on the same device: decode
at several batch sizes, a long prefill, attention by itself, the time that the host takes per step, and transformers'
generate for the ratio. Weights are random: speed does not depend on what they say. `DRY=1` runs all of it on the CPU
with tiny shapes, to test the way through: what is right or wrong counts there too, speed is printed and means nothing.

Exit 0 if every promise is kept, 1 if one is missed, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.figures import Figure
from benchmarks.gpu_attention import Tried, described
from benchmarks.gpu_bench import Plan, plan
from benchmarks.gpu_right import equality, kernels, serving, waits
from benchmarks.gpu_speed import attention_speed, decode_speed, sampling, transformers_ratio
from engine.roofs import measure_roofs

RESULT_FILE = Path(__file__).parent / "gpu_check.out.json"


def check(p: Plan, tried: list[Tried]) -> Iterator[Figure]:
    roofs = measure_roofs(p.device, p.dtype)
    yield Figure("copy, read and written", roofs.bytes_per_s / 1e9, "GB/s")
    yield Figure(f"matrix product, {str(p.dtype).removeprefix('torch.')}", roofs.flops / 1e12, "TFLOP/s")
    yield from _surely("kernels", kernels(p))
    yield from _surely("equality", equality(p))
    yield from _surely("waits", waits(p))
    yield from _surely("serving", serving(p))
    for name, config in (("1B", p.small), ("8B", p.large)):
        yield from _surely(name, decode_speed(p, config, name, roofs))
    yield from _surely("attention", attention_speed(p, p.large, roofs, tried))
    yield from _surely("sampling", sampling(p, p.large.vocab_size))
    yield from _surely("transformers", transformers_ratio(p, p.small, 64 if p.device.type == "cuda" else 2))


def _surely(name: str, part: Iterator[Figure]) -> Iterator[Figure]:
    """A part that fails is a promise missed, and no reason to leave out the others."""
    try:
        yield from part
    except Exception:
        traceback.print_exc()
        yield Figure(f"{name}: failed, see above", 1, "failure", at_most=0)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make gpu-check", description=__doc__)
    parser.add_argument("--dry", action="store_true", help="on the CPU, with tiny shapes")
    parser.add_argument("--output", type=Path, default=RESULT_FILE, metavar="FILE")
    args = parser.parse_args(argv)
    if not args.dry and not torch.cuda.is_available():
        print(f"No CUDA device: torch {torch.__version__} finds none here. DRY=1 tries the way through on the CPU.")
        return 2
    p = plan(args.dry)
    findings: list[Figure] = []
    tried: list[Tried] = []
    start = time.perf_counter()
    for finding in check(p, tried):
        findings.append(finding)
        print(finding.line(52, ">12.4g"), flush=True)
    name = "dry run on the CPU" if args.dry else torch.cuda.get_device_name(p.device)
    seconds = time.perf_counter() - start
    print(f"{name}, torch {torch.__version__}, {seconds:.0f} s" + ("; the numbers mean nothing" if args.dry else ""))
    lines = [{**dataclasses.asdict(finding), "kept": finding.kept} for finding in findings]
    found = {"device": name, "torch": torch.__version__, "findings": lines, "tuning": [described(one) for one in tried]}
    args.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(finding.kept for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
