"""A runner with a real paged cache, of token ids: it answers from what it reads there, so that a wrong block shows."""

from __future__ import annotations

import zlib
from typing import Any

from engine.request import Request
from engine.runner import ScheduledRow, SchedulerOutput
from tests.engine.harness import Harness, RecordingRunner, letters


class PagedRunner(RecordingRunner):
    """Reads a row's context through its block table as it was before the step, then writes the row's own tokens.

    The next token is a function of the tokens that were read. A row that would read what nobody has written yet, what
    another row of the same step writes, or the tokens of another prompt, fails the step.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(letters)
        self._size = block_size
        self._cache: list[list[int | None]] = [[None] * block_size for _ in range(num_blocks)]

    def forward(self, batch: SchedulerOutput) -> SchedulerOutput:
        super().forward(batch)
        for row in batch.rows:
            assert self._read(row, row.num_computed_tokens) == row.request.token_ids[: row.num_computed_tokens]
        for row in batch.rows:
            end = row.num_computed_tokens + row.num_scheduled_tokens
            for position in range(row.num_computed_tokens, end):
                block = row.request.block_table[position // self._size]
                self._cache[block][position % self._size] = row.request.token_ids[position]
        return batch

    def sample(self, batch: SchedulerOutput, logits: SchedulerOutput) -> list[list[int]]:
        return [[next_token(self._read(row, row.num_tokens))] if row.samples else [] for row in batch.rows]

    def _read(self, row: ScheduledRow, end: int) -> list[int | None]:
        table = row.request.block_table
        return [self._cache[table[position // self._size]][position % self._size] for position in range(end)]


def next_token(context: list[int | None]) -> int:
    """A letter that depends on every token before it and on their order."""
    return ord("a") + zlib.crc32(repr(context).encode()) % 26


def paged_engine(**config: Any) -> Harness:
    """An engine whose answers depend on what its cache really holds."""
    engine = Harness(**config)
    assert engine.config.num_blocks is not None
    engine.runner = engine.core.runner = PagedRunner(engine.config.num_blocks, engine.config.block_size)
    return engine


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Tokens that differ from each other and from those of another seed."""
    return [97 + (seed * 7 + i * i) % 26 for i in range(length)]


def cold_answer(request: Request) -> list[int]:
    """What an engine that computes this request alone and from the start answers, as long as its answer is so far."""
    tokens: list[int | None] = list(request.prompt_token_ids)
    for _ in range(request.num_output_tokens):
        tokens.append(next_token(tokens))
    return [token for token in tokens[request.num_prompt_tokens :] if token is not None]
