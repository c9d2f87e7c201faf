"""ModelRunner: one step's tensors, the forward pass, the next tokens.

Contract. It keeps nothing about requests between steps; rows carry the live Request. One copy of inputs goes to a GPU
per step and one of token ids comes back, which is all that it waits for. With a draft model the guesses are made
first, and waited for one by one; see engine/drafter.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from engine.batch import FlatBatch, Share, flat_batch
from engine.config import EngineConfig
from engine.device_clock import DeviceClock, device_clock
from engine.drafter import Drafter
from engine.graphs import Capture, DecodeGraphs, Graph, decode_graphs
from engine.kv_cache import allocate, resolve_kv_dtype
from engine.loader import Loaded
from engine.model_cache import Progress
from engine.request import Request, SamplingParams
from engine.runner import ScheduledRow, SchedulerOutput, until_wrong
from engine.sampler import Draw, choose_sample, to_host
from engine.speculative import parse_speculation


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The inputs of one step."""

    rows: list[ScheduledRow]
    shares: list[Share]
    flat: FlatBatch
    graph: Graph | None = None  # that has them, if the step is replayed


class ModelRunner:
    """Implements engine.runner.Runner with a real model."""

    def __init__(
        self, loaded: Loaded, config: EngineConfig, draft: Loaded | None = None, clock: DeviceClock | None = None
    ) -> None:
        self.model = loaded.model
        self.config = config
        self.device = self.model.embed_tokens.device
        self.caches = allocate(config, self.model.config, self.device, resolve_kv_dtype(config, self.model))
        self.graphs: DecodeGraphs | None = None
        self._pick = choose_sample(self.device)
        self._clock = clock or device_clock(self.device)
        assert (draft is not None) == (parse_speculation(config.speculative).kind == "draft"), "load_draft comes first"
        self.drafter = Drafter(draft.model, config, self._clock) if draft is not None else None

    def draft(self, output: SchedulerOutput) -> bool:
        if self.drafter is None or not output.rows:
            return False
        self.drafter.fill(output.rows)
        return True

    @torch.inference_mode()
    def prepare(self, output: SchedulerOutput) -> Batch:
        shares = [
            Share(
                row.request.block_table,
                row.num_computed_tokens,
                row.input_token_ids,
                num_logits=row.num_logits,
            )
            for row in output.rows
        ]
        if self.graphs is not None and self.graphs.fits(shares):
            graph = self.graphs.load(shares)
            return Batch(output.rows, shares, graph.inputs, graph)
        return Batch(output.rows, shares, flat_batch(shares, self.config.block_size, self.device))

    @torch.inference_mode()
    def forward(self, batch: Batch) -> Tensor:
        """Logits of the sampling rows, [num sampling rows, vocab_size] fp32. A step may have no rows at all."""
        if not batch.rows:
            return torch.empty(0, self.model.config.vocab_size)
        with self._clock.span("forward"):
            return self._eager(batch.flat) if batch.graph is None else batch.graph.run(batch.shares)

    def _eager(self, flat: FlatBatch) -> Tensor:
        return self.model.forward(flat.token_ids, flat.positions, self.caches, flat.meta, flat.logits_indices)

    @torch.inference_mode()
    def capture(self, capture: Capture, progress: Progress = lambda *report: None) -> None:
        """From now on replay decode steps. On a GPU, after `warm_up`: kernels must have been compiled."""
        self.graphs = decode_graphs(self._eager, self.config, self.device, capture, progress)
        if self.drafter is not None:
            self.drafter.capture(capture, progress)

    @torch.inference_mode()
    def sample(self, batch: Batch, logits: Tensor) -> list[list[int]]:
        """Per row the tokens it produced, or none if the step does not reach its last token."""
        draws = [
            Draw.of(row.request, row.num_output_before + ahead) for row in batch.rows for ahead in range(row.num_logits)
        ]
        picked = iter(self._picked(logits, draws) if draws else ())
        return [until_wrong(list(islice(picked, row.num_logits)), row.draft_token_ids) for row in batch.rows]

    def _picked(self, logits: Tensor, draws: list[Draw]) -> list[int]:
        with self._clock.span("sample"):
            picked = self._pick(logits, draws)
        return to_host(picked)

    def device_us(self) -> dict[str, int] | None:
        us = self._clock.read()
        if us is not None:
            us.setdefault("sample", 0)  # in that lap the device is waited for, whether or not a token was drawn
        return us

    def warm_up(self, progress: Progress) -> None:
        """Run the kinds of step there are once, so that no request pays for compiling or for first touches.

        It writes to blocks that nobody holds; whoever is handed one later writes it before reading it.
        """
        assert self.config.num_blocks is not None
        assert self.config.max_model_len is not None
        pool_tokens = self.config.num_blocks * self.config.block_size
        longest = max(1, min(self.config.max_num_batched_tokens, self.config.max_model_len, pool_tokens))
        # With no guesses to come a short row is run all the same: on a GPU it is a kernel of its own.
        guesses = min(max(parse_speculation(self.config.speculative).num_drafts, 1), longest - 1)
        steps = [[(longest, 0)], [(1, 0)], [(1, 0)] * self.config.max_num_seqs, [(1, guesses)]]
        for done, rows in enumerate(steps):
            progress("warm up", done, len(steps), "steps")
            greedy = done == 0  # the others draw: both are other kernels
            output = SchedulerOutput(rows=[self._fake_row(*row, greedy=greedy) for row in rows])
            self.draft(output)
            batch = self.prepare(output)
            self.sample(batch, self.forward(batch))
            self.device_us()
        progress("warm up", len(steps), len(steps), "steps")

    def _fake_row(self, length: int, guesses: int, *, greedy: bool) -> ScheduledRow:
        request = Request(
            request_id="warm up",
            prompt_token_ids=[0] * length,
            sampling_params=SamplingParams(temperature=0.0 if greedy else 1.0),
            max_tokens=1,
            seed=0,
            stop_token_ids=frozenset(),
            arrival_us=0,
            block_table=list(range(-(-(length + guesses) // self.config.block_size))),
        )
        return ScheduledRow(request, 0, length + guesses, new_blocks=[], draft_token_ids=[0] * guesses)
