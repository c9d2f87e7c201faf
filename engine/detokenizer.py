"""Detokenizer: token ids in, text out, one character at a time if need be, and never half of one.

Invariants: the deltas joined are the answer; no delta holds text of the prompt, an incomplete character or any part
of a completed stop string; nothing else is held back.

Decoding the whole answer for every token would cost more with every token, and decoding a token by itself loses spaces
and splits characters. So a window of tokens is decoded twice, without and with the new one, and the difference is
the delta; the window moves on whenever it ends on a whole character (as in TGI and vLLM).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"
MAX_CHARACTER_TOKENS = 4  # UTF-8 has at most four bytes a character, byte-level tokens at least one
PROMPT_TAIL = 6  # tokens of context: enough to know whether a space belongs before the first one


class Decoder(Protocol):
    """What this module needs of `tokenizers.Tokenizer`."""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...


class Detokenizer:
    """The text of one request."""

    def __init__(self, decoder: Decoder, prompt_token_ids: Sequence[int], stop: Sequence[str] = ()) -> None:
        self._decoder = decoder
        self._stop = stop
        # The window: ids up to `_context` are settled, being text already (or prompt); the others may become more.
        self._ids, self._context = self._prompt_context(list(prompt_token_ids[-PROMPT_TAIL:]))
        self._context_chars = self._seen = len(self._decode(self._ids[: self._context]))
        self._stale = self._decode(self._ids)  # the window's text as it stays if the prompt's last character does
        self._held = ""  # text that may be the beginning of a stop string
        self.num_chars = 0  # sent so far: the offset of the next delta

    def feed(self, token_id: int, *, may_stop: bool = True) -> tuple[str, bool]:
        """Add one token; returns (the text that may be shown now, whether a stop string was completed).

        A stop string that is completed where the answer may not stop yet is text like any other.
        """
        self._ids.append(token_id)
        text = self._decode(self._ids)
        pending = len(self._ids) - self._context
        if text.endswith(REPLACEMENT) and pending < MAX_CHARACTER_TOKENS:
            return self._release(self._pass_on(text, len(text.rstrip(REPLACEMENT))), may_stop)
        pending = self._num_unfinished(text) if text.endswith(REPLACEMENT) else 0
        settled = len(self._ids) - pending
        end = len(self._decode(self._ids[:settled])) if pending else len(text)
        delta = self._pass_on(text, end)
        self._settle(settled, end)
        return self._release(delta, may_stop)

    @property
    def num_read(self) -> int:
        """Characters of the answer so far, those held back included: where the next token's begin."""
        return self.num_chars + len(self._held)

    def flush(self) -> str:
        """The text still held back for a stop string that never came. An incomplete character is dropped."""
        text, self._held = self._held, ""
        self.num_chars += len(text)
        return text

    def _prompt_context(self, tail: list[int]) -> tuple[list[int], int]:
        """The end of the prompt, and how much of it is whole characters: the answer may complete the last one.

        Where single bytes make a character together or not at all, a tail that begins within one is cut there too.
        """
        for start in range(MAX_CHARACTER_TOKENS):
            for end in range(len(tail), max(start, len(tail) - MAX_CHARACTER_TOKENS + 1) - 1, -1):
                if not self._decode(tail[start:end]).endswith(REPLACEMENT):
                    return tail[start:], end - start
        return [], 0

    def _num_unfinished(self, text: str) -> int:
        """How many of the last tokens may be the beginning of a character, too many of them being one no more."""
        for count in range(1, MAX_CHARACTER_TOKENS):
            if self._decode(self._ids[:-count]) + REPLACEMENT == text:
                return count
        return 1

    def _pass_on(self, text: str, end: int) -> str:
        """The window's text up to `end`, as far as it is new."""
        # What the answer has not completed of the prompt's last character is still the prompt's.
        self._seen = max(self._seen, _num_equal(text[:end], self._stale))
        delta = text[self._seen : end]
        self._seen += len(delta)
        return delta

    def _settle(self, settled: int, end: int) -> None:
        """Move the window on: what has just become text is the context of what follows."""
        if end > self._context_chars:
            self._ids = self._ids[self._context :]
            settled -= self._context
        elif self._context_chars:
            del self._ids[self._context : settled]  # no text, so no context either
            settled = self._context
        self._context, self._stale = settled, ""
        self._context_chars = self._seen = len(self._decode(self._ids[:settled]))

    def _release(self, delta: str, may_stop: bool) -> tuple[str, bool]:
        text, held = self._held + delta, len(self._held)
        # Only what the delta completes counts: the text held back may contain one from where it might not stop.
        found = [text.find(stop, max(0, held - len(stop) + 1)) for stop in self._stop] if may_stop else []
        stopped = any(at >= 0 for at in found)
        if stopped:
            shown, self._held = text[: min(at for at in found if at >= 0)], ""
        else:
            keep = self._stop_prefix(text)
            shown, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self.num_chars += len(shown)
        return shown, stopped

    def _stop_prefix(self, text: str) -> int:
        """The length of the longest suffix of `text` that is a proper prefix of a stop string."""
        longest = max((len(stop) - 1 for stop in self._stop), default=0)
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop):
                return length
        return 0

    def _decode(self, ids: Sequence[int]) -> str:
        return self._decoder.decode(ids, skip_special_tokens=True)


def _num_equal(a: str, b: str) -> int:
    """How many characters two strings begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
