"""What a step asks of a GPU: how many launches and copies beside the model's own, and that it waits only once.

The device is torch's `meta`: it has no numbers, so whatever would wait for one raises. In place of kernels there are
shapes only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine import drafter, model_runner
from engine.config import EngineConfig
from engine.kv_cache import size_pool_for
from engine.loader import Loaded, model_facts
from engine.model_runner import ModelRunner
from engine.models.config import expected_tensors, parse_model_config
from engine.models.llama import Llama
from engine.models.ops import Ops
from engine.request import Request, SamplingParams
from engine.runner import ScheduledRow, SchedulerOutput
from tests.engine.tiny import tiny_config

META = torch.device("meta")
MODEL = parse_model_config(tiny_config(), "tiny")
SHAPES_ONLY = Ops(
    rms_norm=lambda x, weight, eps: x,
    add_rms_norm=lambda x, residual, weight, eps: (x, residual),
    rotate_and_store=lambda *inputs: None,
    attend=lambda qkv, cache, meta: qkv[:, : MODEL.num_attention_heads],
    silu_and_mul=lambda gate_up: gate_up.chunk(2, dim=-1)[0],
)


def loaded() -> Loaded:
    shapes = expected_tensors(MODEL)
    return Loaded(
        model=Llama(MODEL, lambda name: torch.empty(shapes[name], device=META), SHAPES_ONLY),
        tokenizer=None,  # type: ignore[arg-type]
        chat_template=None,
        special_tokens={},
        eos_token_ids=frozenset(),
        facts=model_facts("tiny", MODEL, torch.float32, has_chat_template=False),
        folder=Path(),
    )


class Waits:
    """Stands in for the copy of token ids: counts, and gives zeros."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, token_ids: torch.Tensor) -> list[int]:
        assert token_ids.device == META
        self.count += 1
        return [0] * len(token_ids)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    counter = Waits()
    monkeypatch.setattr(model_runner, "to_host", counter)
    monkeypatch.setattr(drafter, "to_host", counter)
    return counter


class Asked(TorchDispatchMode):
    """Everything asked of the device that is no mere view: copies to it, copies from it, launches."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        devices = {value.device for value in (*args, result) if isinstance(value, torch.Tensor)}
        if len(devices) > 1:
            self.names.append("copy")
        elif devices == {META} and not func.is_view:
            self.names.append(func.overloadpacket._qualified_op_name)
        return result


def runner(**flags: Any) -> ModelRunner:
    model = loaded()
    draft = loaded() if flags.get("speculative", "").startswith("draft") else None
    config, _ = size_pool_for(
        EngineConfig(num_blocks=64, block_size=4, **flags), model.facts, None, draft.facts if draft else None
    )
    return ModelRunner(model, config, draft)


def decoding(*lengths: int, drafts: int = 0, **params: Any) -> SchedulerOutput:
    """A step of one row per length: its last token, and guesses that are still to be made."""
    rows = []
    for length in lengths:
        request = Request(
            request_id="r",
            prompt_token_ids=[1] * (length - 1),
            sampling_params=SamplingParams(**{"temperature": 0.0, **params}),
            max_tokens=9,
            seed=0,
            stop_token_ids=frozenset({2}),
            arrival_us=0,
            block_table=list(range(-(-(length + drafts) // 4))),
        )
        request.token_ids.append(1)
        rows.append(ScheduledRow(request, length - 1, 1 + drafts, [], draft_token_ids=[-1] * drafts))
    return SchedulerOutput(rows=rows)


def step(runner: ModelRunner, output: SchedulerOutput) -> list[str]:
    with Asked() as asked:
        runner.draft(output)
        batch = runner.prepare(output)
        runner.sample(batch, runner.forward(batch))
    return asked.names


@pytest.mark.parametrize("lengths", [(7,), (7, 3, 12)])
def test_a_replayed_greedy_step_is_one_copy_the_replay_an_argmax_and_one_wait(lengths: tuple[int, ...], waits: Waits):
    replays: list[int] = []

    def capture(work: Any) -> Any:
        result = work()
        return lambda: replays.append(len(result)), result

    engine = runner(max_num_seqs=4)
    engine.capture(capture)
    assert step(engine, decoding(*lengths)) == ["copy", "aten::argmax"]
    assert replays == [4 if len(lengths) == 3 else 1]
    assert waits.count == 1


def test_an_eager_step_sends_its_inputs_in_one_copy_too(waits: Waits):
    asked = step(runner(), decoding(7, 3))
    assert asked.count("copy") == 1
    assert waits.count == 1


def test_tokens_that_may_not_come_yet_do_not_make_a_step_wait(waits: Waits):
    step(runner(), decoding(7, 3, min_tokens=5))
    assert waits.count == 1


def test_each_guess_of_a_draft_model_is_waited_for_and_nothing_else(waits: Waits):
    step(runner(speculative="draft:first-1-layers:3"), decoding(7, 3, drafts=3))
    assert waits.count == 3 + 1


def test_a_model_launches_its_matrix_products_and_lookups_once_each(waits: Waits):
    """q, k and v are one product, gate and up another."""
    asked = step(runner(), decoding(7))
    products = [name for name in asked if name in ("aten::mm", "aten::addmm", "aten::linear")]
    assert len(products) == 4 * MODEL.num_layers + 1  # the head
    assert asked.count("aten::index") == 3  # the embedding, and the last rows of the two terms of the sum


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield
