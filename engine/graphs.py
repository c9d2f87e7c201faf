"""DecodeGraphs: decode steps captured once per size and replayed, so that a step costs one launch instead of hundreds.

Contract. A step of n rows of one token each is run by the smallest captured size that holds it. The rows are copied
into that size's own tensors, the rest are padding: slot -1 stores nothing, length 0 attends to nothing, and what comes
out of them is cut off. All that a launch could depend on is fixed at capture: number of rows, width of the block table.
The logits are those of the captured tensors and are overwritten by the next replay; take what you need before it.

How a step is captured is handed in, so that the control flow runs without a GPU too (tests, `gpu-check` DRY=1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.batch import FlatBatch

Step = Callable[[FlatBatch], Tensor]
"""A model's forward over its caches: logits of the batch's `logits_indices`."""

Capture = Callable[[Callable[[], Tensor]], tuple[Callable[[], object], Tensor]]
"""Runs the work once and returns (how to do it again, the tensor in which its result then stands)."""


def graph_sizes(max_num_seqs: int) -> list[int]:
    """1, 2, 4, then every 8 up to 64, then every 16: small steps fit closely, and there are not too many graphs."""
    sizes = {1, 2, 4, *range(8, 65, 8), *range(80, max_num_seqs + 16, 16), max_num_seqs}
    return sorted(size for size in sizes if size <= max_num_seqs)


class CudaCapture:
    """Captures on a GPU; all graphs share one memory pool, so the largest must come first."""

    def __init__(self) -> None:
        self._pool: Any = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiles and allocates what must not happen in a capture
            work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = work()
        return graph.replay, result


def repeat(work: Callable[[], Tensor]) -> tuple[Callable[[], object], Tensor]:
    """A stand-in for capture on any device: does the work anew each time, into the same tensor."""
    result = work().clone()
    return lambda: result.copy_(work()), result


@dataclass(frozen=True, slots=True)
class _Graph:
    inputs: FlatBatch
    replay: Callable[[], object]
    logits: Tensor  # [size, vocab_size]


class DecodeGraphs:
    """See the module's docstring. `table_width` is the most blocks that a row can have."""

    def __init__(
        self, step: Step, sizes: Sequence[int], table_width: int, device: torch.device, capture: Capture
    ) -> None:
        self._width = table_width
        self._graphs: dict[int, _Graph] = {}
        for size in sorted(sizes, reverse=True):
            inputs = _padding(size, table_width, device)
            self._graphs[size] = _Graph(inputs, *capture(lambda inputs=inputs: step(inputs)))  # type: ignore[misc]
        self._sizes = sorted(self._graphs)

    def fits(self, batch: FlatBatch) -> bool:
        """Whether this is a step that was captured: every row decodes one token, and wants its logits."""
        rows = len(batch.meta.seq_lens)
        return (
            0 < rows <= self._sizes[-1]
            and len(batch.token_ids) == rows == len(batch.logits_indices)
            and batch.meta.block_tables.shape[1] <= self._width
        )

    def run(self, batch: FlatBatch) -> Tensor:
        """Logits [num_rows, vocab_size] of a batch that fits; valid until the next call."""
        rows = len(batch.token_ids)
        graph = self._graphs[next(size for size in self._sizes if size >= rows)]
        _fill(graph.inputs, batch, rows)
        graph.replay()
        return graph.logits[:rows]


def _padding(size: int, table_width: int, device: torch.device) -> FlatBatch:
    """A batch of nothing but padding rows."""
    meta = AttentionMetadata(
        query_start_loc=torch.arange(size + 1, dtype=torch.int32, device=device),
        seq_lens=torch.zeros(size, dtype=torch.int32, device=device),
        block_tables=torch.zeros(size, table_width, dtype=torch.int32, device=device),
        slot_mapping=torch.full((size,), -1, dtype=torch.int64, device=device),
        single_rows=torch.arange(size, dtype=torch.int32),
        chunks=(),
    )
    return FlatBatch(
        token_ids=torch.zeros(size, dtype=torch.int64, device=device),
        positions=torch.zeros(size, dtype=torch.int64, device=device),
        logits_indices=torch.arange(size, device=device),
        meta=meta,
    )


def _fill(inputs: FlatBatch, batch: FlatBatch, rows: int) -> None:
    """Copy the batch into the first rows and make padding of the rest; nothing waits for the device."""
    for own, given in (
        (inputs.token_ids, batch.token_ids),
        (inputs.positions, batch.positions),
        (inputs.meta.seq_lens, batch.meta.seq_lens),
        (inputs.meta.slot_mapping, batch.meta.slot_mapping),
    ):
        own[:rows].copy_(given, non_blocking=True)
    inputs.meta.seq_lens[rows:].zero_()
    inputs.meta.slot_mapping[rows:].fill_(-1)
    width = batch.meta.block_tables.shape[1]
    inputs.meta.block_tables[:rows, :width].copy_(batch.meta.block_tables, non_blocking=True)
