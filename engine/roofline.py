"""What a step costs in floating-point operations and in bytes moved, derived from its shapes. No torch.

Contract. These are the numbers METRICS labels *derived*: a multiply-add is two operations, weights are read once per
step whatever the batch, keys and values are read once per row and written once per new token. Caches, padding
and activations are left out; the measured time next to these numbers is where they show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from engine.events import MemoryFacts, ModelFacts
from engine.runner import ScheduledRow


class Part(Protocol):
    """What a row's cost depends on; a ScheduledRow has it."""

    @property
    def num_computed_tokens(self) -> int: ...
    @property
    def num_scheduled_tokens(self) -> int: ...
    @property
    def num_logits(self) -> int: ...


def step_cost(facts: ModelFacts, rows: Sequence[Part], bytes_per_token: int) -> tuple[int, int]:
    """(FLOPs, bytes) of one step over `rows`; `bytes_per_token` is what one token's keys and values take.

    The head runs only where a token is picked: a prompt's chunks do not pay for it, and each guess does.
    """
    if not rows:
        return 0, 0
    embedding = facts.vocab_size * facts.hidden_size
    body = facts.num_parameters - embedding * (1 if facts.tie_word_embeddings else 2)
    num_tokens = sum(row.num_scheduled_tokens for row in rows)
    num_logits = sum(row.num_logits for row in rows)
    attended = sum(_attended(row) for row in rows)
    pair = 4 * facts.num_layers * facts.num_attention_heads * facts.head_dim  # q·k and p·v, of one query and one key
    flops = 2 * body * num_tokens + 2 * embedding * num_logits + pair * attended

    element = facts.weight_bytes // facts.num_parameters
    weights = element * (body + embedding * (num_logits > 0) + facts.hidden_size * num_tokens)
    kv_read = bytes_per_token * sum(row.num_computed_tokens + row.num_scheduled_tokens for row in rows)
    return flops, weights + kv_read + bytes_per_token * num_tokens


def total_cost(
    model: ModelFacts, draft: ModelFacts | None, memory: MemoryFacts, rows: Sequence[ScheduledRow]
) -> tuple[int, int]:
    """(FLOPs, bytes) of one step, a draft model's passes included."""
    flops, moved = step_cost(model, rows, memory.bytes_per_token - memory.draft_bytes_per_token)
    if draft is None:
        return flops, moved
    draft_flops, draft_moved = draft_cost(draft, rows, memory.draft_bytes_per_token)
    return flops + draft_flops, moved + draft_moved


class DraftPart(NamedTuple):
    num_computed_tokens: int
    num_scheduled_tokens: int
    num_logits: int


def draft_cost(facts: ModelFacts, rows: Sequence[ScheduledRow], bytes_per_token: int) -> tuple[int, int]:
    """(FLOPs, bytes) of the draft model `facts` in one step: a forward pass over what is known, one more per guess."""
    costs = [step_cost(facts, parts, bytes_per_token) for parts in _draft_passes(rows)]
    return sum(flops for flops, _ in costs), sum(moved for _, moved in costs)


def _draft_passes(rows: Sequence[ScheduledRow]) -> Iterator[list[DraftPart]]:
    """As engine/drafter.py makes them."""
    yield [
        DraftPart(row.num_computed_tokens, row.num_scheduled_tokens - num_drafts, int(num_drafts > 0))
        for row in rows
        for num_drafts in [len(row.draft_token_ids)]
    ]
    for ahead in range(max((len(row.draft_token_ids) for row in rows), default=0)):
        yield [
            DraftPart(row.num_tokens + ahead, 1, int(ahead + 1 < len(row.draft_token_ids)))
            for row in rows
            if ahead < len(row.draft_token_ids)
        ]


def _attended(row: Part) -> int:
    """Query-key pairs of a causal row: its i-th new token looks at computed + i tokens."""
    new = row.num_scheduled_tokens
    return new * row.num_computed_tokens + new * (new + 1) // 2


def prefill_intensity(num_parameters: float, weight_bytes: float, kv_bytes: float, num_tokens: float) -> float:
    """FLOP per byte of a prompt of S tokens alone: 2NS / (Nb + κS); `weight_bytes` is b, per parameter."""
    return 2 * num_parameters * num_tokens / (num_parameters * weight_bytes + kv_bytes * num_tokens)


def decode_intensity(
    num_parameters: float, weight_bytes: float, kv_bytes: float, num_tokens: float, num_seqs: float = 1
) -> float:
    """FLOP per byte of one decode step of B sequences of S tokens each: 2NB / (Nb + κSB)."""
    moved = num_parameters * weight_bytes + kv_bytes * num_tokens * num_seqs
    return 2 * num_parameters * num_seqs / moved
