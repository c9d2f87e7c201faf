"""ModelRunner: one step's tensors, the forward pass, the next tokens.

Contract. It keeps nothing about requests between steps; rows carry the live Request. The flat batch is built with
numpy, whole arrays at a time per row, and crosses to torch once. One copy of token ids comes back per step.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.config import EngineConfig
from engine.events import DeviceFacts
from engine.kv_cache import allocate
from engine.loader import Loaded
from engine.model_cache import Progress
from engine.request import Request, SamplingParams
from engine.runner import ScheduledRow, SchedulerOutput, until_wrong
from engine.sampler import Draw, sample


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The inputs of one step."""

    rows: list[ScheduledRow]
    token_ids: Tensor  # [num_tokens] int64
    positions: Tensor  # [num_tokens] int64
    logits_indices: Tensor  # [num sampled positions] int64, into the flat batch
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
        counts = np.array([row.num_scheduled_tokens for row in rows], dtype=np.int64)
        starts = np.array([row.num_computed_tokens for row in rows], dtype=np.int64)
        query_start_loc = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=query_start_loc[1:])
        token_ids = np.empty(query_start_loc[-1], dtype=np.int64)
        tables = np.zeros((len(rows), max((len(row.request.block_table) for row in rows), default=0)), dtype=np.int32)
        for i, row in enumerate(rows):
            token_ids[query_start_loc[i] : query_start_loc[i + 1]] = row.input_token_ids
            tables[i, : len(row.request.block_table)] = row.request.block_table
        row_of = np.repeat(np.arange(len(rows)), counts)
        positions = np.arange(query_start_loc[-1]) - np.repeat(query_start_loc[:-1] - starts, counts)
        slot_mapping = tables[row_of, positions // block_size].astype(np.int64) * block_size + positions % block_size
        ends = query_start_loc[1:].tolist()
        sampling = [
            position
            for row, end in zip(rows, ends, strict=True)
            if row.samples
            for position in range(end - 1 - len(row.draft_token_ids), end)
        ]
        meta = AttentionMetadata.build(
            query_start_loc=torch.from_numpy(query_start_loc),
            seq_lens=torch.from_numpy((starts + counts).astype(np.int32)),
            block_tables=torch.from_numpy(tables),
            slot_mapping=torch.from_numpy(slot_mapping),
            block_size=block_size,
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
        """Logits of the sampling rows, [num sampling rows, vocab_size] fp32. A step may have no rows at all."""
        if not batch.rows:
            return torch.empty(0, self.model.config.vocab_size)
        return self.model.forward(batch.token_ids, batch.positions, self.caches, batch.meta, batch.logits_indices)

    @torch.inference_mode()
    def sample(self, batch: Batch, logits: Tensor) -> list[list[int]]:
        """Per row the tokens it produced, or none if the step does not reach its last token."""
        draws = [
            Draw(row.request.sampling_params, row.request.seed, row.num_output_before + ahead)
            for row in batch.rows
            if row.samples
            for ahead in range(len(row.draft_token_ids) + 1)
        ]
        picked = iter(sample(logits, draws).tolist() if draws else ())
        return [
            until_wrong(list(islice(picked, len(row.draft_token_ids) + 1)), row.draft_token_ids) if row.samples else []
            for row in batch.rows
        ]

    def warm_up(self, progress: Progress) -> None:
        """Run the kinds of step there are once, so that no request pays for compiling or for first touches.

        It writes to blocks that nobody holds; whoever is handed one later writes it before reading it.
        """
        assert self.config.num_blocks is not None
        assert self.config.max_model_len is not None
        pool_tokens = self.config.num_blocks * self.config.block_size
        longest = max(1, min(self.config.max_num_batched_tokens, self.config.max_model_len, pool_tokens))
        steps = [[longest], [1], [1] * self.config.max_num_seqs]
        for done, lengths in enumerate(steps):
            progress("warm up", done, len(steps), "steps")
            output = SchedulerOutput(rows=[self._fake_row(length) for length in lengths])
            batch = self.prepare(output)
            self.sample(batch, self.forward(batch))
        progress("warm up", len(steps), len(steps), "steps")

    def _fake_row(self, length: int) -> ScheduledRow:
        request = Request(
            request_id="warm up",
            prompt_token_ids=[0] * length,
            sampling_params=SamplingParams(),
            max_tokens=1,
            seed=0,
            stop_token_ids=frozenset(),
            arrival_us=0,
            block_table=list(range(-(-length // self.config.block_size))),
        )
        return ScheduledRow(request=request, num_computed_tokens=0, num_scheduled_tokens=length, new_blocks=[])

    def device_facts(self) -> DeviceFacts:
        return DeviceFacts(
            type=self.device.type,
            name=_cpu_name(),
            num_threads=torch.get_num_threads(),
            total_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )


def _cpu_name() -> str:
    """The processor's name as its maker writes it, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
