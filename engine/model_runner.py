"""ModelRunner: one step's tensors, the forward pass, the next tokens.

Contract. It keeps nothing about requests between steps; rows carry the live Request. The flat batch is built with
numpy, whole arrays at a time per row, and crosses to torch once. One copy of token ids comes back per step.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.config import EngineConfig
from engine.events import DeviceFacts
from engine.kv_cache import allocate
from engine.loader import Loaded
from engine.model_cache import Progress
from engine.runner import ScheduledRow, SchedulerOutput


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The inputs of one step."""

    rows: list[ScheduledRow]
    token_ids: Tensor  # [num_tokens] int64
    positions: Tensor  # [num_tokens] int64
    logits_indices: Tensor  # [num sampling rows] int64, into the flat batch
    meta: AttentionMetadata


class ModelRunner:
    """Implements engine.runner.Runner with a real model."""

    def __init__(self, loaded: Loaded, config: EngineConfig) -> None:
        self.model = loaded.model
        self.config = config
        self.device = self.model.embed_tokens.device
        self.caches = allocate(config, self.model.config, self.device)

    def prepare(self, output: SchedulerOutput) -> Batch:
        rows = output.rows
        block_size = self.config.block_size
        counts = np.array([row.num_scheduled_tokens for row in rows])
        starts = np.array([row.num_computed_tokens for row in rows])
        query_start_loc = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=query_start_loc[1:])
        token_ids = np.empty(query_start_loc[-1], dtype=np.int64)
        tables = np.zeros((len(rows), max(len(row.request.block_table) for row in rows)), dtype=np.int32)
        for i, row in enumerate(rows):
            first, last = row.num_computed_tokens, row.num_computed_tokens + row.num_scheduled_tokens
            token_ids[query_start_loc[i] : query_start_loc[i + 1]] = row.request.token_ids[first:last]
            tables[i, : len(row.request.block_table)] = row.request.block_table
        row_of = np.repeat(np.arange(len(rows)), counts)
        positions = np.arange(query_start_loc[-1]) - np.repeat(query_start_loc[:-1] - starts, counts)
        slot_mapping = tables[row_of, positions // block_size].astype(np.int64) * block_size + positions % block_size
        sampling = [query_start_loc[i + 1] - 1 for i, row in enumerate(rows) if row.samples]
        meta = AttentionMetadata(
            query_start_loc=torch.from_numpy(query_start_loc),
            seq_lens=torch.from_numpy((starts + counts).astype(np.int32)),
            block_tables=torch.from_numpy(tables),
            slot_mapping=torch.from_numpy(slot_mapping),
            max_query_len=int(counts.max()),
        )
        return Batch(
            rows=rows,
            token_ids=torch.from_numpy(token_ids),
            positions=torch.from_numpy(positions),
            logits_indices=torch.tensor(sampling, dtype=torch.int64),
            meta=meta,
        )

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        """Logits of the sampling rows, [num sampling rows, vocab_size] fp32."""
        return self.model.forward(batch.token_ids, batch.positions, self.caches, batch.meta, batch.logits_indices)

    @torch.inference_mode()
    def sample(self, batch: Batch, logits: Tensor) -> list[list[int]]:
        picked = iter(logits.argmax(-1).tolist())
        return [[next(picked)] if row.samples else [] for row in batch.rows]

    def warm_up(self, progress: Progress) -> None:
        """Run every code path once, so that the first request does not pay for it."""
        progress("warm up", 1, 1, "steps")

    def device_facts(self) -> DeviceFacts:
        return DeviceFacts(type="cpu", name=platform.processor(), num_threads=torch.get_num_threads(), total_bytes=None)
