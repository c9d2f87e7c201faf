"""Drafter: a small model guesses the next tokens, one forward pass per guess, and the target model decides.

Contract. The drafter's keys and values lie in tensors of its own under the block ids of the target's. Before a step
both hold the same tokens of every running request; `fill` writes those that the step brings, guesses included, so
after the step both do again. Hence a prefix hit implies both were written, and preemption, chunks and eviction need
no word here.

Each guess is drawn as the target will draw: with the request's parameters, and with the noise that belongs to that
output index (engine/sampler.py). So where the two distributions agree the two tokens mostly do; and it is still the
target alone that picks: the answer is the one without guesses, token for token.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.batch import FlatBatch, Share, flat_batch
from engine.config import EngineConfig
from engine.device_clock import DeviceClock
from engine.graphs import Capture, DecodeGraphs, decode_graphs
from engine.kv_cache import allocate, resolve_kv_dtype
from engine.model_cache import Progress
from engine.models.llama import Llama
from engine.runner import ScheduledRow
from engine.sampler import Draw, choose_sample, to_host


class Drafter:
    """A draft model with its cache. `config` is the engine's, resolved."""

    def __init__(self, model: Llama, config: EngineConfig, clock: DeviceClock) -> None:
        self._model = model
        self._config = config
        self._device = model.embed_tokens.device
        self._clock = clock
        self._graphs: DecodeGraphs | None = None
        self._sample = choose_sample(self._device)  # as the target draws, noise and all
        self._caches = allocate(config, model.config, self._device, resolve_kv_dtype(config, model))

    @torch.inference_mode()
    def capture(self, capture: Capture, progress: Progress) -> None:
        """From now on replay passes over one token of each row: all but those over a prompt."""
        self._graphs = decode_graphs(self._eager, self._config, self._device, capture, progress)

    @torch.inference_mode()
    def fill(self, rows: Sequence[ScheduledRow]) -> None:
        """Put the guesses into `draft_token_ids` of the rows that have room for some, as many as they have."""
        known = [row.input_token_ids[: row.num_scheduled_tokens - len(row.draft_token_ids)] for row in rows]
        logits = self._forward(
            [
                Share(row.request.block_table, row.num_computed_tokens, tokens, num_logits=bool(row.draft_token_ids))
                for row, tokens in zip(rows, known, strict=True)
            ]
        )
        guessing = [row for row in rows if row.draft_token_ids]
        ahead = 0
        while guessing:
            for row, token_id in zip(guessing, self._pick(logits, guessing, ahead), strict=True):
                row.draft_token_ids[ahead] = token_id
            # The last guess goes through the model as well, for its keys and values only.
            shares = [
                Share(
                    row.request.block_table,
                    row.num_tokens + ahead,
                    row.draft_token_ids[ahead : ahead + 1],
                    num_logits=ahead + 1 < len(row.draft_token_ids),
                )
                for row in guessing
            ]
            logits = self._forward(shares)
            ahead += 1
            guessing = [row for row in guessing if ahead < len(row.draft_token_ids)]

    def _forward(self, shares: Sequence[Share]) -> Tensor:
        graphs = self._graphs
        if graphs is not None and graphs.fits(shares):
            graph = graphs.load(shares)
            with self._clock.span("draft"):
                return graph.run(shares)
        batch = flat_batch(shares, self._config.block_size, self._device)
        with self._clock.span("draft"):
            return self._eager(batch)

    def _eager(self, batch: FlatBatch) -> Tensor:
        return self._model.forward(
            batch.token_ids, batch.positions, self._caches, batch.meta, batch.logits_indices
        )  # fmt: skip

    def _pick(self, logits: Tensor, rows: Sequence[ScheduledRow], ahead: int) -> list[int]:
        draws = [
            Draw.of(row.request, row.num_output_before + ahead) for row in rows
        ]  # fmt: skip
        with self._clock.span("draft"):
            picked = self._sample(logits, draws)
        return to_host(picked)
