"""TextOutput: the detokenizers of all live requests, and what each may show after this step.

It also knows which characters a token wrote, so that accepted guesses can be seen in the text. A character that takes
several tokens is of the one that completes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from engine.detokenizer import Detokenizer
from engine.request import FinishReason, Request, RequestStatus


@dataclass(slots=True)
class _Answer:
    detokenizer: Detokenizer
    text: str = ""  # not sent yet
    token_ids: list[int] = field(default_factory=list)  # not sent yet
    offset: int = 0  # characters sent
    ends: list[int] = field(default_factory=list)  # of this step's tokens so far: where each one's characters end
    begun: int = 0  # where this step's characters begin
    guessed: list[list[int]] = field(default_factory=list)  # not sent yet
    lengths: list[int] = field(default_factory=list)  # not sent yet


@dataclass(frozen=True, slots=True)
class TextDelta:
    offset: int
    text: str
    token_ids: list[int]
    guessed: list[list[int]]  # as in events.Text
    lengths: list[int]  # the same


class TextOutput:
    """`on_token` is the scheduler's; `take` is asked once per step for each request that moved."""

    def __init__(self, make_detokenizer: Callable[[Request], Detokenizer]) -> None:
        self._make = make_detokenizer
        self._answers: dict[str, _Answer] = {}

    def start(self, request: Request) -> None:
        self._answers[request.request_id] = _Answer(self._make(request))

    def on_token(self, request: Request, token_id: int) -> bool:
        """Feed one output token; whether it completed a stop string."""
        answer = self._answers[request.request_id]
        delta, stopped = answer.detokenizer.feed(token_id, may_stop=request.may_stop)
        answer.text += delta
        answer.ends.append(answer.detokenizer.num_read)
        return stopped

    def take(self, request: Request, token_ids: list[int], num_guessed: int = 0) -> TextDelta | None:
        """Note a step's output tokens, the first `num_guessed` of them accepted guesses.

        The new text, or None if there is none to show or `finish` will send it.
        """
        answer = self._answers[request.request_id]
        answer.token_ids += token_ids
        last = answer.detokenizer.num_read  # a completed stop string is cut off: what tokens wrote of it is nothing
        ends = [*answer.ends, last][: len(token_ids)]  # the end token is not fed
        bounds = [min(at, last) for at in (answer.begun, *ends)]
        lengths = [end - start for start, end in pairwise(bounds)]
        answer.lengths += lengths
        if num_guessed:
            answer.guessed.append([bounds[0], *lengths[:num_guessed]])
        answer.begun = last
        answer.ends.clear()
        if request.status is RequestStatus.FINISHED or not answer.text:
            return None
        return self._send(answer)

    def finish(self, request: Request) -> TextDelta:
        """The rest of an ended request's text, possibly empty; forgets the request."""
        answer = self._answers.pop(request.request_id)
        if request.finish_detail != "stop_string" and request.finish_reason is not FinishReason.ERROR:
            answer.text += answer.detokenizer.flush()
        return self._send(answer)

    def _send(self, answer: _Answer) -> TextDelta:
        delta = TextDelta(answer.offset, answer.text, answer.token_ids, answer.guessed, answer.lengths)
        answer.offset += len(answer.text)
        answer.text, answer.token_ids, answer.guessed, answer.lengths = "", [], [], []
        return delta
