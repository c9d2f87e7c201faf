"""/api/config: the engine's settings, and changing them.

Contract: a change is atomic. Knobs that the engine can turn while it runs (engine/knobs.py) are sent to it; any other
setting needs a new engine, which is started here with all of the changes, and only with `force` while requests live.
What was changed outlives a restart.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.api import engine_of, json_response, restart
from app.bodies import parse_json
from app.engines import Supervisor
from app.hub import Hub
from app.problems import Problem
from app.record import EngineRecord
from app.wire import Json
from engine import knobs
from engine.config import EngineConfig
from engine.errors import StepscopeError
from engine.model_source import check_models


async def get_config(request: Request) -> Response:
    """GET /api/config: every setting, and for each how a change of it would take effect."""
    _, record = engine_of(request)
    config = record.state["config"] if record.state else None
    effects = {name: knobs.effect(name) for name in config or () if name in knobs.FIELDS}
    return json_response({"engine": record.id, "config": config, "effects": effects})


async def patch_config(request: Request) -> Response:
    """PATCH /api/config {setting: value, …, "force": bool}: the reply says how each took effect."""
    hub, record = engine_of(request)
    changes = parse_json(await request.body())
    force = changes.pop("force", False)
    if not isinstance(force, bool):
        raise Problem(400, "force must be true or false.", param="force")
    return json_response(await turn(request.state.supervisor, hub, record, changes, force=force))


async def turn(
    supervisor: Supervisor | None, hub: Hub, record: EngineRecord, changes: dict[str, Any], *, force: bool
) -> Json:
    """Make the changes, all or none. Raises Problem or EngineAway."""
    if not changes:
        raise Problem(400, "There is nothing to change: give at least one setting.")
    if supervisor is None or not record.restartable:
        raise Problem(409, "This engine was not started by Stepscope, so its settings are not ours to change.")
    try:
        effects = {name: knobs.effect(name) for name in changes}
        wanted = knobs.changed(supervisor.config, changes)
        running = EngineConfig(**record.state["config"]) if record.state else None
        if running is not None and knobs.RESTART not in effects.values():
            knobs.changed(running, changes)
        if knobs.RESTART in effects.values():
            await asyncio.to_thread(check_models, wanted)  # a model that cannot be served must not end one that is
    except StepscopeError as error:
        raise Problem(400, str(error), param=next(iter(changes)) if len(changes) == 1 else None) from None
    if knobs.RESTART in effects.values():
        before, supervisor.config = supervisor.config, wanted
        try:
            await restart(supervisor, hub, record, force=force)
        except Problem:
            supervisor.config = before
            raise
    else:
        reply = await hub.command(record, {"cmd": "configure", "changes": changes})
        if not reply["ok"]:
            raise Problem(409, reply["error"] or "The engine refused.")
        supervisor.config = supervisor.running = wanted
    # A new engine has not said yet what it settles; until then the old one's word would be a wrong answer.
    config = (
        dataclasses.asdict(wanted) if knobs.RESTART in effects.values() else record.state and record.state["config"]
    )
    return {"ok": True, "effects": effects, "config": config}
