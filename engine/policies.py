"""Policies: who goes next, and who has to give way. Pure functions of a request. No torch.

A policy is an order. The queue is kept in it; running requests are served in it; the victim of a preemption is the last
of the running ones in it. `urgency` is the part of the order that lets a waiting request take the place of a
running one; under a policy without urgency nobody is preempted for the sake of an admission.

- fcfs: by arrival.
- priority: by `priority` (lower is more urgent, as in vLLM), then by arrival. When slots or blocks are short, the head
  of the queue preempts running requests of strictly lower urgency, the last in order first, if that makes enough room.
- shortest-first: by the most tokens that the request may come to (prompt + max_tokens), then by arrival. A long one
  can starve behind an endless stream of short ones; that is this policy's nature.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from engine.request import Request

Key = tuple[int, ...]


class Batching(enum.StrEnum):
    """When a waiting request may join.

    continuous: in any step. static: only when everybody before has finished; then whoever waits joins at once, with
    blocks reserved for prompt and max_tokens, so that a group never preempts itself.
    """

    CONTINUOUS = "continuous"
    STATIC = "static"


class SchedulingPolicy(enum.StrEnum):
    FCFS = "fcfs"
    PRIORITY = "priority"
    SHORTEST_FIRST = "shortest-first"


@dataclass(frozen=True, slots=True)
class Policy:
    """An order of requests: a smaller key goes first."""

    key: Callable[[Request], Key]
    urgency: Callable[[Request], int]

    def outranks(self, waiting: Request, running: Request) -> bool:
        """Whether `waiting` may take the place of `running`."""
        return self.urgency(waiting) < self.urgency(running)


def _by_arrival(request: Request) -> Key:
    return (request.order,)


def _by_priority(request: Request) -> Key:
    return (request.priority, request.order)


def _by_length(request: Request) -> Key:
    return (request.num_prompt_tokens + request.max_tokens, request.order)


def _none(request: Request) -> int:
    return 0


def _priority(request: Request) -> int:
    return request.priority


POLICIES = {
    SchedulingPolicy.FCFS: Policy(_by_arrival, _none),
    SchedulingPolicy.PRIORITY: Policy(_by_priority, _priority),
    SchedulingPolicy.SHORTEST_FIRST: Policy(_by_length, _none),
}
