"""Run by test_kernels.py under TRITON_INTERPRET=1: storing keys and values, and attention, against their oracles.

Not bfloat16, which the interpreter gets wrong. Few programs each: one takes milliseconds.
"""

from __future__ import annotations

import pytest
import torch

from engine.attention import cache as oracle
from engine.attention.base import Attention, AttentionMetadata
from engine.attention.cache import LayerCache
from engine.attention.reference import reference_attention
from engine.kernels import attention, quantized, split_kv
from engine.kernels.attention import triton_attention
from engine.kernels.launch import DECODE, Launch, arguments
from engine.kernels.split_kv import attend_split, choose_num_splits
from engine.kernels.store import store_kv
from tests.engine.test_attention import Rows, Step

INT8, FP8 = torch.int8, torch.float8_e4m3fn
FP32, FP16 = torch.float32, torch.float16
NEAR = {FP32: {"atol": 4e-6, "rtol": 1e-5}, FP16: {"atol": 2e-3, "rtol": 2e-3}}
MIXED: Rows = [(0, 1), (15, 1), (5, 0), (16, 1), (0, 21), (31, 18), (130, 1), (0, 0), (47, 2)]
SHAPE = {"heads": 6, "kv_heads": 2, "head_dim": 64, "block_size": 16}
KINDS = [
    (64, FP16, FP16),
    (64, FP8, FP16),
    (80, FP32, FP32),
    (80, INT8, FP16),
    (128, FP8, FP32),
    (128, INT8, FP32),
    (256, FP16, FP16),
    (256, FP8, FP16),
]
CACHES = pytest.mark.parametrize("stored", [FP16, INT8, FP8], ids=["fp16", "int8", "fp8"])


def split(num_splits: int, launch: Launch = DECODE) -> Attention:
    """`triton_attention` with this many splits, whatever it would choose."""

    def attend(qkv: torch.Tensor, cache: LayerCache, meta: AttentionMetadata) -> torch.Tensor:
        q, k, v = attention.split_heads(qkv, cache)
        store_kv(k, v, cache, meta.slot_mapping)
        return attend_split(q, cache, meta, num_splits, launch)

    return attend


def bits(pool: torch.Tensor) -> torch.Tensor:
    return pool.contiguous().view(torch.uint8)


def check(
    step: Step,
    dtype: torch.dtype = FP32,
    attend: Attention = triton_attention,
    near: dict[str, float] | None = None,
) -> None:
    """What `attend` makes of the step in `dtype` is what the oracle makes of the same numbers in fp32."""
    step.q, step.k, step.v = step.q.to(dtype), step.k.to(dtype), step.v.to(dtype)
    found, found_cache = step.run(attend)
    step.q, step.k, step.v = step.q.float(), step.k.float(), step.v.float()
    expected, expected_cache = step.run(reference_attention)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, **near or NEAR[dtype])
    for name in ("keys", "values", "key_scales", "value_scales"):
        assert torch.equal(bits(getattr(found_cache, name)), bits(getattr(expected_cache, name))), name


def pad(step: Step, row: int) -> None:
    """Make a row of one token what fills up a batch of fixed size."""
    step.meta.seq_lens[row] = 0
    step.meta.slot_mapping[step.meta.query_start_loc[row]] = -1
    step.meta.block_tables[row] = 10**6


# -- storing -------------------------------------------------------------------------------------------------------


def stored(function, k: torch.Tensor, v: torch.Tensor, dtype: torch.dtype, slots: list[int]) -> LayerCache:
    shape = (3, k.shape[1], 8, k.shape[2])
    cache = LayerCache.empty(shape, dtype, torch.device("cpu"))
    for pool in (cache.keys, cache.values, *((cache.key_scales, cache.value_scales) if cache.quantized else ())):
        bits(pool).fill_(1)
    function(k, v, cache, torch.tensor(slots))
    return cache


def check_store(k: torch.Tensor, v: torch.Tensor, dtype: torch.dtype, slots: list[int]) -> None:
    found, expected = stored(store_kv, k, v, dtype, slots), stored(oracle.store_kv, k, v, dtype, slots)
    for name in ("keys", "values", "key_scales", "value_scales"):
        assert torch.equal(bits(getattr(found, name)), bits(getattr(expected, name))), name


@pytest.mark.parametrize("dtype", [FP32, FP16], ids=["of fp32", "of fp16"])
@pytest.mark.parametrize("head_dim", [64, 80])
@CACHES
def test_what_is_stored_is_what_torch_stores_bit_by_bit(stored: torch.dtype, head_dim: int, dtype: torch.dtype):
    size = torch.logspace(-4, 2, 6)[:, None, None]
    k, v = (torch.randn(2, 6, 3, head_dim).pow(3) * size).to(dtype)
    check_store(k, v, stored, [7, -1, 8, 23, -1, 0])


