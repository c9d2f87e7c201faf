"""create_app(): routes, middleware, lifespan. Nothing else knows all the parts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import jinja2
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates
from starlette.types import Receive, Scope, Send

from app import api, assets, completions, ghost, health, knobs, metrics, pages, sockets
from app.conversations import Conversations
from app.engines import Supervisor
from app.hub import EngineAway, Hub
from app.joined import Joined
from app.problems import Problem, handle
from app.security import HEADERS, Guard
from engine.errors import RequestError


class _Static(StaticFiles):
    """Files whose names carry no version: cached, but asked about each time."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response: Response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "no-cache"
        return response


class _Compressed(GZipMiddleware):
    """Compresses what it can, but nothing of what programs stream. (It sees by itself what is compressed already.)"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            await self.app(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _routes() -> list[BaseRoute]:
    return [
        Route("/", pages.index),
        Route("/prompts", pages.send_prompts, methods=["POST"]),
        Route("/compare", pages.compare),
        Route("/requests/{request_id}", pages.request_page),
        Route("/requests/{request_id}/abort", pages.abort, methods=["POST"]),
        Route("/gate", pages.gate, methods=["POST"]),
        Route("/engine/restart", pages.restart, methods=["POST"]),
        Route("/healthz", health.healthz),
        Route("/health", health.healthz),
        Route("/readyz", health.readyz),
        Route("/metrics", metrics.metrics),
        Route("/v1/models", completions.models),
        Route("/v1/completions", completions.completions, methods=["POST"]),
        Route("/v1/chat/completions", completions.chat_completions, methods=["POST"]),
        Route("/api/state", api.state),
        Route("/api/config", knobs.get_config),
        Route("/api/config", knobs.patch_config, methods=["PATCH"]),
        Route("/api/steps", api.steps),
        Route("/api/requests", api.requests),
        Route("/api/requests/{request_id}", api.request_by_id),
        Route("/api/requests/{request_id}", api.abort, methods=["DELETE"]),
        Route("/api/gate", api.gate, methods=["POST"]),
        Route("/api/engine", api.engine, methods=["POST"]),
        Route("/api/marks", api.mark, methods=["POST"]),
        Route("/api/recording", api.recording),
        Route("/api/ghost", ghost.ghost, methods=["POST"]),
        WebSocketRoute("/ws", sockets.viewer),
        WebSocketRoute("/ws/engine", sockets.engine),
        Route("/joined/{path:path}", Joined(assets.find("static")).serve),
        Route("/favicon.ico", pages.favicon),
        Mount("/static", _Static(directory=assets.find("static"))),
    ]


def create_app(hub: Hub, supervisor: Supervisor | None = None) -> Starlette:
    """The ASGI app around a hub; without a supervisor engines dial in from elsewhere and cannot be restarted."""
    templates = Jinja2Templates(env=_environment())

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, object]]:
        clock = asyncio.create_task(hub.run())
        try:
            yield {
                "hub": hub,
                "supervisor": supervisor,
                "templates": templates,
                "metrics": metrics.Metrics(hub),
                "conversations": Conversations(),
                "ghosts": ghost.Line(),
            }
        finally:
            hub.close("Stepscope is shutting down.")
            if supervisor is not None:
                await supervisor.stop()
            clock.cancel()

    handlers = dict.fromkeys((Problem, RequestError, EngineAway, HTTPException, ClientDisconnect), handle)
    return Starlette(
        routes=_routes(),
        middleware=[Middleware(Guard, allowed_hosts=hub.settings.allowed_hosts), Middleware(_Compressed)],
        exception_handlers={**handlers, Exception: _internal_error},
        lifespan=lifespan,
    )


def _environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(assets.find("templates"))
    return jinja2.Environment(
        loader=loader, autoescape=jinja2.select_autoescape(("html",)), trim_blocks=True, lstrip_blocks=True
    )


async def _internal_error(request: Request, error: Exception) -> Response:
    """Runs outside every middleware, so it brings the headers itself. The server logs the traceback."""
    response = await handle(request, error)
    response.headers.update(HEADERS)
    return response
