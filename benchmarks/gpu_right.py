"""`make gpu-check`: is it right? Kernels against fp32 oracles, an engine's tokens against the CPU's, an engine as
`serve` makes it, and how often a step waits for the device."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.figures import Figure
from benchmarks.gpu_bench import TINY, Bench, Plan, random_model
from benchmarks.gpu_kernels import kernel_errors
from engine.build import Built, build
from engine.config import EngineConfig


def kernels(p: Plan) -> Iterator[Figure]:
    for name, error, bound in kernel_errors(p.device):
        yield Figure(name, error, "worst error", at_most=bound)


def equality(p: Plan) -> Iterator[Figure]:
    """A small model in fp32: the same tokens as on the CPU, eager and replayed."""
    config = dataclasses.replace(TINY, num_layers=4)
    flags: dict[str, Any] = {"num_blocks": 256, "max_model_len": 256, "max_num_seqs": 8, "max_num_batched_tokens": 64}
    expected = Bench(random_model(config, torch.device("cpu"), torch.float32), None, **flags)
    wanted = expected.submit(8, 40, 48, config.vocab_size)
    expected.run()

    there = random_model(config, p.device, torch.float32, made_on=torch.device("cpu"))
    for name, graphs in (("eager", None), ("replayed", p.capture())):
        bench = Bench(there, graphs, **flags)
        found = bench.submit(8, 40, 48, config.vocab_size)
        bench.run()
        equal = sum(a.output_token_ids == b.output_token_ids for a, b in zip(found, wanted, strict=True))
        yield Figure(f"answers equal to the CPU's, {name}", equal, "of 8", at_least=8)


class Served(Bench):
    """An engine made the way `serve` makes its own."""

    def __init__(self, built: Built) -> None:
        self._open(built.config, built.runner, built.cost)


def serving(p: Plan) -> Iterator[Figure]:
    """From a config.json to answers: the device that `auto` chooses, roofs, a pool as large as memory lets it be."""
    cuda = p.device.type == "cuda"
    raw = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": TINY.hidden_size,
        "intermediate_size": TINY.intermediate_size,
        "num_hidden_layers": TINY.num_layers,
        "num_attention_heads": TINY.num_attention_heads,
        "num_key_value_heads": TINY.num_kv_heads,
        "vocab_size": TINY.vocab_size,
    }
    for speculative in ("none", "draft:first-1-layers:3"):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(raw))
            config = EngineConfig(
                model=folder, load_format="dummy", device="auto" if cuda else "cpu", speculative=speculative
            )
            built = build(config, lambda *report: None)
        name = speculative.split(":")[0]
        taken = int(built.device.type == p.device.type)
        yield Figure(f"serve takes this device, drafts {name}", taken, "of 1", at_least=1)
        bench = Served(built)
        requests = bench.submit(8, 40, 48, TINY.vocab_size)
        bench.run()
        whole = sum(request.num_output_tokens == 48 for request in requests)
        yield Figure(f"answers of serve's engine, drafts {name}", whole, "of 8", at_least=8)
        timed = sum(step.device_us is not None for step in bench.steps()) / len(bench.steps())
        yield Figure("steps of that, timed by the device's clock", timed, "of all", at_least=int(cuda))


def waits(p: Plan) -> Iterator[Figure]:
    """How often a decode step waits for the device: for the copy of its tokens, and for nothing hidden beside it."""
    loaded = random_model(TINY, p.device, p.dtype)
    for name, graphs in (("eager", None), ("replayed", p.capture())):
        bench = Bench(loaded, graphs, num_blocks=64, max_model_len=128, max_num_seqs=4, max_num_batched_tokens=64)
        bench.submit(4, 8, 2 * p.steps + 8, TINY.vocab_size)
        for _ in range(4):  # the prompts, and what happens at first only
            bench.core.step()
        for how, found in (("profiler", profiled_waits(bench, p)), ("debug mode", warned_waits(bench, p))):
            if found is not None:
                # Rounded down: stopping a profiler takes a synchronisation of its own.
                yield Figure(f"waits per decode step, {name}, by {how}", found // p.steps, "per step", at_most=1)


WAITING_CALLS = {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy"}
WAITING_OPS = {"aten::_local_scalar_dense", "aten::nonzero"}  # on a CPU nothing waits: what would on a GPU


def profiled_waits(bench: Bench, p: Plan) -> int:
    cuda = p.device.type == "cuda"
    kinds = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if cuda else [])]
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(p.steps):
            bench.core.step()
    calls = WAITING_CALLS if cuda else WAITING_OPS
    return sum(event.count for event in profile.key_averages() if event.key in calls)


def warned_waits(bench: Bench, p: Plan) -> int | None:
    if p.device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(p.steps):
                bench.core.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in caught)
