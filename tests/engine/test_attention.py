"""The numba backend equals the torch oracle, and the oracle equals torch's own attention over unpaged tensors."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from engine.attention.base import AttentionMetadata
from engine.attention.cache import LayerCache, gather_kv, quantize, store_kv
from engine.attention.paged import paged_attention
from engine.attention.reference import reference_attention

Rows = list[tuple[int, int]]  # (tokens computed before, tokens of this step)


class Step:
    """A random step over rows whose earlier tokens are in a cache of shuffled blocks; what nobody wrote is NaN."""

    def __init__(
        self,
        rows: Rows,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        block_size: int,
        kv_dtype: torch.dtype = torch.float32,
    ) -> None:
        generator = torch.Generator().manual_seed(0)
        self.rows = rows
        totals = [before + new for before, new in rows]
        needed = [-(-total // block_size) for total in totals]
        num_blocks = sum(needed) + 3
        shuffled = iter(torch.randperm(num_blocks, generator=generator).tolist())
        tables = torch.full((len(rows), max(needed)), 10**6, dtype=torch.int32)  # past the end: never to be read
        for row, count in enumerate(needed):
            tables[row, :count] = torch.tensor(list(itertools.islice(shuffled, count)))
        shape = (num_blocks, kv_heads, block_size, head_dim)
        self.cache = LayerCache.empty(shape, kv_dtype, torch.device("cpu"))
        for tensor in (self.cache.keys, self.cache.values) if kv_dtype.is_floating_point else ():
            tensor.fill_(torch.nan)
        for tensor in (self.cache.key_scales, self.cache.value_scales) if self.cache.quantized else ():
            tensor.fill_(torch.nan)
        self.k_all = [torch.randn(total, kv_heads, head_dim, generator=generator) for total in totals]
        self.v_all = [torch.randn(total, kv_heads, head_dim, generator=generator) for total in totals]
        self.q = torch.randn(sum(new for _, new in rows), heads, head_dim, generator=generator)
        slots = [
            tables[row, torch.arange(total) // block_size].long() * block_size + torch.arange(total) % block_size
            for row, total in enumerate(totals)
        ]
        for row, (before, _) in enumerate(rows):
            store_kv(self.k_all[row][:before], self.v_all[row][:before], self.cache, slots[row][:before])
        self.k = torch.cat([k[before:] for k, (before, _) in zip(self.k_all, rows, strict=True)])
        self.v = torch.cat([v[before:] for v, (before, _) in zip(self.v_all, rows, strict=True)])
        self.meta = AttentionMetadata.build(
            query_start_loc=torch.tensor([0, *itertools.accumulate(new for _, new in rows)], dtype=torch.int32),
            seq_lens=torch.tensor(totals, dtype=torch.int32),
            block_tables=tables,
            slot_mapping=torch.cat([s[before:] for s, (before, _) in zip(slots, rows, strict=True)]),
            block_size=block_size,
        )

    def run(self, attention) -> tuple[torch.Tensor, LayerCache]:
        """The output and the cache afterwards; the step's own cache stays as it was."""
        before = self.cache
        cache = LayerCache(
            before.keys.clone(), before.values.clone(), before.key_scales.clone(), before.value_scales.clone()
        )
        return attention(torch.cat([self.q, self.k, self.v], dim=1), cache, self.meta), cache


MIXED: Rows = [(0, 1), (15, 1), (16, 1), (0, 37), (31, 18), (300, 1), (47, 2)]


@pytest.mark.parametrize("head_dim", [64, 80, 128])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (9, 3), (8, 1)], ids=["MHA", "GQA", "MQA"])
def test_numba_equals_the_oracle_on_a_mixed_batch(heads: int, kv_heads: int, head_dim: int):
    step = Step(MIXED, heads=heads, kv_heads=kv_heads, head_dim=head_dim, block_size=16)
    expected, expected_cache = step.run(reference_attention)
    found, found_cache = step.run(paged_attention)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)
    assert torch.equal(found_cache.keys.nan_to_num(7.0), expected_cache.keys.nan_to_num(7.0))
    assert torch.equal(found_cache.values.nan_to_num(7.0), expected_cache.values.nan_to_num(7.0))


@pytest.mark.parametrize("block_size", [1, 7, 16, 256])
def test_any_block_size(block_size: int):
    step = Step([(0, 5), (13, 1), (14, 1), (254, 3)], heads=6, kv_heads=2, head_dim=16, block_size=block_size)
    torch.testing.assert_close(step.run(paged_attention)[0], step.run(reference_attention)[0], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("total", [1, 15, 16, 17, 31, 32, 33, 100])
def test_decode_at_every_edge_of_a_block(total: int):
    step = Step([(total - 1, 1)], heads=9, kv_heads=3, head_dim=64, block_size=16)
    torch.testing.assert_close(step.run(paged_attention)[0], step.run(reference_attention)[0], atol=2e-6, rtol=1e-5)


def test_the_oracle_equals_unpaged_causal_attention():
    step = Step([(0, 37)], heads=6, kv_heads=2, head_dim=32, block_size=16)
    found, _ = step.run(reference_attention)
    q, k, v = (t.transpose(0, 1)[None] for t in (step.q, step.k_all[0], step.v_all[0]))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)[0].transpose(0, 1)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_a_chunk_equals_the_same_tokens_of_a_whole_prompt():
    shape = {"heads": 6, "kv_heads": 2, "head_dim": 32, "block_size": 16}
    whole, chunk = Step([(0, 50)], **shape), Step([(33, 17)], **shape)
    assert torch.equal(whole.k_all[0], chunk.k_all[0])
    chunk.q = whole.q[33:]
    torch.testing.assert_close(chunk.run(paged_attention)[0], whole.run(paged_attention)[0][33:], atol=2e-6, rtol=1e-5)


