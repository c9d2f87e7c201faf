"""What a step costs in floating-point operations and in bytes moved, derived from its shapes. No torch.

Contract. These are the numbers METRICS labels *derived*: a multiply-add is two operations, weights are read once per
step whatever the batch, keys and values are read once per row and written once per new token. Caches, padding
and activations are left out; the measured time next to these numbers is where they show.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.events import ModelFacts
from engine.runner import ScheduledRow


def step_cost(facts: ModelFacts, rows: Sequence[ScheduledRow], bytes_per_token: int) -> tuple[int, int]:
    """(FLOPs, bytes) of one step over `rows`; `bytes_per_token` is what one token's keys and values take.

    The head runs only on rows that sample, so a prompt's chunks do not pay for it.
    """
    if not rows:
        return 0, 0
    embedding = facts.vocab_size * facts.hidden_size
    body = facts.num_parameters - embedding * (1 if facts.tie_word_embeddings else 2)
    num_tokens = sum(row.num_scheduled_tokens for row in rows)
    num_sampled = sum(row.samples for row in rows)
    attended = sum(_attended(row) for row in rows)
    pair = 4 * facts.num_layers * facts.num_attention_heads * facts.head_dim  # q·k and p·v, of one query and one key
    flops = 2 * body * num_tokens + 2 * embedding * num_sampled + pair * attended

    element = facts.weight_bytes // facts.num_parameters
    weights = element * (body + embedding * (num_sampled > 0) + facts.hidden_size * num_tokens)
    kv_read = bytes_per_token * sum(row.num_computed_tokens + row.num_scheduled_tokens for row in rows)
    return flops, weights + kv_read + bytes_per_token * num_tokens


def _attended(row: ScheduledRow) -> int:
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
