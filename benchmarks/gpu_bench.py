"""What `make gpu-check` measures with: its sizes, models of random weights, and engines that are stepped by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine import events
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
from engine.runner import Runner
from engine.timing import monotonic_clock

STD = 0.02  # of random weights
SILENT = 0  # a token that says nothing


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
