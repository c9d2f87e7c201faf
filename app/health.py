"""/healthz, /readyz: for probes and scripts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from app.hub import Hub
from app.problems import RETRY_AFTER_S
from app.record import Status
from app.wire import Json

SERVING = (Status.READY.value, Status.PAUSED.value)


async def healthz(request: Request) -> JSONResponse:
    """The app's process is alive."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> JSONResponse:
    """200 when every engine takes requests, else 503 with the reason of one that does not."""
    hub: Hub = request.state.hub
    summary = min(hub.summaries(), key=lambda summary: summary["status"] in SERVING, default=None)
    if hub.closing:
        body: Json = {"status": "closing", "reason": "Stepscope is shutting down."}
    elif summary is None:
        body = {"status": "starting", "reason": "No engine is connected."}
    elif summary["status"] in SERVING:
        return JSONResponse({"status": summary["status"], "engine": summary["id"]})
    else:
        body = {"status": summary["status"], "engine": summary["id"], "reason": summary["reason"]}
        body |= summary["load"] or {}
    return JSONResponse(body, 503, {"Retry-After": str(RETRY_AFTER_S)})
