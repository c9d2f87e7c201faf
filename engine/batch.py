"""The flat batch of one forward pass over any mix of rows: written with numpy into one buffer, row by row.

Contract. All inputs of a pass lie in one buffer, so that they cross to a GPU in one copy for which nobody waits. Each
begins at a multiple of 16 bytes, whatever the sizes: a kernel is compiled anew for a pointer that is less aligned.
Entries of a block table past a row's length are never read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata

CPU = torch.device("cpu")
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """One row's part of a forward pass: these tokens, from position `start` on."""

    block_table: Sequence[int]
    start: int
    token_ids: Sequence[int]
    num_logits: int  # logits are wanted after so many of them, the last ones


@dataclass(frozen=True, slots=True, eq=False)
class FlatBatch:
    """What a model's `forward` takes, besides its caches."""

    token_ids: Tensor  # [num_tokens] int64
    positions: Tensor  # [num_tokens] int64
    logits_indices: Tensor  # [num logits] int64, into the flat batch
    meta: AttentionMetadata


class Inputs(NamedTuple, Generic[Part]):
    """The inputs of a pass, as parts of one buffer: arrays on the host, tensors on any device."""

    token_ids: Part
    positions: Part
    slot_mapping: Part
    logits_indices: Part
    seq_lens: Part
    query_start_loc: Part
    block_tables: Part


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the inputs of a batch of these sizes lie in a buffer of int64 words."""

    num_tokens: int
    num_rows: int
    num_logits: int
    table_width: int  # blocks

    @classmethod
    def of(cls, shares: Sequence[Share]) -> Layout:
        """Just large enough."""
        return cls(
            num_tokens=sum(len(share.token_ids) for share in shares),
            num_rows=len(shares),
            num_logits=sum(share.num_logits for share in shares),
            table_width=max((len(share.block_table) for share in shares), default=0),
        )

    @property
    def num_words(self) -> int:
        return sum(_aligned(words) for _, _, words in self._parts())

    def _parts(self) -> list[tuple[bool, tuple[int, ...], int]]:
        """(whether of int32, shape, words) of each input, in their order."""
        rows, width = self.num_rows, self.table_width
        tokens, logits = (self.num_tokens,), (self.num_logits,)
        long = [(False, shape, shape[0]) for shape in (tokens, tokens, tokens, logits)]
        short = [(rows,), (rows + 1,), (rows, width)]
        return [*long, *((True, shape, math.prod(shape) + 1 >> 1) for shape in short)]

    def split(self, buffer: Part, int32: Any) -> Inputs[Part]:
        """The parts of a buffer: numpy's or torch's, and so is `int32`."""
        at, inputs = 0, []
        for short, shape, words in self._parts():
            part: Any = buffer[at : at + words]  # type: ignore[index]
            if short:
                part = part.view(int32)[: math.prod(shape)]
            inputs.append(part.reshape(shape))
            at += _aligned(words)
        return Inputs(*inputs)


def _aligned(words: int) -> int:
    return words + words % 2  # 8 bytes each


def host_buffer(num_words: int, device: torch.device) -> Tensor:
    """Room on the host from which a copy to `device` need not be waited for.

    A new one each time: torch keeps pinned memory, and hands it out again only when the copies from it are done.
    """
    return torch.empty(num_words, dtype=torch.int64, pin_memory=device.type == "cuda")


def write_shares(arrays: Inputs[np.ndarray[Any, Any]], shares: Sequence[Share], block_size: int) -> None:
    """Lay the rows one behind the other into arrays that have room for them, and perhaps for more."""
    rows = len(shares)
    counts = np.fromiter((len(share.token_ids) for share in shares), np.int64, rows)
    starts = np.fromiter((share.start for share in shares), np.int64, rows)
    ends = counts.cumsum()
    total = int(ends[-1]) if rows else 0
    arrays.query_start_loc[0] = 0
    arrays.query_start_loc[1 : rows + 1] = ends
    arrays.seq_lens[:rows] = starts + counts
    arrays.token_ids[:total] = list(chain.from_iterable(share.token_ids for share in shares))
    tables = arrays.block_tables
    for row, share in enumerate(shares):
        tables[row, : len(share.block_table)] = share.block_table
    positions = arrays.positions[:total]
    positions[:] = np.arange(total) - np.repeat(ends - counts - starts, counts)
    blocks = tables[np.repeat(np.arange(rows), counts), positions // block_size]
    arrays.slot_mapping[:total] = blocks.astype(np.int64) * block_size + positions % block_size
    wanted = np.fromiter((share.num_logits for share in shares), np.int64, rows)
    before = wanted.cumsum()
    num_logits = int(before[-1]) if rows else 0
    arrays.logits_indices[:num_logits] = np.arange(num_logits) + np.repeat(ends - before, wanted)


def flat_batch(shares: Sequence[Share], block_size: int, device: torch.device = CPU) -> FlatBatch:
    """The rows as a batch on the device, no larger than need be; nothing waits for it."""
    layout = Layout.of(shares)
    buffer = host_buffer(layout.num_words, device)
    write_shares(layout.split(buffer.numpy(), np.int32), shares, block_size)
    if device.type == "cpu":
        return _on_cpu(layout.split(buffer, torch.int32), block_size)
    return on_device(layout.split(buffer.to(device, non_blocking=True), torch.int32), shares)


def on_device(inputs: Inputs[Tensor], shares: Sequence[Share]) -> FlatBatch:
    """A batch of inputs that lie there already; what a kernel's launch depends on stays on the host."""
    single = [row for row, share in enumerate(shares) if len(share.token_ids) == 1]
    meta = AttentionMetadata(
        query_start_loc=inputs.query_start_loc,
        seq_lens=inputs.seq_lens,
        block_tables=inputs.block_tables,
        slot_mapping=inputs.slot_mapping,
        single_rows=torch.tensor(single, dtype=torch.int32),
        chunks=(),
    )
    return FlatBatch(inputs.token_ids, inputs.positions, inputs.logits_indices, meta)


def _on_cpu(inputs: Inputs[Tensor], block_size: int) -> FlatBatch:
    meta = AttentionMetadata.build(
        query_start_loc=inputs.query_start_loc,
        seq_lens=inputs.seq_lens,
        block_tables=inputs.block_tables,
        slot_mapping=inputs.slot_mapping,
        block_size=block_size,
    )
    return FlatBatch(inputs.token_ids, inputs.positions, inputs.logits_indices, meta)
