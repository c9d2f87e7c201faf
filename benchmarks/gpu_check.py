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
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_attention import AttentionStep, Tried, described
from benchmarks.gpu_kernels import kernel_errors
from benchmarks.gpu_sampling import picks_equal, sampling_seconds
from engine import events
from engine.build import Built, build
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.detokenizer import Detokenizer
from engine.emitter import Emitter
from engine.graphs import Capture, CudaCapture, repeat
from engine.kv_cache import size_pool
from engine.loader import Loaded, model_facts
from engine.model_runner import ModelRunner
from engine.models.config import ModelConfig, RopeConfig, expected_tensors
from engine.models.llama import Llama
from engine.models.ops import choose_ops
from engine.reporter import StepCost
from engine.request import Request, SamplingParams
from engine.roofline import total_cost
from engine.roofs import Roofs, measure_roofs
from engine.runner import Runner
from engine.timing import monotonic_clock

RESULT_FILE = Path(__file__).parent / "gpu_check.out.json"
STD = 0.02  # of random weights
SILENT = 0  # a token that says nothing


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table. `at_least` and `at_most` are the promise, if there is one."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def kept(self) -> bool:
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    @property
    def promise(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        bound = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        return f"{bound} {'ok' if self.kept else 'MISSED'}"


@dataclass(frozen=True, slots=True)
class Plan:
    """How large everything is: for a GPU, or for a dry run."""

    device: torch.device
    dtype: torch.dtype
    capture: Callable[[], Capture]
    small: ModelConfig
    large: ModelConfig
    batches: tuple[int, ...]
    prompt_tokens: int
    long_prompt: int
    steps: int
    attention: tuple[int, int]  # sequences, tokens of each
    sampled: tuple[int, int]  # batch sizes

    def promised(self, value: float) -> float | None:
        """A promise about speed, which a dry run does not make."""
        return value if self.device.type == "cuda" else None


def llama_shape(layers: int, hidden: int, inner: int, heads: int, kv_heads: int, vocab: int = 128_256) -> ModelConfig:
    return ModelConfig(
        architecture="LlamaForCausalLM",
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=hidden // heads,
        vocab_size=vocab,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        rope=RopeConfig(theta=500_000.0),
        tie_word_embeddings=False,
    )


TINY = llama_shape(layers=2, hidden=64, inner=96, heads=4, kv_heads=2, vocab=272)


def plan(dry: bool) -> Plan:
    if dry:
        cpu = torch.device("cpu")
        return Plan(cpu, torch.float32, lambda: repeat, TINY, TINY, (1, 4), 16, 64, 3, (2, 40), (6, 12))
    return Plan(
        device=torch.device("cuda", torch.cuda.current_device()),
        dtype=torch.bfloat16,
        capture=CudaCapture,
        small=llama_shape(layers=16, hidden=2048, inner=8192, heads=32, kv_heads=8),  # 1B class
        large=llama_shape(layers=32, hidden=4096, inner=14_336, heads=32, kv_heads=8),  # 8B class
        batches=(1, 8, 64, 256),
        prompt_tokens=128,
        long_prompt=2000,
        steps=20,
        attention=(32, 4000),
        sampled=(64, 256),
    )


# -- models and engines ------------------------------------------------------------------------------------------


def random_model(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, made_on: torch.device | None = None
) -> Loaded:
    """A model with random weights, made on its device, which is quick, or on another, to be the same as there."""
    shapes = expected_tensors(config)
    maker = made_on or device
    generator = torch.Generator(maker).manual_seed(0)

    def weights(name: str) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shapes[name], dtype=dtype, device=device)
        return (torch.randn(shapes[name], generator=generator, dtype=dtype, device=maker) * STD).to(device)

    return Loaded(
        model=Llama(config, weights, choose_ops(device, dtype)),
        tokenizer=None,  # type: ignore[arg-type]  # nobody reads what random weights write
        chat_template=None,
        special_tokens={},
        eos_token_ids=frozenset(),
        facts=model_facts("random", config, dtype, has_chat_template=False),
        folder=Path(),
    )