def test_large_scores_do_not_overflow():
    step = Step([(40, 1), (0, 20)], heads=4, kv_heads=2, head_dim=64, block_size=16)
    step.q *= 100
    found, expected = step.run(paged_attention)[0], step.run(reference_attention)[0]
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-3)


def test_slot_minus_one_stores_nothing():
    step = Step([(3, 1), (5, 1)], heads=4, kv_heads=2, head_dim=16, block_size=4)
    step.meta.slot_mapping[0] = -1
    _, after = step.run(paged_attention)
    _, expected = step.run(reference_attention)
    assert torch.equal(after.keys.nan_to_num(7.0), expected.keys.nan_to_num(7.0))
    changed = (after.keys.nan_to_num(7.0) != step.cache.keys.nan_to_num(7.0)).any(dim=(1, 3)).sum()
    assert changed == 1


def test_half_precision_inputs_are_computed_in_fp32():
    step = Step([(40, 1), (0, 20)], heads=4, kv_heads=2, head_dim=64, block_size=16)
    step.q, step.k, step.v = step.q.bfloat16(), step.k.bfloat16(), step.v.bfloat16()
    found, _ = step.run(paged_attention)
    assert found.dtype == torch.bfloat16
    step.q, step.k, step.v = step.q.float(), step.k.float(), step.v.float()
    torch.testing.assert_close(found, step.run(reference_attention)[0].bfloat16(), atol=1e-2, rtol=1e-2)


# -- quantised -----------------------------------------------------------------------------------------------------

INT8, FP8 = torch.int8, torch.float8_e4m3fn
DTYPES = pytest.mark.parametrize("dtype", [INT8, FP8], ids=["int8", "fp8"])


def quantized_step(dtype: torch.dtype, rows: Rows, **shape: int) -> Step:
    return Step(rows, kv_dtype=dtype, **{"heads": 9, "kv_heads": 3, "head_dim": 64, "block_size": 16, **shape})


@DTYPES
@pytest.mark.parametrize("head_dim", [64, 80, 128])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (9, 3), (8, 1)], ids=["MHA", "GQA", "MQA"])
def test_numba_equals_the_oracle_over_a_quantized_cache(dtype: torch.dtype, heads: int, kv_heads: int, head_dim: int):
    step = quantized_step(dtype, MIXED, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    expected, expected_cache = step.run(reference_attention)
    found, found_cache = step.run(paged_attention)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)
    assert torch.equal(found_cache.keys.view(torch.int8), expected_cache.keys.view(torch.int8))
    assert torch.equal(found_cache.values.view(torch.int8), expected_cache.values.view(torch.int8))
    torch.testing.assert_close(found_cache.key_scales, expected_cache.key_scales, equal_nan=True)
    torch.testing.assert_close(found_cache.value_scales, expected_cache.value_scales, equal_nan=True)


@DTYPES
def test_what_a_step_itself_brings_is_read_back_quantized(dtype: torch.dtype):
    """A token reads its own key and value from the cache like everybody else's, so a chunk equals its warm twin."""
    alone = quantized_step(dtype, [(0, 1)])
    found, cache = alone.run(paged_attention)
    _, values = gather_kv(cache, alone.meta.block_tables[0, :1].long(), 1)
    assert torch.equal(found[0], values[:, 0].repeat_interleave(3, dim=0))
    assert not torch.equal(found[0], alone.v_all[0][0].repeat_interleave(3, dim=0))


def test_int8_is_off_by_at_most_half_a_step_of_its_scale():
    x = torch.randn(50, 3, 64) * torch.logspace(-3, 3, 50)[:, None, None]
    stored, scales = quantize(x, INT8)
    assert ((stored * scales[..., None] - x).abs() <= scales[..., None] * 0.5001).all()
    assert (stored.abs().amax(-1) == 127).all()


def test_fp8_is_off_by_at_most_a_sixteenth_or_half_of_its_least_step():
    x = torch.randn(50, 3, 64) * torch.logspace(-3, 3, 50)[:, None, None]
    stored, scales = quantize(x, FP8)
    off = (stored.float() * scales[..., None] - x).abs()
    assert (off <= torch.maximum(x.abs() / 16, scales[..., None] * 2**-10) * 1.0001).all()
    assert (stored.float().abs().amax(-1) == 448).all()


@DTYPES
@pytest.mark.parametrize("size", [0.0, 1e-40, -1e-38])
def test_zeros_and_what_is_next_to_nothing_are_stored_as_zeros(dtype: torch.dtype, size: float):
    """1 / scale would overflow, and a NaN that is stored spoils every answer that reads it."""
    stored, scales = quantize(torch.full((2, 3, 64), size), dtype)
    assert not stored.float().any()
    assert (scales < 1e-38).all()
    step = quantized_step(dtype, [(0, 1), (0, 2)])
    step.k, step.v = torch.full_like(step.k, size), torch.full_like(step.v, size)
    found, cache = step.run(paged_attention)
    assert found.abs().max() < 1e-37
    assert not cache.keys[step.meta.block_tables[0, 0], :, 0].float().any()


@DTYPES
def test_quantized_slot_minus_one_stores_nothing(dtype: torch.dtype):
    step = quantized_step(dtype, [(3, 1), (5, 1)], block_size=4)
    step.meta.slot_mapping[0] = -1
    _, after = step.run(paged_attention)
    assert (after.key_scales.nan_to_num(7.0) != step.cache.key_scales.nan_to_num(7.0)).any(dim=1).sum() == 1