@pytest.mark.parametrize("stored", [INT8, FP8], ids=["int8", "fp8"])
def test_halves_go_to_the_even_neighbour(stored: torch.dtype):
    steps = torch.arange(-128, 127) + 0.5 if stored == INT8 else torch.arange(0, 127, dtype=torch.uint8).view(FP8)
    ties = steps if stored == INT8 else (steps[1:].float() + steps[:-1].float()) / 2
    heads = torch.zeros(4, 2, 128)
    heads.view(4, 256)[:, : len(ties)] = ties.clamp(-127, 448)
    heads[:, :, 127] = 127.0 if stored == INT8 else 448.0  # so that the scale is 1
    check_store(heads, -heads, stored, [0, 1, 2, 3])


@pytest.mark.parametrize("stored", [INT8, FP8], ids=["int8", "fp8"])
@pytest.mark.parametrize("size", [0.0, 1e-40, 1e-38, 1e-36, 1e30])
def test_numbers_of_any_size_can_be_stored(stored: torch.dtype, size: float):
    check_store(torch.randn(2, 2, 64) * size, torch.randn(2, 2, 64) * size, stored, [3, 4])


# -- attention -----------------------------------------------------------------------------------------------------


def test_decode_rows_at_the_edges_of_blocks_and_tiles():
    check(Step([(total - 1, 1) for total in (1, 16, 17, 63, 64, 65)], **SHAPE))


@pytest.mark.parametrize(("head_dim", "stored", "dtype"), KINDS)
def test_any_head_size_over_any_cache(head_dim: int, stored: torch.dtype, dtype: torch.dtype):
    shape = {"heads": 3, "kv_heads": 1, "head_dim": head_dim, "block_size": 16}
    check(Step([(16, 1), (30, 23), (70, 1)], **shape, kv_dtype=stored), dtype)


@pytest.mark.parametrize("block_size", [1, 7, 256])
def test_any_block_size(block_size: int):
    check(Step([(0, 5), (13, 1), (14, 1), (254, 3)], **SHAPE | {"block_size": block_size}))


@pytest.mark.parametrize("rows", [[(0, 20), (0, 21), (0, 22)], [(0, 42), (0, 43)], [(43, 21), (44, 21), (107, 1)]])
def test_chunks_at_the_edges_of_query_and_key_tiles(rows: Rows):
    check(Step(rows, **SHAPE, kv_dtype=FP16), FP16)  # 21 queries and 64 tokens a tile


@pytest.mark.parametrize("before", [62, 63, 64])
def test_what_only_the_first_query_may_not_see_is_not_in_a_tile_without_a_mask(before: int):
    check(Step([(before, 3)], **SHAPE))


@pytest.mark.parametrize(("longest", "rows"), [(10, 32), (11, 64)])
def test_the_product_is_as_tall_as_rows_of_several_tokens_need(
    monkeypatch: pytest.MonkeyPatch, longest: int, rows: int
):
    taken = []
    monkeypatch.setattr(attention, "arguments", lambda *args: taken.append(args[3]) or arguments(*args))
    check(Step([(70, 1), (5, longest), (0, 1)], **SHAPE, kv_dtype=FP16), FP16)  # 3 heads to each query
    assert taken == [rows]


def test_a_program_writes_its_own_queries_only(monkeypatch: pytest.MonkeyPatch):
    """The interpreter runs programs in order, so that the next one would cover up what this one spoils."""
    kernel = attention.paged_attention_kernel

    class FirstTile:
        def __getitem__(self, grid: tuple[int, int]):
            def launch(out: torch.Tensor, **given: object) -> None:
                kernel[(1, grid[1])](out=out.fill_(7.0), **given)

            return launch

    monkeypatch.setattr(attention, "paged_attention_kernel", FirstTile())
    out, _ = Step([(0, 30)], **SHAPE).run(triton_attention)
    assert (out == 7.0).flatten(1).all(1).tolist() == [False] * 5 + [True] * 25  # 16 rows of 3 heads: 5 queries


@pytest.mark.parametrize("attend", [triton_attention, split(4)], ids=["whole", "split"])
def test_padding_rows_come_out_as_zeros_and_store_nothing(attend: Attention):
    step = Step([(0, 1), (70, 1), (0, 1)], **SHAPE, kv_dtype=INT8)
    pad(step, 0)
    pad(step, 2)
    check(step, attend=attend)
    assert not step.run(attend)[0][[0, 2]].any()


