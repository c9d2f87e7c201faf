"""Speculation: who guesses the next tokens, and how many.

Contract. A proposer guesses; the target model decides. In one step the last token and K guesses go through the model
together; position by position the usual sampler picks the usual token, and a guess that equals it is accepted, up to
the first that does not. What is picked at a position depends on the logits and on (seed, output index) alone, so the
answer is the same, token for token, as without speculation: greedy trivially, and sampled because a guess that is one
definite token is accepted with just the probability that the target gives it.

`ngram:K` looks up what followed the same tokens before. `draft:MODEL:K` lets a second model guess (engine/drafter.py);
the scheduler, which knows no model, then hands out room for K guesses, and the runner fills them in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import ConfigError, shown
from engine.request import Request

Propose = Callable[[Request], list[int]]
"""The tokens that might come next; possibly none."""

NGRAMS = (3, 2)  # longest first: a longer match is the better guess
MAX_DRAFTS = 16
TO_BE_DRAFTED = -1  # stands for a guess that the runner makes


@dataclass(frozen=True, slots=True)
class Speculation:
    """The flag, taken apart."""

    kind: str = "none"  # "none" | "ngram" | "draft"
    num_drafts: int = 0  # K, most guesses in one step of one request
    draft_model: str = ""  # whatever --model takes, or first-N-layers

    @property
    def num_draft_layers(self) -> int | None:
        """N of `first-N-layers`: the target's own first layers are to be the draft model."""
        found = re.fullmatch(r"first-([1-9]\d{0,3})-layers", self.draft_model)
        return int(found[1]) if found else None


def parse_speculation(speculative: str) -> Speculation:
    """`none`, `ngram:K` or `draft:MODEL:K`. Raises ConfigError for anything else."""
    if speculative == "none":
        return Speculation()
    kind, _, rest = speculative.partition(":")
    model, _, count = rest.rpartition(":")
    if count.isdecimal() and 1 <= int(count[:6]) <= MAX_DRAFTS:
        if kind == "ngram" and not model:
            return Speculation(kind, int(count))
        if kind == "draft" and model:
            return Speculation(kind, int(count), model)
    raise ConfigError(
        f"--speculative is {shown(speculative)}; it must be none, ngram:K or draft:MODEL:K with K from 1 to "
        f"{MAX_DRAFTS}. MODEL is whatever --model takes, or first-N-layers for the model's own first N layers."
    )


def check_num_layers(count: int, name: str, num_layers: int) -> None:
    """Raises ConfigError if a model called `name` cannot be cut off after `count` layers."""
    if count >= num_layers:
        raise ConfigError(
            f"--speculative asks for the first {count} layers, and {name} has {num_layers}; "
            f"a draft model needs fewer: 1 to {num_layers - 1}."
            if num_layers > 1
            else f"--speculative asks for the first layers of {name}, which has only one; give it another draft model."
        )


def check_vocab_size(draft: str, draft_size: int, target: str, target_size: int) -> None:
    """Guesses are token ids. Raises ConfigError if the two models do not have as many."""
    if draft_size != target_size:
        raise ConfigError(
            f"--speculative: {draft} has a vocabulary of {draft_size:,} tokens and {target} one of "
            f"{target_size:,}; a draft model must have the same."
        )


def make_proposer(speculation: Speculation) -> Propose:
    """What the scheduler asks for guesses."""
    match speculation.kind:
        case "ngram":
            return NgramProposer(speculation.num_drafts).propose
        case "draft":
            return lambda request: [TO_BE_DRAFTED] * speculation.num_drafts
        case _:
            return lambda request: []


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
