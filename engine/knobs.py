"""Knobs: the fields of EngineConfig that an engine can change while it runs, and how soon each takes effect.

All other fields need a new engine; the app restarts it. A change is atomic: all of its fields, or none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from engine.config import EngineConfig
from engine.errors import ConfigError, brief, shown

LIVE = "live"
NEXT_STEP = "next_step"
RESTART = "restart"

KNOBS = {
    "max_num_seqs": NEXT_STEP,
    "max_num_batched_tokens": NEXT_STEP,
    "max_queue": LIVE,
    "enable_prefix_caching": NEXT_STEP,
    "enable_chunked_prefill": NEXT_STEP,
    "long_prefill_token_threshold": NEXT_STEP,
    "watermark": NEXT_STEP,
    "batching": NEXT_STEP,
    "scheduling_policy": NEXT_STEP,
}


FIELDS = frozenset(field.name for field in dataclasses.fields(EngineConfig))


def effect(name: str) -> str:
    """How a change of this field takes effect. Raises ConfigError if there is no such field."""
    if name not in FIELDS:
        raise ConfigError(f"{brief(name)} is no setting of an engine.")
    return KNOBS.get(name, RESTART)


def changed(config: EngineConfig, changes: Mapping[str, Any]) -> EngineConfig:
    """`config` with these fields changed. Raises ConfigError naming the field that cannot be so."""
    types = {field.name: str(field.type) for field in dataclasses.fields(EngineConfig)}
    for name, value in changes.items():
        effect(name)
        if not _fits(value, types[name]):
            raise ConfigError(f"{name} is {shown(value)}; it must be {types[name].replace(' | None', ' or null')}.")
    return dataclasses.replace(config, **changes)


def _fits(value: Any, declared: str) -> bool:
    allowed = declared.split(" | ")
    if value is None:
        return "None" in allowed
    if isinstance(value, bool):
        return "bool" in allowed
    if isinstance(value, int):
        return "int" in allowed or "float" in allowed
    return type(value).__name__ in allowed
