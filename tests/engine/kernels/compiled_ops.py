"""Run by test_kernels.py without the interpreter: the kernels around attention compile for sm_80 and sm_90."""

from __future__ import annotations

import pytest
import torch

from engine.attention.cache import LayerCache
from engine.kernels import activation, norm, rope, sampling
from engine.request import SamplingParams
from engine.sampler import Draw
from tests.engine.kernels.compiled import compiling

FP16, BF16 = torch.float16, torch.bfloat16
TARGETS = pytest.mark.parametrize("capability", [80, 90])
HALVES = pytest.mark.parametrize("dtype", [BF16, FP16], ids=["bf16", "fp16"])


@TARGETS
@HALVES
def test_norm(capability: int, dtype: torch.dtype):
    x, weight = torch.empty(4, 576, dtype=dtype), torch.empty(576, dtype=dtype)
    with compiling(capability, norm):
        norm.rms_norm(x, weight, 1e-5)
        norm.add_rms_norm(x, x, weight, 1e-5)


@TARGETS
@HALVES
def test_activation(capability: int, dtype: torch.dtype):
    with compiling(capability, activation):
        activation.silu_and_mul(torch.empty(4, 2 * 1536, dtype=dtype))


@TARGETS
@pytest.mark.parametrize(
    ("head_dim", "dtype", "stored"),
    [(64, BF16, BF16), (128, BF16, torch.float8_e4m3fn), (80, FP16, torch.int8), (64, torch.float32, torch.float32)],
)
def test_rope(capability: int, head_dim: int, dtype: torch.dtype, stored: torch.dtype):
    cache = LayerCache.empty((8, 3, 16, head_dim), stored, torch.device("cpu"))
    angles, ids = torch.empty(64, head_dim // 2), torch.zeros(4, dtype=torch.int64)
    with compiling(capability, rope) as kernels:
        rope.rotate_and_store(torch.empty(4, 15, head_dim, dtype=dtype), angles, angles, ids, cache, ids)
    (body,) = kernels["rotate_and_store_kernel"].assembly
    assert "fma" not in body  # a product is rounded before it is added, as torch does


@TARGETS
def test_sampling(capability: int):
    draw = Draw(SamplingParams(top_k=5, top_p=0.5, min_p=0.1), 0, 0, frozenset({1}))
    with compiling(capability, sampling):
        sampling.sample(torch.empty(4, 49_152), [draw] * 4)
