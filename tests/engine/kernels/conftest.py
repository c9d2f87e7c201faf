"""Triton's interpreter, without what it does over and over.

Inside a launch the interpreter puts functions of its own in the place of the language's. It looks through the whole
language for that, milliseconds long, not only once per launch but also each time that a kernel calls a function, and
finds nothing left to replace: two fifths of the time that these tests took.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def replace_once_per_launch() -> None:
    """For each module whose functions a launch calls: what one of them needs is there for the others too."""
    from triton.runtime import interpreter

    replace: Callable[[Any], Any] = interpreter._patch_lang
    launch: Callable[..., None] = interpreter.GridExecutor.__call__
    done: set[str] = set()

    def replace_if_new(fn: Any) -> Any:
        if fn.__module__ in done:
            return None
        done.add(fn.__module__)
        return replace(fn)

    def launch_anew(self: Any, *args: Any, **kwargs: Any) -> None:
        done.clear()  # the end of the launch before put everything back
        launch(self, *args, **kwargs)

    interpreter._patch_lang = replace_if_new
    interpreter.GridExecutor.__call__ = launch_anew


if os.environ.get("TRITON_INTERPRET") == "1":
    replace_once_per_launch()
