"""Speculation by prompt lookup: guess the next tokens from what the request has already said or been told.

Contract. A proposer guesses; the target model decides. In one step the last token and K guesses go through the model
together; position by position the usual sampler picks the usual token, and a guess that equals it is accepted, up to
the first that does not. What is picked at a position depends on the logits and on (seed, output index) alone, so the
answer is the same, token for token, as without speculation: greedy trivially, and sampled because a guess that is one
definite token is accepted with just the probability that the target gives it.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.errors import ConfigError
from engine.request import Request

Propose = Callable[[Request], list[int]]
"""The tokens that might come next; possibly none."""

NGRAMS = (3, 2)  # longest first: a longer match is the better guess
MAX_DRAFTS = 16


def propose_nothing(request: Request) -> list[int]:
    return []


def make_proposer(speculative: str) -> Propose:
    """From the flag: `none` or `ngram:K`. Raises ConfigError for anything else."""
    kind, _, count = speculative.partition(":")
    if speculative == "none":
        return propose_nothing
    if kind == "ngram" and count.isdecimal() and 1 <= int(count) <= MAX_DRAFTS:
        return NgramProposer(int(count)).propose
    raise ConfigError(
        f"--speculative is {speculative!r:.60}; it must be none or ngram:K with K from 1 to {MAX_DRAFTS}."
    )


class NgramProposer:
    """Looks up where the request's last few tokens stood before, and guesses that what followed follows again."""

    def __init__(self, num_drafts: int) -> None:
        self._num_drafts = num_drafts

    def propose(self, request: Request) -> list[int]:
        tokens = request.token_ids
        for size in NGRAMS:
            at = _last_match(tokens, size)
            if at is not None:
                return tokens[at : at + self._num_drafts]
        return []


def _last_match(tokens: list[int], size: int) -> int | None:
    """The position after the latest earlier occurrence of the last `size` tokens."""
    if len(tokens) <= size:
        return None
    last, pattern = tokens[-1], tokens[-size:]
    at = len(tokens) - 1
    # Walk back over the places where the last token stands: the search runs in C, the comparison is rare.
    reverse = tokens[-2::-1]
    start = 0
    while True:
        try:
            start = reverse.index(last, start) + 1
        except ValueError:
            return None
        at = len(tokens) - 1 - start  # where this earlier `last` stands
        if at - size + 1 >= 0 and tokens[at - size + 1 : at + 1] == pattern:
            return at + 1
