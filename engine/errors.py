"""The errors a person may see. Each message names the field, the value, the limit and the remedy.

What it names was somebody's input, or another program's words: `shown` and `brief` keep both short, on one line and
printable: a terminal takes no orders from them.
"""

from __future__ import annotations

import reprlib

MOST_SHOWN = 80  # characters of a value that a message repeats
MOST_WORDS = 200  # of another program's message, or of a path


class _ShortRepr(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Python writes out no integer of more than some thousand digits: of such a one its size is said."""
        try:
            return super().repr_int(x, level)
        except ValueError:
            return f"an integer of {x.bit_length()} bits"


_REPR = _ShortRepr()
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = MOST_SHOWN


def shown(value: object) -> str:
    """A short, safe rendering of a bad value, however large or deep; cut between characters."""
    text = _REPR.repr(value).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def brief(words: object) -> str:
    """A name, a path or an error's own words, unquoted: in one line, and cut in the middle if they are long."""
    text = "".join(map(_printable, " ".join(str(words).split())))
    half = (MOST_WORDS - 5) // 2
    return text if len(text) <= MOST_WORDS else f"{text[:half]} ... {text[-half:]}"


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


class StepscopeError(Exception):
    """Base of every error whose message is meant for the user as it stands."""


class ConfigError(StepscopeError):
    """A flag or a combination of flags that cannot work; the message names the flag."""


class LoadError(StepscopeError):
    """A model that cannot be found, read or run; one sentence, shown before anything is served."""


class RequestError(StepscopeError):
    """A request refused at the door.

    `status` is the HTTP status it maps to (400, 413, 429, 503), `param` the field at fault in the
    caller's own words, or None when no single field is.
    """

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
