"""DecodeGraphs: decode steps captured once per size and replayed, so that a step costs one launch instead of hundreds.

Contract. A step of n rows of one token each is run by the smallest captured size that holds it. The rows are copied
into that size's own buffer, the rest are padding: slot -1 stores nothing, length 0 attends to nothing, and what comes
out of them is cut off. All that a launch could depend on is fixed at capture: number of rows, width of the block table.
The logits are those of the captured tensors and are overwritten by the next replay; take what you need before it.

How a step is captured is handed in, so that the control flow runs without a GPU too (tests, `gpu-check` DRY=1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.batch import FlatBatch, Layout, Share, host_buffer, on_device, write_shares
from engine.config import EngineConfig
from engine.model_cache import Progress

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


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A captured size."""

    inputs: FlatBatch  # parts of `buffer`
    layout: Layout
    buffer: Tensor
    replay: Callable[[], object]
    logits: Tensor  # [size, vocab_size]

    def run(self, shares: Sequence[Share]) -> Tensor:
        """Logits [rows that want them, vocab_size] after `DecodeGraphs.load`; valid until the next replay."""
        self.replay()
        wanted = [row for row, share in enumerate(shares) if share.num_logits]
        if len(wanted) == len(shares):
            return self.logits[: len(shares)]
        return self.logits[torch.tensor(wanted, dtype=torch.int64).to(self.logits.device, non_blocking=True)]


class DecodeGraphs:
    """See the module's docstring. `table_width` is the most blocks that a row can have."""

    def __init__(
        self,
        step: Step,
        sizes: Sequence[int],
        table_width: int,
        block_size: int,
        device: torch.device,
        capture: Capture,
        captured: Callable[[int], object] = lambda count: None,
    ) -> None:
        self._width = table_width
        self._block_size = block_size
        self._device = device
        self._graphs: dict[int, Graph] = {}
        for size in sorted(sizes, reverse=True):
            layout = Layout(num_tokens=size, num_rows=size, num_logits=size, table_width=table_width)
            buffer = self._padding(layout).to(device)
            inputs = on_device(layout.split(buffer, torch.int32), [_PAD] * size)
            replay, logits = capture(lambda inputs=inputs: step(inputs))  # type: ignore[misc]
            self._graphs[size] = Graph(inputs, layout, buffer, replay, logits)
            captured(len(self._graphs))
        self._sizes = sorted(self._graphs)

    def fits(self, shares: Sequence[Share]) -> bool:
        """Whether this is a step that was captured: one token in every row."""
        return 0 < len(shares) <= self._sizes[-1] and all(
            len(share.token_ids) == 1 and len(share.block_table) <= self._width for share in shares
        )

    def load(self, shares: Sequence[Share]) -> Graph:
        """The smallest graph that holds these rows, with its inputs filled in by one copy; nothing waits for it."""
        graph = self._graphs[next(size for size in self._sizes if size >= len(shares))]
        graph.buffer.copy_(self._padding(graph.layout, shares), non_blocking=True)
        return graph

    def _padding(self, layout: Layout, shares: Sequence[Share] = ()) -> Tensor:
        """A buffer on the host: these rows, and rows of padding behind them."""
        buffer = host_buffer(layout.num_words, self._device)
        arrays = layout.split(buffer.numpy(), np.int32)
        write_shares(arrays, shares, self._block_size)
        rows, size = len(shares), layout.num_rows
        arrays.token_ids[rows:] = 0
        arrays.positions[rows:] = 0
        arrays.slot_mapping[rows:] = -1
        arrays.seq_lens[rows:] = 0
        arrays.logits_indices[:] = np.arange(size)
        arrays.query_start_loc[rows + 1 :] = np.arange(rows + 1, size + 1)
        return buffer


_PAD = Share(block_table=(), start=0, token_ids=(0,), num_logits=1)


def decode_graphs(
    step: Step, config: EngineConfig, device: torch.device, capture: Capture, progress: Progress
) -> DecodeGraphs:
    """For batches and rows as large as `config`, resolved, lets them be."""
    assert config.max_model_len is not None
    sizes = graph_sizes(config.max_num_seqs)
    return DecodeGraphs(
        step,
        sizes,
        -(-config.max_model_len // config.block_size),
        config.block_size,
        device,
        capture,
        lambda done: progress("warm up", done, len(sizes), "graphs"),
    )
