"""Run by test_kernels.py under TRITON_INTERPRET=1: the kernels around attention, against their oracles."""

from __future__ import annotations

import pytest
import torch

from engine.attention import cache as cache_oracle
from engine.attention.base import split_heads
from engine.attention.cache import LayerCache
from engine.kernels.activation import silu_and_mul
from engine.kernels.norm import add_rms_norm, rms_norm
from engine.kernels.rope import rotate_and_store
from engine.models import ops
from tests.engine.kernels.interpreted_attention import bits

FP32, FP16 = torch.float32, torch.float16
DTYPES = pytest.mark.parametrize("dtype", [FP32, FP16], ids=["fp32", "fp16"])
NEAR = {FP32: {"atol": 1e-6, "rtol": 1e-5}, FP16: {"atol": 2e-3, "rtol": 2e-3}}


def check(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, **NEAR[found.dtype])


@DTYPES
@pytest.mark.parametrize("size", [1, 63, 576, 2048])
def test_rms_norm(size: int, dtype: torch.dtype):
    x, weight = (3 * torch.randn(3, size)).to(dtype), torch.randn(size).to(dtype)
    check(rms_norm(x, weight, 1e-5), ops.rms_norm(x, weight, 1e-5))


def test_rms_norm_of_next_to_nothing_follows_eps():
    x = torch.full((2, 64), 1e-4)
    check(rms_norm(x, torch.ones(64), 1e-3), ops.rms_norm(x, torch.ones(64), 1e-3))


@DTYPES
def test_rms_norm_of_heads_within_longer_rows(dtype: torch.dtype):
    wide = torch.randn(4, 3 * 64).to(dtype)
    check(
        rms_norm(wide[:, 64:128], torch.ones(64, dtype=dtype), 1e-5),
        ops.rms_norm(wide[:, 64:128], torch.ones(64, dtype=dtype), 1e-5),
    )


@DTYPES
@pytest.mark.parametrize("size", [63, 576])
def test_add_rms_norm_is_an_addition_and_then_the_norm(size: int, dtype: torch.dtype):
    x, residual = (torch.randn(3, 2 * size).to(dtype)[:, :size] for _ in range(2))
    weight = torch.randn(size).to(dtype)
    out, summed = add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(summed, x + residual)
    check(out, ops.rms_norm(x + residual, weight, 1e-5))
    assert torch.equal(out, rms_norm(summed, weight, 1e-5))  # of the sum as it is stored


@DTYPES
@pytest.mark.parametrize("size", [1, 65, 1024, 1536])
def test_silu_and_mul(size: int, dtype: torch.dtype):
    gate_up = torch.cat([torch.linspace(-100, 100, 3 * size).view(3, size), torch.randn(3, size)], dim=1).to(dtype)
    check(silu_and_mul(gate_up), ops.silu_and_mul(gate_up.clone()))


@DTYPES
@pytest.mark.parametrize(
    ("head_dim", "stored"), [(64, FP32), (80, FP16), (64, torch.int8), (80, torch.float8_e4m3fn), (256, torch.int8)]
)
def test_rotate_and_store_are_rotate_and_store_bit_by_bit(head_dim: int, stored: torch.dtype, dtype: torch.dtype):
    angles = torch.outer(torch.arange(50.0), torch.rand(head_dim // 2))
    positions, slots = torch.tensor([0, 3, 49]), torch.tensor([9, -1, 4])
    results = []
    for fused in (True, False):
        cache = LayerCache.empty((2, 2, 8, head_dim), stored, torch.device("cpu"))
        for pool in (cache.keys, cache.values, *((cache.key_scales, cache.value_scales) if cache.quantized else ())):
            bits(pool).fill_(1)
        qkv = torch.randn(3, 6 + 4 + 1, head_dim, generator=torch.Generator().manual_seed(0)).to(dtype)
        part = qkv[:, :-1]  # tokens are further apart than their heads take
        if fused:
            rotate_and_store(part, angles.cos(), angles.sin(), positions, cache, slots)
        else:
            ops.rotate(part, 8, angles.cos(), angles.sin(), positions)
            cache_oracle.store_kv(*split_heads(part, cache)[1:], cache, slots)
        results.append([qkv, cache.keys, cache.values, cache.key_scales, cache.value_scales])
    for found, expected in zip(*results, strict=True):
        assert torch.equal(bits(found), bits(expected))
