"""/api: the same facts as the page, as JSON, and the few actions there are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from app.bodies import parse_json
from app.crash import safe_name
from app.engines import Supervisor
from app.history import compress
from app.hub import Hub
from app.ledger import Entry
from app.problems import Problem
from app.record import EngineRecord
from app.security import owner_of
from app.state_view import engine_state, request_detail, request_list
from app.submit import find_engine
from app.wire import Json, encode, encode_bytes
from engine.gate_action import GateAction
from engine.mark import check_mark

DEFAULT_STEPS = 500


def json_response(value: Json, status: int = 200) -> Response:
    return Response(encode_bytes(value), status, media_type="application/json")


def engine_of(request: Request) -> tuple[Hub, EngineRecord]:
    """The engine named in the query, or the only one. Raises Problem."""
    hub: Hub = request.state.hub
    return hub, find_engine(hub, request.query_params.get("engine"))


async def state(request: Request) -> Response:
    """GET /api/state"""
    return json_response(engine_state(*engine_of(request)))


async def steps(request: Request) -> Response:
    """GET /api/steps?since=STEP&limit=M: steps numbered above `since` that the ring still holds, oldest first.

    `requests` holds what these steps did to requests (preempted, admitted, resumed, first_token, finished), each with
    the number of its `step`: with them a step can be explained to somebody who did not listen when it was taken.
    """
    hub, record = engine_of(request)
    since = whole_number(request, "since", 0)
    limit = whole_number(request, "limit", DEFAULT_STEPS)
    chosen = dict([pair for pair in record.steps if pair[0] > since][:limit])
    notes = [raw for number, raw in record.notes if number in chosen]
    head = f'{{"hub":{encode(hub.id)},"engine":{encode(record.id)},"epoch":{encode(record.epoch)}'
    body = f'{head},"steps":[{",".join(chosen.values())}],"requests":[{",".join(notes)}]}}'
    return Response(body, media_type="application/json")


def whole_number(request: Request, name: str, default: int) -> int:
    """A number in the query. Raises Problem."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise Problem(400, f"{name} must be a whole number from 0.", param=name)
    return int(text)


# -- requests --------------------------------------------------------------------------------------------------


async def requests(request: Request) -> Response:
    """GET /api/requests"""
    hub, record = engine_of(request)
    return json_response({"hub": hub.id, "engine": record.id, "requests": request_list(hub, record)})


def find_entry(request: Request) -> Entry:
    """The entry named in the path: our id, or the one OpenAI's clients were given. Raises Problem."""
    hub: Hub = request.state.hub
    request_id: str = request.path_params["request_id"]
    entry = hub.ledger.entries.get(request_id.removeprefix("chatcmpl-").removeprefix("cmpl-"))
    if entry is None:
        raise Problem(404, "No such request, or it ended too long ago.", param="id")
    return entry


async def request_by_id(request: Request) -> Response:
    """GET /api/requests/{id}"""
    return json_response(request_detail(request.state.hub, find_entry(request), owner_of(request)))


async def abort(request: Request) -> Response:
    """DELETE /api/requests/{id}: ends it in whatever state it is; twice is the same as once."""
    hub: Hub = request.state.hub
    entry = find_entry(request)
    if not entry.over:
        reply = await hub.command(hub.engine(entry.engine), {"cmd": "abort", "request": entry.id})
        if not reply["ok"] and not entry.over:
            raise Problem(409, reply["error"] or "The engine refused.")
    return json_response({"ok": True, "request": entry.id})


# -- actions ---------------------------------------------------------------------------------------------------


async def gate(request: Request) -> Response:
    """POST /api/gate {"action": "pause" | "run" | "step" | "rate" | "break", "steps", "per_second", "on"}"""
    hub, record = engine_of(request)
    return json_response(await move_gate(hub, record, parse_json(await request.body())))


