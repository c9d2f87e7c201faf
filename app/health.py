"""/healthz, /readyz: for probes and scripts."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import JSONResponse

from app.hub import Hub
from app.problems import RETRY_AFTER_S
from app.record import Status
from app.wire import Json


async def healthz(request: Request) -> JSONResponse:
    """The app's process is alive."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> JSONResponse:
    """200 when every engine is loaded and was heard of lately, else 503 with the reason of one that is not."""
    hub: Hub = request.state.hub
    body: Json = {"status": "starting", "reason": "No engine is connected."}
    for summary in sorted(hub.summaries(), key=lambda summary: summary["status"] in ("ready", "paused")):
        status = summary["status"]
        if status in ("ready", "paused"):
            return JSONResponse({"status": status, "engine": summary["id"]})
        body = {"status": status, "engine": summary["id"], "reason": summary["reason"], **(summary["load"] or {})}
        break
    if hub.closing:
        body = {"status": "closing", "reason": "Stepscope is shutting down."}
    age = [time.monotonic() - record.heard_at for record in hub.engines.values()]
    if body["status"] == Status.SILENT.value and age:
        body["heard_s_ago"] = round(max(age), 1)
    return JSONResponse(body, 503, {"Retry-After": str(RETRY_AFTER_S)})
