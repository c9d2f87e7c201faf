"""OpenAI's response shapes, chat and completions, whole and as chunks. Pure: an entry in, JSON values out."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field

from app.ledger import Entry
from app.timings import timings_of
from app.wire import Json


class Endpoint(enum.Enum):
    """Which of the two routes is being answered; the value is the prefix of its ids."""

    CHAT = "chatcmpl"
    COMPLETION = "cmpl"


def usage_of(entry: Entry) -> Json:
    """Exact counts, as the engine counted them."""
    prompt = entry.arrived["num_prompt_tokens"] if entry.arrived else 0
    completion = entry.finished["num_output_tokens"] if entry.finished else 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": entry.num_cached_tokens},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaper:
    """Shapes one answer; every part of it carries the same id, time and model."""

    endpoint: Endpoint
    request: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, entry: Entry, *, with_timings: bool) -> Json:
        """The non-streaming body of a finished request."""
        choice: Json = {"index": 0, "finish_reason": _finish_reason(entry), "logprobs": None}
        if self.endpoint is Endpoint.CHAT:
            choice["message"] = {"role": "assistant", "content": entry.text, "refusal": None}
        else:
            choice["text"] = entry.text
        body = self._envelope("chat.completion", [choice])
        body["usage"] = usage_of(entry)
        if with_timings:
            body["stepscope"] = timings_of(entry)
        return body

    def role(self) -> Json:
        """The first chunk of a chat: a role, not a token."""
        return self._chunk({"role": "assistant", "content": ""}, None)

    def delta(self, text: str) -> Json:
        return self._chunk({"content": text}, None)

    def last(self, entry: Entry, *, with_timings: bool) -> Json:
        """The chunk that says why it ended."""
        chunk = self._chunk({}, _finish_reason(entry))
        if with_timings:
            chunk["stepscope"] = timings_of(entry)
        return chunk

    def usage(self, entry: Entry) -> Json:
        """The extra chunk of `include_usage`: no choices."""
        return {**self._envelope("chat.completion.chunk", []), "usage": usage_of(entry)}

    def _chunk(self, delta: Json, finish_reason: str | None) -> Json:
        choice: Json = {"index": 0, "finish_reason": finish_reason, "logprobs": None}
        if self.endpoint is Endpoint.CHAT:
            choice["delta"] = delta
        else:
            choice["text"] = delta.get("content", "")
        return self._envelope("chat.completion.chunk", [choice])

    def _envelope(self, chat_object: str, choices: list[Json]) -> Json:
        return {
            "id": f"{self.endpoint.value}-{self.request}",
            "object": chat_object if self.endpoint is Endpoint.CHAT else "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


def _finish_reason(entry: Entry) -> str | None:
    return entry.finished["reason"] if entry.finished else None
