"""Commands that somebody waits for the answer of: one future each, which ends no later than there can be an answer.

Contract: whoever asks gets the engine's `reply`, or EngineAway as soon as it is known that none will come. All of it
runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.wire import Json


class EngineAway(Exception):
    """A command cannot reach its engine, or was not answered; the message is for the caller."""


@dataclass(frozen=True, slots=True)
class _Question:
    engine: str
    answer: asyncio.Future[Json]


class Questions:
    """What has been asked and not been answered, and what is done only once at a time."""

    def __init__(self) -> None:
        self._asked: dict[str, _Question] = {}
        self._under_way: dict[tuple[str, str], asyncio.Future[Json]] = {}

    async def answer(self, engine: str, cmd_id: str, timeout_s: float) -> Json:
        """The reply to a command that has just been sent. Raises EngineAway or TimeoutError."""
        question = _Question(engine, asyncio.get_running_loop().create_future())
        self._asked[cmd_id] = question
        try:
            async with asyncio.timeout(timeout_s):
                return await question.answer
        finally:
            del self._asked[cmd_id]

    def settle(self, reply: Json) -> None:
        """A `reply` came."""
        question = self._asked.get(reply["cmd_id"])
        if question is not None and not question.answer.done():
            question.answer.set_result(reply)

    def lose(self, engine: str, why: str) -> None:
        """No reply will come to what this engine was asked."""
        for question in self._asked.values():
            if question.engine == engine and not question.answer.done():
                message = f"Engine {engine} did not answer: {why}. It may have done it all the same."
                question.answer.set_exception(EngineAway(message))

    async def once(self, key: tuple[str, str], work: Callable[[], Awaitable[Json]]) -> tuple[Json, bool]:
        """The outcome of `work`, and whether it was somebody else's: who asks while it is under way shares it."""
        running = self._under_way.get(key)
        if running is not None:
            return await asyncio.shield(running), True
        future = self._under_way[key] = asyncio.ensure_future(work())
        future.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(future), False
