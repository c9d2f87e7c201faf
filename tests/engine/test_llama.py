"""The forward pass equals transformers' on tiny random checkpoints in fp32, however the tokens are cut into steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.config import EngineConfig
from engine.kv_cache import size_pool
from engine.loader import load
from engine.model_runner import ModelRunner
from engine.models.config import RopeConfig, parse_model_config
from engine.models.linear import PackedLinear, PlainLinear, packs
from engine.models.llama import rope_frequencies
from engine.request import Request, SamplingParams
from engine.runner import ScheduledRow, SchedulerOutput
from tests.engine.tiny import tiny_config, write_folder

PROMPTS = [list(range(5, 5 + n)) for n in (1, 7, 16, 33)]
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def make_runner(folder: Path, **flags: Any) -> ModelRunner:
    config = EngineConfig(model=str(folder), num_blocks=64, **flags)
    loaded = load(config, lambda *report: None)
    return ModelRunner(loaded, size_pool(config, loaded)[0])


def make_request(prompt: list[int], first_block: int) -> Request:
    return Request(
        request_id=str(first_block),
        prompt_token_ids=prompt,
        sampling_params=SamplingParams(temperature=0.0),
        max_tokens=1,
        seed=0,
        stop_token_ids=frozenset(),
        arrival_us=0,
        block_table=list(range(first_block, first_block + 8)),
    )


def last_logits(runner: ModelRunner, prompts: list[list[int]], chunk: int) -> torch.Tensor:
    """Logits after each whole prompt, all prompts running side by side, `chunk` tokens of each per step."""
    requests = [make_request(prompt, 8 * i) for i, prompt in enumerate(prompts)]
    found: dict[Request, torch.Tensor] = {}
    for start in range(0, max(map(len, prompts)), chunk):
        live = [r for r in requests if r.num_tokens > start]
        rows = [ScheduledRow(r, start, min(chunk, r.num_tokens - start), []) for r in live]
        batch = runner.prepare(SchedulerOutput(rows=rows))
        logits = runner.forward(batch)
        found.update(zip([row.request for row in rows if row.samples], logits, strict=True))
    return torch.stack([found[request] for request in requests])


@torch.no_grad()
def transformers_logits(folder: Path, prompts: list[list[int]]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return torch.stack([model(torch.tensor([prompt])).logits[0, -1] for prompt in prompts])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"head_dim": 32},
        {"attention_bias": True, "mlp_bias": True},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
        {"rope_parameters": LLAMA3_ROPE},
    ],
    ids=["gqa", "tied", "mqa", "mha", "wide heads", "biases", "rope theta", "rope linear", "rope llama3"],
)
def test_logits_equal_transformers(tmp_path: Path, changes: dict[str, Any]):
    folder = write_folder(tmp_path / "tiny", **changes)
    expected = transformers_logits(folder, PROMPTS)
    assert expected.std() > 0.5  # a comparison of near-zeros would prove nothing
    torch.testing.assert_close(last_logits(make_runner(folder), PROMPTS, chunk=64), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("mistral", {"sliding_window": None}),
        ("qwen2", {}),
        ("qwen3", {"head_dim": 32}),
        ("qwen3", {"attention_bias": True}),
    ],
)
def test_the_familys_other_members_equal_transformers(tmp_path: Path, architecture: str, changes: dict[str, Any]):
    names = {"architectures": [f"{architecture.capitalize()}ForCausalLM"], "model_type": architecture}
    test_logits_equal_transformers(tmp_path, names | changes)


@pytest.mark.parametrize("chunk", [1, 3, 16])
def test_chunks_give_the_same_logits(tmp_path: Path, chunk: int):
    runner = make_runner(write_folder(tmp_path / "tiny"))
    whole = last_logits(runner, PROMPTS, chunk=64)
    torch.testing.assert_close(last_logits(runner, PROMPTS, chunk), whole, atol=2e-5, rtol=1e-4)


def test_bfloat16_follows_float32(tmp_path: Path):
    folder = write_folder(tmp_path / "tiny")
    exact = last_logits(make_runner(folder), PROMPTS, chunk=16)
    rough = last_logits(make_runner(folder, dtype="bfloat16"), PROMPTS, chunk=16)
    assert torch.nn.functional.cosine_similarity(exact, rough).min() > 0.99


@pytest.mark.parametrize("architecture", ["mistral", "qwen2", "qwen3"])
def test_weights_in_shards_and_chunks(tmp_path: Path, architecture: str):
    names = {"architectures": [f"{architecture.capitalize()}ForCausalLM"], "model_type": architecture}
    one = make_runner(write_folder(tmp_path / "one", **names))
    several = make_runner(write_folder(tmp_path / "several", shards=3, **names))
    expected = last_logits(one, PROMPTS, chunk=64)
    torch.testing.assert_close(last_logits(several, PROMPTS, chunk=3), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 64}, 64),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": None, "max_position_embeddings": 9999}, 9999),
        ({"architectures": ["MistralForCausalLM"], "max_position_embeddings": 9999}, 4096),
        ({"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 9999}, 9999),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "use_sliding_window": True}, 64),
        ({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 64, "use_sliding_window": False}, 512),
    ],
)
def test_nobody_goes_past_a_sliding_window(changes: dict[str, Any], limit: int):
    assert parse_model_config(tiny_config(**changes), "tiny").max_position_embeddings == limit


def test_llama3_rope_stretches_only_long_wavelengths():
    rope = RopeConfig(theta=10000.0, kind="llama3", factor=8.0, original_max_position_embeddings=64)
    plain, stretched = rope_frequencies(RopeConfig(), 64), rope_frequencies(rope, 64)
    assert stretched[0] == plain[0]
    torch.testing.assert_close(stretched[-1], plain[-1] / 8)


@pytest.mark.parametrize("rows", [1, 2, 8, 19, 256])
@pytest.mark.parametrize("bias", [False, True])
def test_packed_linear_equals_plain(rows: int, bias: bool):
    weight, x = torch.randn(48, 80), torch.randn(rows, 80)
    b = torch.randn(48) if bias else None
    if not packs(weight):
        pytest.skip("this torch cannot pack weights")
    torch.testing.assert_close(PackedLinear(weight, b)(x), PlainLinear(weight, b)(x), atol=1e-4, rtol=1e-5)


def test_only_fp32_is_packed():
    assert not packs(torch.randn(4, 4, dtype=torch.bfloat16))
