"""What the core asks of a model, and what the scheduler hands it. No torch here.

A Runner turns one SchedulerOutput into tokens in a few calls, so that the core can time each phase.
It keeps nothing about requests between steps: rows carry the live Request, whose `token_ids`, `block_table`
and `num_computed_tokens` say everything. It never changes a Request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.events import WaitReason
from engine.request import Request


@dataclass(slots=True, eq=False)
class ScheduledRow:
    """One request's share of one step: tokens [num_computed_tokens, num_computed_tokens + num_scheduled_tokens).

    The last of them are guesses if the step speculates; they are no tokens of the request until they are accepted.
    What the request looked like when it was scheduled is copied, since the step changes it.
    """

    request: Request
    num_computed_tokens: int  # before this step
    num_scheduled_tokens: int
    new_blocks: list[int]  # appended to its block table by this step, cache hits included
    draft_token_ids: list[int] = field(default_factory=list)
    num_accepted: int = 0  # output tokens that update_from_output accepted
    slot: int = field(init=False)
    num_tokens: int = field(init=False)
    num_output_before: int = field(init=False)

    def __post_init__(self) -> None:
        self.slot = -1 if self.request.slot is None else self.request.slot
        self.num_tokens = self.request.num_tokens
        self.num_output_before = self.request.num_output_tokens

    @property
    def samples(self) -> bool:
        """Whether this step reaches the request's last token, so that a next one is to be picked."""
        return self.num_computed_tokens + self.num_scheduled_tokens == self.num_tokens + len(self.draft_token_ids)

    @property
    def num_logits(self) -> int:
        """At how many places a token is picked: behind the last token and behind each guess."""
        return len(self.draft_token_ids) + 1 if self.samples else 0

    @property
    def input_token_ids(self) -> list[int]:
        """The tokens to run, guesses included."""
        known = self.num_computed_tokens + self.num_scheduled_tokens - len(self.draft_token_ids)
        return self.request.token_ids[self.num_computed_tokens : known] + self.draft_token_ids

    @property
    def num_drafts_accepted(self) -> int:
        """The accepted tokens that were guessed. All but the last are; the last one too if it ended the request."""
        if not self.draft_token_ids:
            return 0  # asked for several times per row and step
        accepted = self.request.token_ids[self.num_tokens : self.num_tokens + self.num_accepted]
        return sum(token == guess for token, guess in zip(accepted, self.draft_token_ids, strict=False))

    @property
    def num_computed_after(self) -> int:
        """A rejected guess has keys and values in the cache too; they do not count, and are written over."""
        return (
            self.num_computed_tokens + self.num_scheduled_tokens - len(self.draft_token_ids) + self.num_drafts_accepted
        )

    @property
    def is_decode(self) -> bool:
        """One token, the last one, and it is an output token."""
        return self.num_output_before > 0 and self.num_computed_tokens == self.num_tokens - 1


@dataclass(frozen=True, slots=True, eq=False)
class Preemption:
    """Facts about one victim, taken at the moment of the decision."""

    request: Request
    by: str
    needed: int
    free: int
    num_lost_tokens: int
    num_held_blocks: int
    queue_index: int  # where in the queue it went


@dataclass(slots=True, eq=False)
class SchedulerOutput:
    """Everything one schedule() decided, with its reasons."""

    now_us: int = 0  # when it was decided
    rows: list[ScheduledRow] = field(default_factory=list)
    admitted: list[ScheduledRow] = field(default_factory=list)  # first admission or resumption; also in rows
    preempted: list[Preemption] = field(default_factory=list)
    evicted: list[int] = field(default_factory=list)
    waiting: list[WaitReason] = field(default_factory=list)
    ended_by: str = "all_scheduled"

    @property
    def num_scheduled_tokens(self) -> int:
        return sum(row.num_scheduled_tokens for row in self.rows)


class Runner(Protocol):
    """A model that can run one step. Implementations: model_runner.ModelRunner, scripted.ScriptedRunner."""

    def draft(self, output: SchedulerOutput) -> bool:
        """Fill in the rows' `draft_token_ids` that are left to it (`speculative.TO_BE_DRAFTED`); False without a
        draft model."""

    def prepare(self, output: SchedulerOutput) -> Any:
        """Build the step's inputs (token ids, positions, slot mapping, block tables)."""

    def forward(self, batch: Any) -> Any:
        """Run the model over `batch`, writing KV; returns logits for the rows that sample."""

    def sample(self, batch: Any, logits: Any) -> list[list[int]]:
        """Per row of the output, in order: the tokens it produced; [] for a row that does not sample yet.

        With guesses: the token picked at each position, up to and including the first that is not the guess.
        """

    def device_us(self) -> dict[str, int] | None:
        """After `sample`: how long a GPU worked on each of the step's phases; None without one. See device_clock.py."""


def until_wrong(picked: Iterable[int], guesses: Sequence[int]) -> list[int]:
    """What `Runner.sample` returns for a row: `picked` up to the first token that was not guessed."""
    tokens: list[int] = []
    for index, token_id in enumerate(picked):
        tokens.append(token_id)
        if index >= len(guesses) or guesses[index] != token_id:
            break
    return tokens
