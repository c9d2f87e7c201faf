"""The flat batch of one forward pass over any mix of rows: built with numpy, row by row, to cross to torch once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata, sent

CPU = torch.device("cpu")


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

    def to(self, device: torch.device) -> FlatBatch:
        """The batch on a GPU."""
        return FlatBatch(
            token_ids=sent(self.token_ids, device),
            positions=sent(self.positions, device),
            logits_indices=sent(self.logits_indices, device),
            meta=self.meta.to(device),
        )


def flat_batch(shares: Sequence[Share], block_size: int, device: torch.device = CPU) -> FlatBatch:
    """Lay the rows one behind the other, on the device; nothing waits for it."""
    counts = np.array([len(share.token_ids) for share in shares], dtype=np.int64)
    starts = np.array([share.start for share in shares], dtype=np.int64)
    query_start_loc = np.zeros(len(shares) + 1, dtype=np.int32)
    np.cumsum(counts, out=query_start_loc[1:])
    token_ids = np.empty(query_start_loc[-1], dtype=np.int64)
    tables = np.zeros((len(shares), max((len(share.block_table) for share in shares), default=0)), dtype=np.int32)
    for i, share in enumerate(shares):
        token_ids[query_start_loc[i] : query_start_loc[i + 1]] = share.token_ids
        tables[i, : len(share.block_table)] = share.block_table
    row_of = np.repeat(np.arange(len(shares)), counts)
    positions = np.arange(query_start_loc[-1]) - np.repeat(query_start_loc[:-1] - starts, counts)
    slot_mapping = tables[row_of, positions // block_size].astype(np.int64) * block_size + positions % block_size
    ends = query_start_loc[1:].tolist()
    wanted = [
        index
        for share, end in zip(shares, ends, strict=True)
        for index in range(end - share.num_logits, end)
    ]  # fmt: skip
    batch = FlatBatch(
        token_ids=torch.from_numpy(token_ids),
        positions=torch.from_numpy(positions),
        logits_indices=torch.tensor(wanted, dtype=torch.int64),
        meta=AttentionMetadata.build(
            query_start_loc=torch.from_numpy(query_start_loc),
            seq_lens=torch.from_numpy((starts + counts).astype(np.int32)),
            block_tables=torch.from_numpy(tables),
            slot_mapping=torch.from_numpy(slot_mapping),
            block_size=block_size,
            with_chunks=device.type == "cpu",
        ),
    )
    return batch if device.type == "cpu" else batch.to(device)
