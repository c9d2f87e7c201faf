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
        self._ids = list(prompt_token_ids[-PROMPT_TAIL:])
        # An incomplete character at the prompt's end is completed by the answer, so it is not context.
        while self._ids and self._decode(self._ids).endswith(REPLACEMENT):
            self._ids.pop()
        unfinished = len(prompt_token_ids[-PROMPT_TAIL:]) - len(self._ids)
        self._context = len(self._ids)  # ids up to here are already text (or prompt)
        if 0 < unfinished < MAX_CHARACTER_TOKENS:
            self._ids.extend(prompt_token_ids[-unfinished:])
        self._held = ""  # text that may be the beginning of a stop string
        self.num_chars = 0  # sent so far: the offset of the next delta

    def feed(self, token_id: int) -> tuple[str, bool]:
        """Add one token; returns (the text that may be shown now, whether a stop string was completed)."""
        self._ids.append(token_id)
        before = self._decode(self._ids[: self._context])
        text = self._decode(self._ids)
        pending = len(self._ids) - self._context
        if text.endswith(REPLACEMENT) and pending < MAX_CHARACTER_TOKENS:
            return "", False
        if text.endswith(REPLACEMENT):
            self._ids = []  # bytes that are no character: start afresh, lest a later token completes them
        elif len(text) > len(before):
            self._ids = self._ids[self._context :]
        self._context = len(self._ids)
        return self._release(text[len(before) :])

    def flush(self) -> str:
        """The text still held back for a stop string that never came. An incomplete character is dropped."""
        text, self._held = self._held, ""
        self.num_chars += len(text)
        return text

    def _release(self, delta: str) -> tuple[str, bool]:
        text = self._held + delta
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        stopped = bool(found)
        if stopped:
            shown, self._held = text[: min(found)], ""
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