class _Mute:
    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return ""


class Bench:
    """An engine over `loaded`, stepped by hand; `graphs` says how decode steps are captured."""

    def __init__(self, loaded: Loaded, graphs: Capture | None, **flags: Any) -> None:
        config, memory = size_pool(EngineConfig(enable_prefix_caching=False, **flags), loaded)
        runner = ModelRunner(loaded, config)
        runner.warm_up(lambda *report: None)
        if graphs is not None:
            runner.capture(graphs)
        self._open(config, runner, lambda rows: total_cost(loaded.facts, None, memory, rows))

    def _open(self, config: EngineConfig, runner: Runner, cost: StepCost) -> None:
        clock = monotonic_clock()
        self.sink: list[Any] = []
        self.core = EngineCore(
            config,
            runner,
            Emitter("gpu", "epoch", clock, self.sink),
            clock,
            lambda request: Detokenizer(_Mute(), request.prompt_token_ids),
            cost=cost,
        )

    def submit(self, count: int, prompt_tokens: int, output_tokens: int, vocab_size: int) -> list[Request]:
        requests = [
            Request(
                request_id=f"r{number}",
                prompt_token_ids=[
                    (7919 * (number * prompt_tokens + i) + 11) % vocab_size for i in range(prompt_tokens)
                ],
                sampling_params=SamplingParams(temperature=0.0, ignore_eos=True),
                max_tokens=output_tokens,
                seed=0,
                stop_token_ids=frozenset(),
                arrival_us=0,
            )
            for number in range(count)
        ]
        for request in requests:
            refusal = self.core.add(request)
            assert refusal is None, refusal
        return requests

    def run(self) -> None:
        while self.core.has_work:
            self.core.step()

    def steps(self) -> list[events.Step]:
        return [event for event in self.sink if isinstance(event, events.Step)]


# -- is it right ---------------------------------------------------------------------------------------------------


def kernels(p: Plan) -> Iterator[Finding]:
    for name, error, bound in kernel_errors(p.device):
        yield Finding(name, error, "worst error", at_most=bound)


def equality(p: Plan) -> Iterator[Finding]:
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
        yield Finding(f"answers equal to the CPU's, {name}", equal, "of 8", at_least=8)


class Served(Bench):
    """An engine made the way `serve` makes its own."""

    def __init__(self, built: Built) -> None:
        self._open(built.config, built.runner, built.cost)


def serving(p: Plan) -> Iterator[Finding]:
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
        yield Finding(f"serve takes this device, drafts {name}", taken, "of 1", at_least=1)
        bench = Served(built)
        requests = bench.submit(8, 40, 48, TINY.vocab_size)
        bench.run()
        whole = sum(request.num_output_tokens == 48 for request in requests)
        yield Finding(f"answers of serve's engine, drafts {name}", whole, "of 8", at_least=8)
        timed = sum(step.device_us is not None for step in bench.steps()) / len(bench.steps())
        yield Finding("steps of that, timed by the device's clock", timed, "of all", at_least=int(cuda))


