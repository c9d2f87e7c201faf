"""Multi-turn chats of the page: what was said so far, kept here so that a form needs to send only the next line.

Bounded: the conversation that was used longest ago is forgotten first. Only its owner can go on with one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from app.ledger import Entry
from app.problems import Problem
from app.wire import Json

KEPT = 128
MAX_MESSAGES = 200


@dataclass(slots=True, eq=False)
class Conversation:
    """One chat. `last` is the request whose answer is the newest assistant message, once it is over."""

    id: str
    owner: str | None
    messages: list[Json] = field(default_factory=list)
    last: Entry | None = None

    def with_question(self, prompt: str, system: str | None) -> list[Json]:
        """The messages of the next turn; nothing is changed yet. Raises Problem while an answer is on its way."""
        messages = list(self.messages)
        if not messages and system:
            messages.append({"role": "system", "content": system})
        if self.last is not None and self.last.rejected is not None:
            messages.pop()  # the question was refused, so it was never asked
        elif self.last is not None:
            if not self.last.over:
                raise Problem(409, "The last answer of this conversation is still being written.", param="conversation")
            messages.append({"role": "assistant", "content": self.last.text})
        messages.append({"role": "user", "content": prompt})
        if len(messages) > MAX_MESSAGES:
            raise Problem(400, f"This conversation has reached {MAX_MESSAGES} messages.", param="conversation")
        return messages

    def asked(self, messages: list[Json], entry: Entry) -> None:
        """The engine has taken these messages as request `entry`."""
        self.messages, self.last = messages, entry


class Conversations:
    """All conversations, by id."""

    def __init__(self) -> None:
        self._kept: dict[str, Conversation] = {}
        self._ids = itertools.count(1)

    def start(self, owner: str | None, *, like: Conversation | None = None) -> Conversation:
        """A new conversation; `like` makes it a copy of another one so far."""
        conversation = Conversation(f"C{next(self._ids)}", owner)
        if like is not None:
            conversation.messages, conversation.last = list(like.messages), like.last
        self._kept[conversation.id] = conversation
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        return conversation

    def find(self, conversation_id: str, owner: str | None) -> Conversation:
        """Raises Problem unless it exists and is this owner's."""
        conversation = self._kept.pop(conversation_id, None)
        if conversation is not None:
            self._kept[conversation_id] = conversation  # it is the most recently used one now
        if conversation is None or conversation.owner != owner:
            raise Problem(404, "This conversation is not known here (any more); start a new one.", param="conversation")
        return conversation
