"""Settings: what `stepscope serve` was asked to do as a server, apart from the engine's own config."""

from __future__ import annotations

import enum
import secrets
from dataclasses import dataclass, field

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_PORT = 8000
DEFAULT_MAX_VIEWERS = 100


class ShareText(enum.Enum):
    """Who may read prompts and answers: those who sent them, or everybody."""

    OWN = "own"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One server's settings; `engine_token` is made afresh for each start."""

    share_text: ShareText = ShareText.OWN
    allowed_hosts: frozenset[str] = LOOPBACK  # names a Host header may carry, without port
    max_viewers: int = DEFAULT_MAX_VIEWERS
    engine_token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