def test_padding_beside_a_chunk():
    step = Step([(0, 1), (7, 30), (0, 1)], **SHAPE)
    pad(step, 0)
    pad(step, 2)
    check(step)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "dtype"), [(2, 2, FP16), (9, 3, FP16), (7, 1, FP32), (20, 1, FP32), (65, 1, FP16)]
)
def test_a_mixed_batch_with_empty_rows_and_any_group(heads: int, kv_heads: int, dtype: torch.dtype):
    check(Step(MIXED, **SHAPE | {"heads": heads, "kv_heads": kv_heads}, kv_dtype=dtype), dtype)


@pytest.mark.parametrize("num_splits", [1, 2, 4])
def test_splits_of_rows_shorter_and_longer_than_them(num_splits: int):
    check(Step([(0, 1), (63, 1), (64, 1), (256, 1), (299, 1)], **SHAPE), attend=split(num_splits))


@pytest.mark.parametrize("tile", [32, 128])
def test_tiles_of_other_sizes_give_the_same(tile: int):
    launch = Launch(tile, num_warps=4, num_stages=3)
    check(Step([(31, 1), (127, 1), (298, 1)], **SHAPE), attend=split(2, launch))


@pytest.mark.parametrize(("head_dim", "stored", "dtype"), KINDS)
def test_splits_over_any_head_size_and_cache(head_dim: int, stored: torch.dtype, dtype: torch.dtype):
    shape = {"heads": 3, "kv_heads": 1, "head_dim": head_dim, "block_size": 16}
    check(Step([(140, 1)], **shape, kv_dtype=stored), dtype, split(2))


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (20, 1)])
def test_splits_with_any_group(heads: int, kv_heads: int):
    check(Step([(140, 1)], **SHAPE | {"heads": heads, "kv_heads": kv_heads}), attend=split(2))


@pytest.mark.parametrize("attend", [triton_attention, split(4)], ids=["whole", "split"])
def test_large_scores_do_not_overflow(attend: Attention):
    step = Step([(200, 1)], **SHAPE)
    step.q *= 30
    check(step, attend=attend, near={"atol": 2e-5, "rtol": 2e-3})


@pytest.mark.parametrize("stored", [INT8, FP8], ids=["int8", "fp8"])
def test_small_values_keep_their_precision_in_half(stored: torch.dtype):
    """Their scales alone are next to nothing in fp16."""
    step = Step([(200, 1)], **SHAPE, kv_dtype=stored)
    step.v *= 2**-12
    step.cache.value_scales.mul_(2**-12)
    step.q *= 0.1  # many weights, each small
    step.q, step.k, step.v = step.q.half(), step.k.half(), step.v.half()
    found, _ = step.run(triton_attention)
    step.q, step.k, step.v = step.q.float(), step.k.float(), step.v.float()
    expected, _ = step.run(reference_attention)
    torch.testing.assert_close(found.float() * 2**12, expected * 2**12, **NEAR[FP16])


def test_fp8_read_by_the_hardware_is_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quantized, "has_fp8", lambda device: True)
    check(Step([(16, 1), (30, 23)], **SHAPE, kv_dtype=FP8))


def test_every_fp8_number_is_read_right():
    """Values that are all the finite fp8 numbers, read with weight 1 through a scale of 1."""
    step = Step([(0, 1), (0, 1), (0, 1), (0, 1)], **SHAPE | {"kv_heads": 1}, kv_dtype=FP8)
    step.v = torch.arange(256, dtype=torch.uint8).view(FP8).float().nan_to_num(448.0).view(4, 1, 64)
    step.v[:, :, 0] = 448.0
    check(step)


def test_tokens_may_be_any_distance_apart():
    step = Step([(5, 1), (0, 19)], **SHAPE)

    def apart(qkv: torch.Tensor, cache: LayerCache, meta: AttentionMetadata) -> torch.Tensor:
        wide = torch.full((len(qkv), qkv.shape[1] + 3, qkv.shape[2]), torch.nan)
        wide[:, :-3] = qkv
        return triton_attention(wide[:, :-3], cache, meta)

    check(step, attend=apart)


def test_rows_of_one_token_are_split_when_they_are_few_and_long(monkeypatch: pytest.MonkeyPatch):
    assert choose_num_splits(8, 8192, wanted=264) == 32
    assert choose_num_splits(64, 8192, wanted=264) == 4
    assert choose_num_splits(256, 8192, wanted=264) == 1
    assert choose_num_splits(256, 8192, wanted=132) == 1
    assert choose_num_splits(8, 512, wanted=264) == 2
    assert choose_num_splits(8, 16, wanted=264) == 1
    monkeypatch.setattr(split_kv, "num_processors", lambda device: 132)
    taken = []
    monkeypatch.setattr(split_kv, "attend_split", lambda *args: taken.append(args[3]) or attend_split(*args))
    check(Step([(5, 1), (600, 1)], **SHAPE))
    check(Step([(5, 1), (600, 2)], **SHAPE))
    check(Step([(5, 0), (60, 1), (8, 1)], **SHAPE))
    assert taken == [2]
