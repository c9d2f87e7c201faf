"""`make gpu-check`: is it quick? Beside roofs measured on the same device, and transformers' generate."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import torch

from benchmarks.figures import Figure
from benchmarks.gpu_attention import AttentionStep, Tried
from benchmarks.gpu_bench import SILENT, Bench, Plan, random_model
from benchmarks.gpu_sampling import picks_equal, sampling_seconds
from engine import events
from engine.models.config import ModelConfig
from engine.roofs import Roofs


def device_busy(name: str, batch: int, steps: list[events.Step]) -> Iterator[Figure]:
    """In what share of these steps' time the device worked."""
    shares = [step.device_us / step.wall_us for step in steps if step.device_us is not None]
    if shares:
        yield Figure(f"{name}: device busy, batch {batch}", statistics.median(shares), "of the step")


def decode_speed(p: Plan, config: ModelConfig, name: str, roofs: Roofs) -> Iterator[Figure]:
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
        yield Figure(f"{name}: decode, batch {batch}", batch / wall, "tok/s")
        share = steps[-1].bytes / wall / roofs.bytes_per_s
        target = p.promised(0.8) if batch == 1 and name == "8B" else None
        yield Figure(f"{name}: bytes of that, of the measured copy", share, "×", at_least=target)
        yield Figure(
            f"{name}: host time per step, batch {batch}", host, "ms", at_most=p.promised(1.0) if batch == 1 else None
        )
        yield from device_busy(name, batch, steps)
    bench.submit(1, p.long_prompt, 2, config.vocab_size)
    bench.run()
    prefill = max(bench.steps(), key=lambda s: s.num_prefill_tokens)
    rate = prefill.flops / (prefill.wall_us / 1e6) / roofs.flops
    yield Figure(f"{name}: prefill of {prefill.num_prefill_tokens} tokens", prefill.wall_us / 1e3, "ms")
    yield Figure(
        f"{name}: FLOPs of that, of the measured product", rate, "×", at_least=p.promised(0.6) if name == "8B" else None
    )


def attention_speed(p: Plan, config: ModelConfig, roofs: Roofs, tried: list[Tried]) -> Iterator[Figure]:
    """One layer's attention of a decode step over long sequences, by itself: bytes of keys and values per second."""
    sequences, length = p.attention
    step = AttentionStep(config, sequences, length, p.device, p.dtype)
    seconds = step.seconds(step.as_launched())
    yield Figure(f"attention, {sequences} × {length} tokens", seconds * 1e6, "µs")
    share = step.moved_bytes / seconds / roofs.bytes_per_s
    yield Figure("bytes of that, of the measured copy", share, "×", at_least=p.promised(0.7))
    tried += step.try_all()
    best = min(tried, key=lambda one: one.seconds)
    worst = max(one.difference for one in tried)
    yield Figure(f"other launches of that, {len(tried)} tried", worst, "difference", at_most=0.005)
    yield Figure(f"best of them, {best.numbers}", best.seconds * 1e6, "µs")
    share = step.moved_bytes / best.seconds / roofs.bytes_per_s
    yield Figure("bytes of that, of the measured copy", share, "×")


def sampling(p: Plan, vocab_size: int) -> Iterator[Figure]:
    """Of rows with all kinds of limits: the same tokens as torch's, and the time."""
    few, many = p.sampled
    yield Figure(
        "sampling: picks equal to torch's",
        picks_equal(p.device, few, vocab_size),
        f"of {few}",
        at_least=p.promised(few),
    )
    for batch in (few, many):
        for name, seconds in sampling_seconds(p.device, batch, vocab_size):
            yield Figure(f"sampling, batch {batch}, {name}", seconds * 1e6, "µs")


def transformers_ratio(p: Plan, config: ModelConfig, batch: int) -> Iterator[Figure]:
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
    yield Figure(f"transformers generate, batch {batch}", theirs, "tok/s")
    yield Figure("ours over theirs", ours / theirs, "×", at_least=p.promised(5.0))