def waits(p: Plan) -> Iterator[Finding]:
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
                yield Finding(f"waits per decode step, {name}, by {how}", found // p.steps, "per step", at_most=1)


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


def device_busy(name: str, batch: int, steps: list[events.Step]) -> Iterator[Finding]:
    """In what share of these steps' time the device worked."""
    shares = [step.device_us / step.wall_us for step in steps if step.device_us is not None]
    if shares:
        yield Finding(f"{name}: device busy, batch {batch}", statistics.median(shares), "of the step")


# -- is it quick ---------------------------------------------------------------------------------------------------


def decode_speed(p: Plan, config: ModelConfig, name: str, roofs: Roofs) -> Iterator[Finding]:
    loaded = random_model(config, p.device, p.dtype)
    most = max(p.batches)
    length = p.prompt_tokens + p.steps + 8
    bench = Bench(
        loaded,
        p.capture(),
        max_num_seqs=most,
        max_num_batched_tokens=max(2048, most),
        max_model_len=max(length, p.long_prompt + 8),
        num_blocks=-(-max(most * length, p.long_prompt + 8) // 16) + most,
    )
    for batch in p.batches:
        bench.submit(batch, p.prompt_tokens, p.steps + 4, config.vocab_size)
        bench.run()
        steps = [s for s in bench.steps() if s.num_prefill_tokens == 0 and s.num_decode_tokens == batch][-p.steps :]
        wall = statistics.median(s.wall_us for s in steps) / 1e6
        host = statistics.median(s.wall_us - s.phases_us["forward"] - s.phases_us["sample"] for s in steps) / 1e3
        yield Finding(f"{name}: decode, batch {batch}", batch / wall, "tok/s")
        share = steps[-1].bytes / wall / roofs.bytes_per_s
        target = p.promised(0.8) if batch == 1 and name == "8B" else None
        yield Finding(f"{name}: bytes of that, of the measured copy", share, "×", at_least=target)
        yield Finding(
            f"{name}: host time per step, batch {batch}", host, "ms", at_most=p.promised(1.0) if batch == 1 else None
        )
        yield from device_busy(name, batch, steps)
    bench.submit(1, p.long_prompt, 2, config.vocab_size)
    bench.run()
    prefill = max(bench.steps(), key=lambda s: s.num_prefill_tokens)
    rate = prefill.flops / (prefill.wall_us / 1e6) / roofs.flops
    yield Finding(f"{name}: prefill of {prefill.num_prefill_tokens} tokens", prefill.wall_us / 1e3, "ms")
    yield Finding(
        f"{name}: FLOPs of that, of the measured product", rate, "×", at_least=p.promised(0.6) if name == "8B" else None
    )


def attention_speed(p: Plan, config: ModelConfig, roofs: Roofs, tried: list[Tried]) -> Iterator[Finding]:
    """One layer's attention of a decode step over long sequences, by itself: bytes of keys and values per second."""
    sequences, length = p.attention
    step = AttentionStep(config, sequences, length, p.device, p.dtype)
    seconds = step.seconds(step.as_launched())
    yield Finding(f"attention, {sequences} × {length} tokens", seconds * 1e6, "µs")
    share = step.moved_bytes / seconds / roofs.bytes_per_s
    yield Finding("bytes of that, of the measured copy", share, "×", at_least=p.promised(0.7))
    tried += step.try_all()
    best = min(tried, key=lambda one: one.seconds)
    worst = max(one.difference for one in tried)
    yield Finding(f"other launches of that, {len(tried)} tried", worst, "difference", at_most=0.005)
    yield Finding(f"best of them, {best.numbers}", best.seconds * 1e6, "µs")
    share = step.moved_bytes / best.seconds / roofs.bytes_per_s
    yield Finding("bytes of that, of the measured copy", share, "×")


def sampling(p: Plan, vocab_size: int) -> Iterator[Finding]:
    """Of rows with all kinds of limits: the same tokens as torch's, and the time."""
    few, many = p.sampled
    yield Finding(
        "sampling: picks equal to torch's",
        picks_equal(p.device, few, vocab_size),
        f"of {few}",
        at_least=p.promised(few),
    )
    for batch in (few, many):
        for name, seconds in sampling_seconds(p.device, batch, vocab_size):
            yield Finding(f"sampling, batch {batch}, {name}", seconds * 1e6, "µs")


def transformers_ratio(p: Plan, config: ModelConfig, batch: int) -> Iterator[Finding]:
    """Output tokens per second through our engine, over transformers' generate with the same shape and batch."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        print("transformers is not installed: no ratio.")
        return
    output = 2 * p.steps
    loaded = random_model(config, p.device, p.dtype)
    length = p.prompt_tokens + output
    bench = Bench(
        loaded,
        p.capture(),
        max_num_seqs=batch,
        max_num_batched_tokens=max(2048, batch),
        max_model_len=length + 8,
        num_blocks=batch * (-(-length // 16) + 1),
    )
    start = time.perf_counter()
    bench.submit(batch, p.prompt_tokens, output, config.vocab_size)
    bench.run()
    ours = batch * output / (time.perf_counter() - start)
    del bench, loaded
    with torch.device(p.device):
        theirs_model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_attention_heads,
                num_key_value_heads=config.num_kv_heads,
                vocab_size=config.vocab_size,
                max_position_embeddings=config.max_position_embeddings,
            )
        )
    model = theirs_model.to(p.dtype).eval()
    prompts = torch.randint(0, config.vocab_size, (batch, p.prompt_tokens), device=p.device)
    asked = {"max_new_tokens": output, "min_new_tokens": output, "do_sample": False, "pad_token_id": SILENT}
    model.generate(prompts[:, :8], max_new_tokens=2, pad_token_id=SILENT)
    start = time.perf_counter()
    model.generate(prompts, attention_mask=torch.ones_like(prompts), **asked)
    theirs = batch * output / (time.perf_counter() - start)
    yield Finding(f"transformers generate, batch {batch}", theirs, "tok/s")
    yield Finding("ours over theirs", ours / theirs, "×", at_least=p.promised(5.0))


# -- the table -----------------------------------------------------------------------------------------------------


def check(p: Plan, tried: list[Tried]) -> Iterator[Finding]:
    roofs = measure_roofs(p.device, p.dtype)
    yield Finding("copy, read and written", roofs.bytes_per_s / 1e9, "GB/s")
    yield Finding(f"matrix product, {str(p.dtype).removeprefix('torch.')}", roofs.flops / 1e12, "TFLOP/s")
    yield from _surely("kernels", kernels(p))
    yield from _surely("equality", equality(p))
    yield from _surely("waits", waits(p))
    yield from _surely("serving", serving(p))
    for name, config in (("1B", p.small), ("8B", p.large)):
        yield from _surely(name, decode_speed(p, config, name, roofs))
    yield from _surely("attention", attention_speed(p, p.large, roofs, tried))
    yield from _surely("sampling", sampling(p, p.large.vocab_size))
    yield from _surely("transformers", transformers_ratio(p, p.small, 64 if p.device.type == "cuda" else 2))


def _surely(name: str, part: Iterator[Finding]) -> Iterator[Finding]:
    """A part that fails is a promise missed, and no reason to leave out the others."""
    try:
        yield from part
    except Exception:
        traceback.print_exc()
        yield Finding(f"{name}: failed, see above", 1, "failure", at_most=0)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make gpu-check", description=__doc__)
    parser.add_argument("--dry", action="store_true", help="on the CPU, with tiny shapes")
    parser.add_argument("--output", type=Path, default=RESULT_FILE, metavar="FILE")
    args = parser.parse_args(argv)
    if not args.dry and not torch.cuda.is_available():
        print(f"No CUDA device: torch {torch.__version__} finds none here. DRY=1 tries the way through on the CPU.")
        return 2
    p = plan(args.dry)
    findings: list[Finding] = []
    tried: list[Tried] = []
    start = time.perf_counter()
    for finding in check(p, tried):
        findings.append(finding)
        print(f"{finding.name:<52}{finding.value:>12.4g} {finding.unit:<12}{finding.promise}", flush=True)
    name = "dry run on the CPU" if args.dry else torch.cuda.get_device_name(p.device)
    seconds = time.perf_counter() - start
    print(f"{name}, torch {torch.__version__}, {seconds:.0f} s" + ("; the numbers mean nothing" if args.dry else ""))
    lines = [{**dataclasses.asdict(finding), "kept": finding.kept} for finding in findings]
    found = {"device": name, "torch": torch.__version__, "findings": lines, "tuning": [described(one) for one in tried]}
    args.output.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(finding.kept for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
