"""What every attention backend agrees on: the metadata of a step, and one call signature.

Vocabulary as in vLLM V1. A step is a flat batch of tokens, row after row; row r owns tokens
`query_start_loc[r] : query_start_loc[r + 1]`, which are the last of its `seq_lens[r]` tokens so far. Decode is a
row of one token; nothing else tells it from prefill.

Invariant: keys and values of the step's own tokens are stored first and then read back like all others, quantised ones
too, so that a cold and a warm prompt see the same numbers.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from engine.attention.cache import LayerCache


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A row of several tokens, with what every layer would otherwise work out again."""

    start: int  # its tokens in the flat batch: start to end
    end: int
    seq_len: int
    blocks: Tensor  # [blocks that hold seq_len tokens] int64
    mask: Tensor  # [end - start, seq_len] bool, see causal_mask


@dataclass(frozen=True, slots=True, eq=False)
class AttentionMetadata:
    """Where each token of the step belongs. Built once per step, read by every layer."""

    query_start_loc: Tensor  # [num_rows + 1] int32
    seq_lens: Tensor  # [num_rows] int32, this step's tokens included
    block_tables: Tensor  # [num_rows, widest table] int32; entries past a row's length are never read
    slot_mapping: Tensor  # [num_tokens] int64

    # The same rows once more, by kind; on the host, whatever device the others are on:
    single_rows: Tensor  # [rows of one token] int32, their row numbers
    chunks: tuple[Chunk, ...]  # the others, where a backend reads them

    @classmethod
    def build(
        cls,
        query_start_loc: Tensor,
        seq_lens: Tensor,
        block_tables: Tensor,
        slot_mapping: Tensor,
        block_size: int,
        *,
        with_chunks: bool = True,
    ) -> AttentionMetadata:
        """Sort the rows into single ones and chunks."""
        starts, lens = query_start_loc.tolist(), seq_lens.tolist()
        query_lens = [end - start for start, end in pairwise(starts)]
        chunks = tuple(
            Chunk(
                start=starts[row],
                end=starts[row + 1],
                seq_len=lens[row],
                blocks=block_tables[row, : -(-lens[row] // block_size)].long(),
                mask=causal_mask(query_len, lens[row], block_tables.device),
            )
            for row, query_len in enumerate(query_lens)
            if query_len > 1 and with_chunks
        )
        single = [row for row, query_len in enumerate(query_lens) if query_len == 1]
        return cls(
            query_start_loc=query_start_loc,
            seq_lens=seq_lens,
            block_tables=block_tables,
            slot_mapping=slot_mapping,
            single_rows=torch.tensor(single, dtype=torch.int32),
            chunks=chunks,
        )

    def to(self, device: torch.device) -> AttentionMetadata:
        """The same on this device; what is read on the host stays there."""
        if device.type == "cpu":
            return self
        return dataclasses.replace(
            self,
            query_start_loc=sent(self.query_start_loc, device),
            seq_lens=sent(self.seq_lens, device),
            block_tables=sent(self.block_tables, device),
            slot_mapping=sent(self.slot_mapping, device),
        )


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy on a GPU, through pinned memory, for which nobody has to wait."""
    return tensor.pin_memory().to(device, non_blocking=True)


class Attention(Protocol):
    """A backend: stores this step's keys and values and attends over all of each row's tokens so far."""

    def __call__(self, qkv: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
        """qkv [num_tokens, q heads | k heads | v heads, head_dim] → [num_tokens, q heads, head_dim]."""


def split_heads(qkv: Tensor, cache: LayerCache) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v as views of what one merged projection gave; the cache knows how many KV heads there are."""
    num_kv_heads = cache.keys.shape[1]
    return qkv[:, : -2 * num_kv_heads], qkv[:, -2 * num_kv_heads : -num_kv_heads], qkv[:, -num_kv_heads:]


def causal_mask(query_len: int, seq_len: int, device: torch.device) -> Tensor:
    """[query_len, seq_len], true where the query may look: its own position and before. Queries are the last tokens."""
    position = torch.arange(seq_len - query_len, seq_len, device=device)
    return torch.arange(seq_len, device=device) <= position[:, None]
