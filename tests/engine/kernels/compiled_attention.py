"""Run by test_kernels.py without the interpreter: the attention kernels compile for sm_80 and sm_90 as launched."""

from __future__ import annotations

import pytest
import torch
from triton.compiler.errors import CompilationError

from benchmarks.gpu_attention import VARIANTS
from engine.attention.base import AttentionMetadata
from engine.attention.cache import LayerCache
from engine.kernels import attention, quantized, split_kv, store
from engine.kernels.attention import triton_attention
from engine.kernels.launch import Launch
from tests.engine.kernels.compiled import compiling

INT8, FP8 = torch.int8, torch.float8_e4m3fn
FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
MODULES = (attention, split_kv, store)


def step(rows: list[int], heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, stored: torch.dtype) -> None:
    """Attention over rows of so many tokens; only shapes and dtypes matter."""
    cpu = torch.device("cpu")
    cache = LayerCache.empty((64, kv_heads, 16, head_dim), stored, cpu)
    starts = torch.tensor([0, *rows]).cumsum(0).int()
    meta = AttentionMetadata.build(
        query_start_loc=starts,
        seq_lens=torch.tensor(rows, dtype=torch.int32),
        block_tables=torch.zeros(len(rows), 512, dtype=torch.int32),
        slot_mapping=torch.zeros(sum(rows), dtype=torch.int64),
        block_size=16,
    )
    triton_attention(torch.empty(sum(rows), heads + 2 * kv_heads, head_dim, dtype=dtype), cache, meta)


@pytest.mark.parametrize(
    ("capability", "model"),
    [
        (80, (9, 3, 64, BF16, BF16)),
        (80, (32, 8, 128, BF16, FP8)),
        (80, (8, 4, 256, BF16, BF16)),
        (90, (32, 8, 128, BF16, FP8)),
        (90, (9, 3, 64, FP16, INT8)),
        (90, (32, 1, 80, FP16, FP16)),
        (90, (9, 3, 64, FP32, FP32)),
    ],
    ids=lambda part: str(part).replace("torch.", ""),
)
def test_what_a_step_launches_compiles_and_fits(
    monkeypatch: pytest.MonkeyPatch, capability: int, model: tuple[object, ...]
):
    monkeypatch.setattr(quantized, "has_fp8", lambda device: capability >= 89)
    with compiling(capability, *MODULES) as kernels:
        step([1, 300, 1], *model)
        monkeypatch.setattr(split_kv, "num_processors", lambda device: 132)
        step([1], *model)
    dtype, stored = model[-2:]
    body = kernels["paged_attention_kernel"].assembly[0]
    assert ("mma" in body) == (dtype != FP32)  # tensor cores
    assert ("e4m3x2" in body) == (stored == FP8 and capability >= 89)  # the hardware's conversion


def test_drafts_to_verify_compile_with_a_small_tile_and_decode_without_splits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(split_kv, "choose_num_splits", lambda *given: taken.pop())
    taken = [1, 2]
    with compiling(90, *MODULES) as kernels:
        for rows in ([1, 5, 1], [1, 1, 1], [1]):
            step(rows, 32, 8, 128, BF16, BF16)
    assert "mma.sync" in kernels["paged_attention_kernel"].assembly[0]  # of 16 rows; wgmma takes 64
    assert len(kernels["split_attention_kernel"].assembly) == 2


@pytest.mark.parametrize("variant", [max(VARIANTS, key=lambda v: v[0] * v[2]), min(VARIANTS, key=lambda v: v[1])])
def test_the_hungriest_launches_that_gpu_check_tries_fit(
    monkeypatch: pytest.MonkeyPatch, variant: tuple[int, int, int, int]
):
    """For shared memory the one, for registers the other; on the smaller of the two GPUs."""
    monkeypatch.setattr(split_kv.attend_decode, "__defaults__", (Launch(*variant),))
    monkeypatch.setattr(split_kv, "num_processors", lambda device: 132)
    with compiling(80, split_kv, store):
        step([1], 32, 8, 128, BF16, BF16)


def test_fp8_as_such_is_refused_before_compute_capability_8_9(monkeypatch: pytest.MonkeyPatch):
    """Why `quantized` has a way by arithmetic."""
    monkeypatch.setattr(quantized, "has_fp8", lambda device: True)
    with pytest.raises(CompilationError, match="fp8e4nv not supported"), compiling(80, attention, store):
        step([1, 300, 1], 9, 3, 64, BF16, FP8)


@pytest.mark.parametrize("stored", [INT8, FP8], ids=["int8", "fp8"])
def test_a_product_is_rounded_before_it_is_quantized(stored: torch.dtype):
    """A fused multiply-add would round once, and store another number than torch does now and then."""
    with compiling(90, store) as kernels:
        key = torch.empty(4, 2, 64, dtype=BF16)
        cache = LayerCache.empty((4, 2, 16, 64), stored, torch.device("cpu"))
        store.store_kv(key, key, cache, torch.zeros(4, dtype=torch.int64))
    (body,) = kernels["store_kv_kernel"].assembly
    assert "fma" not in body
    assert "div.rn" in body