async def move_gate(hub: Hub, record: EngineRecord, body: Json) -> Json:
    """Pause, run, step, slow or break the engine. Raises RequestError, Problem or EngineAway."""
    GateAction.from_body(body)
    asked = {name: body.get(name) for name in ("action", "steps", "per_second", "on")}
    done = await _carry_out(hub, record, {"cmd": "gate", **asked})
    return {**done, "gate": record.state["gate"] if record.state else None}


async def engine(request: Request) -> Response:
    """POST /api/engine {"action": "restart" | "reset_prefix_cache" | "reset", "force": bool}"""
    hub, record = engine_of(request)
    body = parse_json(await request.body())
    force = body.get("force", False)
    if not isinstance(force, bool):
        raise Problem(400, "force must be true or false.", param="force")
    match body.get("action"):
        case "restart":
            return json_response(await restart_once(request.state.supervisor, hub, record, force=force))
        case "reset_prefix_cache":
            return json_response(await _carry_out(hub, record, {"cmd": "reset_prefix_cache"}))
        case "reset":
            return json_response(await reset(hub, record, force=force))
    raise Problem(400, "action must be restart, reset_prefix_cache or reset.", param="action")


async def _carry_out(hub: Hub, record: EngineRecord, command: Json) -> Json:
    reply = await hub.command(record, command)
    if not reply["ok"]:
        raise Problem(409, reply["error"] or "The engine refused.")
    return {"ok": True, "effect": reply["effect"]}


async def reset(hub: Hub, record: EngineRecord, *, force: bool) -> Json:
    """The stage reset: ends all requests, clears cache and history, leaves the knobs as they were.

    Whoever asks while one is under way is told of that one, and that it ended nothing of its own.
    """

    async def work() -> Json:
        live = _live_or_forced(hub, record, "reset", "be cancelled", force=force)
        return {**await _carry_out(hub, record, {"cmd": "reset"}), "ended": live}

    return await _joining(hub, record, "reset", work)


async def _joining(hub: Hub, record: EngineRecord, what: str, work: Callable[[], Awaitable[Json]]) -> Json:
    done, joined = await hub.once(record, what, work)
    return {**done, "ended": 0, "joined": True} if joined else done


async def restart_once(supervisor: Supervisor | None, hub: Hub, record: EngineRecord, *, force: bool) -> Json:
    """`restart`; whoever asks while one is under way is told of that one."""
    return await _joining(hub, record, "restart", lambda: restart(supervisor, hub, record, force=force))


async def restart(supervisor: Supervisor | None, hub: Hub, record: EngineRecord, *, force: bool) -> Json:
    """Start a new process for the engine; its live requests end with an error, so they must be few or forced."""
    if supervisor is None or not record.restartable:
        raise Problem(409, "This engine was not started by Stepscope, so it cannot be restarted from here.")
    live = _live_or_forced(hub, record, "restart", "end with an error", force=force)
    await supervisor.restart()
    return {"ok": True, "effect": "restart", "ended": live}


def _live_or_forced(hub: Hub, record: EngineRecord, what: str, end: str, *, force: bool) -> int:
    """How many requests are live; none, unless somebody forces what would end them."""
    live = len(hub.ledger.live(record.id))
    if live and not force:
        noun = "request is" if live == 1 else "requests are"
        raise Problem(409, f"{live} {noun} live and would {end}; {what} with force to do it all the same.")
    return live


async def mark(request: Request) -> Response:
    """POST /api/marks {"text"}: somebody's words at this step, for everybody who watches."""
    hub, record = engine_of(request)
    text = check_mark(parse_json(await request.body()).get("text"))
    return json_response({**await _carry_out(hub, record, {"cmd": "mark", "text": text}), "text": text})


async def recording(request: Request) -> Response:
    """GET /api/recording: the ring as a `.jsonl.gz`."""
    _, record = engine_of(request)
    if not record.history:
        raise Problem(409, "There is nothing to record yet: the engine has not loaded.")
    data = await asyncio.to_thread(compress, record.history.lines())
    safe = safe_name(f"stepscope-{record.id}-{record.epoch}.jsonl.gz")
    return Response(
        data, media_type="application/gzip", headers={"Content-Disposition": f'attachment; filename="{safe}"'}
    )
