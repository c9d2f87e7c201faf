"""Every kernel against its oracle in fp32, on the device where it will run; on a CPU the CPU's own backend."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.attention.cache import LayerCache, store_kv
from engine.models import ops
from engine.models.ops import PLAIN_OPS, Ops, choose_ops

Found = tuple[str, float, float]
"""(what, the worst absolute error, the most that is allowed)."""

HEADS, KV_HEADS, BLOCK_SIZE = 8, 2, 16
ROWS = [(0, 1), (15, 1), (0, 37), (31, 18), (300, 1), (47, 2)]  # (tokens before, tokens of this step)
ALLOWED = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.01}


def kernel_errors(device: torch.device) -> Iterator[Found]:
    """All of them; attention in each head size and over each kind of cache."""
    dtypes = [torch.float32] if device.type == "cpu" else [torch.float32, torch.float16, torch.bfloat16]
    for dtype in dtypes:
        chosen = choose_ops(device, dtype)
        yield from _small_ones(chosen, device, dtype)
        for head_dim, stored in itertools.product((64, 80, 128, 256), (dtype, torch.int8, torch.float8_e4m3fn)):
            name = f"attention {_name(dtype)}, heads of {head_dim}, cache {_name(stored)}"
            yield name, _attention_error(chosen, device, dtype, head_dim, stored), 2 * ALLOWED[dtype]


def _small_ones(chosen: Ops, device: torch.device, dtype: torch.dtype) -> Iterator[Found]:
    x, residual = _random(device, dtype, 37, 576), _random(device, dtype, 37, 576)
    weight, gate_up = _random(device, dtype, 576), _random(device, dtype, 37, 1024)
    near = 4 * ALLOWED[dtype]
    exact = ops.rms_norm(x.float(), weight.float(), 1e-5)
    yield f"RMSNorm {_name(dtype)}", _error(chosen.rms_norm(x, weight, 1e-5), exact), near
    exact, summed = ops.add_rms_norm(x.float(), residual.float(), weight.float(), 1e-5)
    normed, found = chosen.add_rms_norm(x, residual, weight, 1e-5)
    yield f"RMSNorm after addition {_name(dtype)}", max(_error(normed, exact), _error(found, summed)), near
    exact = ops.silu_and_mul(gate_up.float())
    yield f"SiLU and product {_name(dtype)}", _error(chosen.silu_and_mul(gate_up), exact), near


def _attention_error(
    chosen: Ops, device: torch.device, dtype: torch.dtype, head_dim: int, stored: torch.dtype
) -> float:
    """Rotary embedding, storing and attention of a mixed step, over what a first step has stored."""
    starts = list(itertools.accumulate((-(-(before + new) // BLOCK_SIZE) for before, new in ROWS), initial=0))
    tables = torch.zeros(len(ROWS), 32, dtype=torch.int32)
    for row, (first, last) in enumerate(itertools.pairwise(starts)):
        tables[row, : last - first] = torch.arange(first, last)
    shape = (starts[-1], KV_HEADS, BLOCK_SIZE, head_dim)
    found, exact = (LayerCache.empty(shape, kind, device) for kind in (stored, _oracle_dtype(stored)))
    angles = torch.outer(torch.arange(512.0), 10_000 ** (-torch.arange(0, head_dim, 2) / head_dim)).to(device)
    cos, sin = angles.cos(), angles.sin()
    worst = 0.0
    for spans in ([(0, before) for before, _ in ROWS], ROWS):
        meta, positions = _meta(spans, tables, device)
        qkv = _random(device, dtype, len(positions), HEADS + 2 * KV_HEADS, head_dim)
        oracle = qkv.clone()
        ops.rotate(oracle, HEADS + KV_HEADS, cos, sin, positions)  # rounded to its dtype before it is stored, as there
        oracle = oracle.float()
        store_kv(oracle[:, HEADS : HEADS + KV_HEADS], oracle[:, HEADS + KV_HEADS :], exact, meta.slot_mapping)
        chosen.rotate_and_store(qkv, cos, sin, positions, found, meta.slot_mapping)
        if spans is ROWS:
            worst = _error(chosen.attend(qkv, found, meta), PLAIN_OPS.attend(oracle, exact, meta))
    return worst


def _oracle_dtype(stored: torch.dtype) -> torch.dtype:
    return stored if stored in (torch.int8, torch.float8_e4m3fn) else torch.float32


def _meta(spans: list[tuple[int, int]], tables: Tensor, device: torch.device) -> tuple[AttentionMetadata, Tensor]:
    """The metadata of a step of these (tokens before, tokens now), rows without tokens left out, and positions."""
    rows = [row for row, (_, new) in enumerate(spans) if new]
    positions = [torch.arange(spans[row][0], sum(spans[row])) for row in rows]
    slots = [
        tables[row, at // BLOCK_SIZE].long() * BLOCK_SIZE + at % BLOCK_SIZE
        for row, at in zip(rows, positions, strict=True)
    ]
    built = AttentionMetadata.build(
        query_start_loc=torch.tensor([0, *itertools.accumulate(spans[row][1] for row in rows)], dtype=torch.int32),
        seq_lens=torch.tensor([sum(spans[row]) for row in rows], dtype=torch.int32),
        block_tables=tables[rows],
        slot_mapping=torch.cat(slots),
        block_size=BLOCK_SIZE,
    )
    return built.to(device), torch.cat(positions).to(device)


def _random(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[-1])).to(device, dtype)


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found.float() - exact).abs().max())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
