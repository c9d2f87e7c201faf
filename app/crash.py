"""Crash bundles: when an engine dies unasked, what led to it is written down as a recording.

The ring still holds it for /api/recording while the app lives; the file is for afterwards. A few are kept.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from app.history import compress

KEPT = 5
log = logging.getLogger("stepscope")


def write_bundle(folder: Path, engine: str, lines: list[str]) -> Path | None:
    """Write the recording and forget the oldest ones; None if there is nothing to write, or no place for it."""
    if not lines:
        return None
    path = folder / f"crash-{time.strftime('%Y%m%d-%H%M%S')}-{safe_name(engine)}.jsonl.gz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compress(lines))
        for old in sorted(folder.glob("crash-*.jsonl.gz"))[:-KEPT]:
            old.unlink()
    except OSError as error:
        log.warning("The recording of the crash could not be written to %s: %s", folder, error.strerror)
        return None
    return path


def safe_name(text: str) -> str:
    """`text` as part of a file name."""
    return "".join(char if char.isascii() and (char.isalnum() or char in ".-_") else "_" for char in text)
