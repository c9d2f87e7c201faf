"""Errors as HTTP answers: one JSON shape on API routes, a page elsewhere, and never a Python exception's text.

Contract: `{"error": {"message", "type", "param", "code"}}`, as OpenAI's clients expect it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from app.hub import EngineAway
from engine.errors import RequestError

RETRY_AFTER_S = 1
API_PREFIXES = ("/v1/", "/api/", "/metrics", "/healthz", "/health", "/readyz")

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_TYPES |= {409: "conflict_error", 413: "invalid_request_error", 429: "rate_limit_error", 503: "service_unavailable"}
_CODES = {404: "not_found", 413: "body_too_large", 429: "queue_full", 503: "engine_away"}
_SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not take this method.",
    500: "Something went wrong inside Stepscope; its terminal says what.",
}


class Problem(Exception):
    """An answer other than 2xx, with a message meant for the caller."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = _encodable(message)
        self.param = param and _encodable(param)
        self.code = code or _CODES.get(status)


def _encodable(text: str) -> str:
    """`text` with half surrogate pairs spelled out: it may quote what JSON allows and UTF-8 does not."""
    return text.encode("utf-8", "backslashreplace").decode()


def error_object(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The error body; also what a stream sends when it has to end early."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code or _CODES.get(status)}}


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> JSONResponse:
    extra = dict(headers or {})
    if problem.status in (429, 503):
        extra["Retry-After"] = str(RETRY_AFTER_S)
    body = error_object(problem.status, problem.message, param=problem.param, code=problem.code)
    return JSONResponse(body, problem.status, extra)


def as_problem(error: Exception) -> Problem:
    """What to tell the caller about an error raised while answering."""
    match error:
        case Problem():
            return error
        case RequestError():
            return Problem(error.status, error.message, param=error.param)
        case EngineAway():
            return Problem(503, str(error))
        case HTTPException():
            return Problem(error.status_code, _SENTENCES.get(error.status_code, error.detail))
        case ClientDisconnect():
            return Problem(400, "The client left before its request was whole.")
    return Problem(500, _SENTENCES[500])


def by_script(request: Request) -> bool:
    """Whether htmx asks, and so puts the answer into the page whatever it is."""
    return request.headers.get("hx-request") == "true"


def wants_json(request: Request) -> bool:
    return request.url.path.startswith(API_PREFIXES)


async def handle(request: Request, error: Exception) -> Response:
    """Starlette's exception handler for everything above; a form's script gets 422 for what was wrong with the form."""
    problem = as_problem(error)
    headers = error.headers if isinstance(error, HTTPException) else None
    status, template = problem.status, "error.html"
    if by_script(request):
        status, template = 422 if status in (400, 404) else status, "_prompt_error.html"
    if wants_json(request) or (not by_script(request) and "text/html" not in request.headers.get("accept", "")):
        return problem_response(problem, headers)
    context = {"status": status, "message": problem.message, "param": problem.param}
    response: Response = request.state.templates.TemplateResponse(request, template, context, status, headers)
    return response
