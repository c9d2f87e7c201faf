"""The sizing sum, its golden values, and the flags that overrule it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import MOST, EngineConfig
from engine.errors import ConfigError
from engine.events import ModelFacts
from engine.kv_cache import (
    DEFAULT_MOST_BLOCKS,
    activation_bytes,
    allocate,
    available_bytes,
    kv_bytes_per_token,
    size_pool,
    size_pool_for,
)
from engine.loader import load
from engine.models.config import parse_model_config
from tests.engine.tiny import tiny_config, write_folder

GB = 10**9
SMOLLM2 = ModelFacts(
    name="smollm2",
    architecture="LlamaForCausalLM",
    num_layers=30,
    num_attention_heads=9,
    num_kv_heads=3,
    head_dim=64,
    hidden_size=576,
    vocab_size=49_152,
    num_parameters=134_515_008,
    weight_bytes=538_060_032,
    dtype="float32",
    max_position_embeddings=8192,
    has_chat_template=True,
    tie_word_embeddings=True,
)
PER_BLOCK = 46_080 * 16


def resolved(available: int | None = 16 * GB, **flags: Any) -> EngineConfig:
    return size_pool_for(EngineConfig(**flags), SMOLLM2, available)[0]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((30, 3, 64, 1, 4), 12_240),
        ((32, 32, 128, 2), 524_288),
        ((28, 4, 128, 2), 57_344),
        ((30, 3, 64, 2), 23_040),
        ((30, 3, 64, 4), 46_080),
    ],
)
def test_bytes_per_token(shape: tuple[int, int, int, int], expected: int):
    assert kv_bytes_per_token(*shape) == expected


def test_a_conversation_of_4000_tokens():
    assert 4000 * kv_bytes_per_token(32, 32, 128, 2) == pytest.approx(2.097 * GB, rel=1e-3)


def test_the_default_is_1024_tokens_per_sequence():
    assert resolved(max_num_seqs=8).num_blocks == 8 * 1024 // 16


def test_a_block_size_that_does_not_divide_rounds_up():
    assert resolved(max_num_seqs=8, block_size=7).num_blocks == -(-8192 // 7)


def test_the_default_takes_at_most_a_quarter_of_the_memory():
    assert resolved(available=100 * PER_BLOCK).num_blocks == 25


def test_an_unknown_memory_is_no_limit():
    assert resolved(available=None).num_blocks == 512


def test_num_blocks_overrules():
    assert resolved(num_blocks=7).num_blocks == 7


def test_kv_cache_memory_bytes_overrules():
    assert resolved(kv_cache_memory_bytes=10 * PER_BLOCK + 1).num_blocks == 10


def test_both_may_be_given_if_they_agree():
    assert resolved(kv_cache_memory_bytes=10 * PER_BLOCK, num_blocks=10).num_blocks == 10


@pytest.mark.parametrize(
    ("flags", "available", "expected"),
    [
        ({"kv_cache_memory_bytes": 10 * PER_BLOCK, "num_blocks": 11}, GB, "--num-blocks is 11 but .* makes 10 blocks"),
        ({"kv_cache_memory_bytes": PER_BLOCK - 1}, GB, "--kv-cache-memory-bytes is .*; one block takes 737,280 bytes"),
        ({"num_blocks": 1000}, 999 * PER_BLOCK, "Lower --num-blocks or --kv-cache-memory-bytes"),
        ({}, 3 * PER_BLOCK, "Lower --block-size, free memory, or set --num-blocks"),
        ({"max_model_len": 8193}, GB, "--max-model-len is 8193; smollm2 was made for at most 8192"),
        ({"enable_chunked_prefill": False}, 16 * GB, "--no-enable-chunked-prefill needs --max-num-batched-tokens"),
    ],
)
def test_a_sum_that_does_not_work_out_names_the_flag(flags: dict[str, Any], available: int, expected: str):
    with pytest.raises(ConfigError, match=expected):
        resolved(available, **flags)


@pytest.mark.parametrize(("num_blocks", "expected"), [(8, 128), (256, 4096), (1000, 4096)])
def test_max_model_len_is_the_least_of_three(num_blocks: int, expected: int):
    assert resolved(num_blocks=num_blocks).max_model_len == expected


def test_max_model_len_follows_the_model():
    short = dataclasses.replace(SMOLLM2, max_position_embeddings=512)
    assert size_pool_for(EngineConfig(), short, None)[0].max_model_len == 512


def test_a_given_max_model_len_stays_even_above_the_pool():
    assert resolved(max_model_len=1024, num_blocks=8).max_model_len == 1024


def test_without_chunks_a_whole_prompt_must_fit_a_step():
    config = resolved(enable_chunked_prefill=False, max_num_batched_tokens=512, max_model_len=512)
    assert config.max_model_len == 512


def test_the_sum_in_words():
    _, memory = size_pool_for(EngineConfig(), SMOLLM2, 16 * GB)
    assert memory.sum_text == (
        "KV pool 360 MiB = 512 blocks × 16 tokens × 46,080 B per float32 token (1,024 tokens for each of 8 sequences); "
        "weights 513 MiB; 14.90 GiB of memory were available."
    )
    assert (memory.bytes_per_token, memory.bytes_per_block, memory.kv_pool) == (46_080, PER_BLOCK, 512 * PER_BLOCK)


def test_the_memory_sum_tells_what_a_step_takes_beside_the_pool(tmp_path: Path):
    config = EngineConfig(
        model=str(write_folder(tmp_path / "tiny")), max_num_seqs=4, max_num_batched_tokens=32, num_blocks=8
    )
    loaded = load(config, lambda *report: None)
    _, memory = size_pool(config, loaded)
    model = loaded.model.config
    logits = 3 * 4 * model.vocab_size
    widest = 2 * model.intermediate_size + model.q_size + 2 * model.kv_size + 4 * model.hidden_size
    assert memory.activations == 4 * (32 * widest + logits)


def test_the_pool_takes_what_the_sum_says():
    model = parse_model_config(tiny_config(), "tiny")
    caches = allocate(EngineConfig(num_blocks=5, block_size=8), model, torch.device("cpu"), torch.float32)
    assert len(caches) == model.num_layers
    assert caches[0].keys.shape == (5, model.num_kv_heads, 8, model.head_dim)
    total = sum(cache.keys.nbytes + cache.values.nbytes for cache in caches)
    assert total == 5 * 8 * kv_bytes_per_token(model.num_layers, model.num_kv_heads, model.head_dim, 4)


@pytest.mark.parametrize(("asked", "dtype"), [("int8", torch.int8), ("fp8", torch.float8_e4m3fn)])
def test_the_quantized_pool_takes_what_the_sum_says(asked: str, dtype: torch.dtype):
    """A48: bytes per block match the dtype, scales included."""
    config = EngineConfig(kv_cache_dtype=asked, num_blocks=5, block_size=8)
    config, memory = size_pool_for(config, SMOLLM2, 16 * GB, kv_dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    assert (memory.bytes_per_token, memory.bytes_per_block, memory.kv_dtype) == (12_240, 8 * 12_240, name)
    assert f"5 blocks × 8 tokens × 12,240 B per {name} token" in memory.sum_text
    model = parse_model_config(tiny_config(), "tiny")
    caches = allocate(config, model, torch.device("cpu"), dtype)
    total = sum(t.nbytes for c in caches for t in (c.keys, c.values, c.key_scales, c.value_scales))
    assert total == 5 * 8 * kv_bytes_per_token(model.num_layers, model.num_kv_heads, model.head_dim, 1, 4)


def test_a_gpus_pool_takes_all_that_is_left():
    config, memory = size_pool_for(EngineConfig(), SMOLLM2, 100 * PER_BLOCK + 5, fill=True)
    assert config.num_blocks == 100
    assert "(what 90% of the GPU's memory leaves)" in memory.sum_text


def test_a_pool_that_fills_still_obeys_the_flags():
    assert size_pool_for(EngineConfig(num_blocks=7), SMOLLM2, 16 * GB, fill=True)[0].num_blocks == 7


def test_a_gpus_pool_is_no_larger_than_a_page_can_show_or_the_sequences_can_fill():
    def blocks(**flags: int) -> int:
        return size_pool_for(EngineConfig(**flags), SMOLLM2, 10**6 * GB, fill=True)[0].num_blocks

    assert blocks() == DEFAULT_MOST_BLOCKS
    assert blocks(max_num_seqs=256, max_num_batched_tokens=256, max_model_len=8192) == 256 * 8192 // 16
    assert blocks(max_num_seqs=4096, max_num_batched_tokens=4096, max_model_len=8192) == MOST["num_blocks"]


def test_logits_that_captured_steps_keep_are_counted_as_activations():
    model = parse_model_config(tiny_config(), "tiny")
    config = EngineConfig(max_num_seqs=4, speculative="ngram:3")
    fewer = EngineConfig(max_num_seqs=2)
    more = activation_bytes(config, model, captured=True) - activation_bytes(fewer, model, captured=True)
    assert more == 4 * model.vocab_size * ((3 * 4 * 4 + 1 + 2 + 4) - (3 * 2 + 1 + 2))
    drafting = EngineConfig(max_num_seqs=4, speculative="draft:first-2-layers:3")
    both = activation_bytes(drafting, model, captured=True) - activation_bytes(config, model, captured=True)
    assert both == 4 * model.vocab_size * (1 + 2 + 4)


def test_no_memory_left_is_refused():
    with pytest.raises(ConfigError, match="One KV block takes"):
        size_pool_for(EngineConfig(), SMOLLM2, 0, fill=True)


def test_bfloat16_takes_half():
    memory = size_pool_for(EngineConfig(num_blocks=1), SMOLLM2, None, kv_dtype=torch.bfloat16)[1]
    assert (memory.bytes_per_token, memory.kv_dtype) == (23_040, "bfloat16")


def test_this_machine_has_some_memory_left():
    available = available_bytes()
    assert available is None or 2**20 < available < 2**50
