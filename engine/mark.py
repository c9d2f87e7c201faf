"""A mark: somebody's words at a moment of the stream, checked once for the app and the engine alike."""

from __future__ import annotations

import unicodedata

from engine.errors import RequestError

MAX_MARK = 200  # characters
_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_mark(text: object) -> str:
    """The words on one line, control characters and runs of space made one space, without marks that turn the direction
    of what stands beside them. Raises RequestError."""
    if not isinstance(text, str):
        raise RequestError("text must be a string: the words of the mark.", param="text")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise RequestError("text holds half of a surrogate pair, which is not a character.", param="text")
    words = " ".join(
        "".join(" " if unicodedata.category(char) == "Cc" else char for char in text if char not in _TURNING).split()
    )
    if not words:
        raise RequestError("text is empty; write what is to be remembered of this moment.", param="text")
    if len(words) > MAX_MARK:
        raise RequestError(f"text has {len(words):,} characters; a mark has at most {MAX_MARK}.", param="text")
    return words
