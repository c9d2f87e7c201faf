"""A mark: somebody's words at a moment of the stream, checked once for the app and the engine alike."""

from __future__ import annotations

import unicodedata

from engine.errors import RequestError

MAX_MARK = 200  # characters
_JOINER = "\u200d"  # holds the parts of an emoji together


def check_mark(text: object) -> str:
    """The words on one line, control characters and runs of space made one space, without characters that only steer
    how others are shown. Raises RequestError."""
    if not isinstance(text, str):
        raise RequestError("text must be a string: the words of the mark.", param="text")
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise RequestError("text holds half of a surrogate pair, which is not a character.", param="text")
    words = " ".join("".join(_plain(char) for char in text).split())
    if not words.strip(_JOINER):
        raise RequestError("text is empty; write what is to be remembered of this moment.", param="text")
    if len(words) > MAX_MARK:
        raise RequestError(f"text has {len(words):,} characters; a mark has at most {MAX_MARK}.", param="text")
    return words


def _plain(char: str) -> str:
    match unicodedata.category(char):
        case "Cc":
            return " "
        case "Cf" if char != _JOINER:
            return ""
    return char
