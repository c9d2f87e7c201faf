"""What keeps a page on loopback from being anybody's: Host and Origin checks, headers, limits, the owner's cookie.

Contract: nothing behind this middleware sees a request for a host that is not allowed, an unsafe method or a
WebSocket from another origin, or a body over MAX_BODY_BYTES; every response carries the CSP; every visitor of the
page has a random cookie, and `owner` is a digest of it, fit to be shown to others.
"""

from __future__ import annotations

import hashlib
import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.problems import Problem, handle
from app.wire import POLICY_VIOLATION

MAX_BODY_BYTES = 2**20
COOKIE = "stepscope_owner"
COOKIE_BYTES = 24
COOKIE_AGE_S = 400 * 24 * 3600
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# For views that others may frame (app/embed.py): nothing in them is sent anywhere by a form.
FRAMED_CSP = CSP.replace("form-action 'self'", "form-action 'none'").removesuffix("; frame-ancestors 'none'")
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FRAMED_HEADERS = {name: value for name, value in HEADERS.items() if name != "X-Frame-Options"}
_FRAMED_HEADERS["Content-Security-Policy"] = FRAMED_CSP


def bearer_matches(connection: HTTPConnection, token: str) -> bool:
    """Whether the connection brings `Authorization: Bearer <token>`; takes the same time for any wrong one."""
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), token.encode())


def owner_of(connection: HTTPConnection) -> str | None:
    """The public name of whoever sent this: a digest of the cookie, never the cookie."""
    cookie = connection.scope.get("stepscope.cookie")
    return hashlib.sha256(cookie.encode()).hexdigest()[:12] if cookie else None


class Guard:
    """The outermost middleware: refuses what must not get in, and marks what goes out."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: frozenset[str]) -> None:
        self._app = app
        self._allowed_hosts = allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        scope["stepscope.cookie"] = _cookie(headers)
        problem = self._refusal(scope, headers)
        if scope["type"] == "websocket":
            if problem is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        new_cookie = _visits_page(scope, headers) and scope["stepscope.cookie"] is None
        if new_cookie:
            scope["stepscope.cookie"] = secrets.token_urlsafe(COOKIE_BYTES)
        marked = _marking(send, scope["stepscope.cookie"] if new_cookie else None)
        if problem is None:
            await self._app(scope, _limited(receive), marked)
        else:
            response = await handle(Request(scope), problem)
            await response(scope, receive, marked)

    def _refusal(self, scope: Scope, headers: Headers) -> Problem | None:
        host = headers.get("host", "")
        if _hostname(host) not in self._allowed_hosts:
            return Problem(403, "This host name is not allowed here; start Stepscope with --allowed-host to allow it.")
        unsafe = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
        if unsafe and not _same_origin(headers, host):
            return Problem(403, "Requests from pages of another origin are refused.")
        if int_or_zero(headers.get("content-length")) > MAX_BODY_BYTES:
            return _too_large()
        return None


def _cookie(headers: Headers) -> str | None:
    value = cookie_parser(headers.get("cookie", "")).get(COOKIE)
    return value if value is not None and 16 <= len(value) <= 128 else None


def _visits_page(scope: Scope, headers: Headers) -> bool:
    """Whether this request comes from a person's browser. A link from elsewhere brings no SameSite=Strict cookie:
    handing out a new one then would take its owner's requests away."""
    path: str = scope["path"]
    page = path == "/" or path.startswith(("/prompts", "/requests/", "/gate", "/static/"))
    return page and headers.get("sec-fetch-site", "none") != "cross-site"


def _hostname(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _same_origin(headers: Headers, host: str) -> bool:
    """Browsers send Origin with every unsafe request and every WebSocket; other clients need not."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    scheme, separator, netloc = origin.partition("://")
    return bool(separator) and scheme in ("http", "https") and netloc.lower() == host.lower()


def int_or_zero(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0


def _too_large() -> Problem:
    return Problem(413, f"The body is larger than the limit of {MAX_BODY_BYTES:,} bytes.")


def _limited(receive: Receive) -> Receive:
    total = 0

    async def receive_limited() -> Message:
        nonlocal total
        message = await receive()
        if message["type"] == "http.request":
            total += len(message.get("body", b""))
            if total > MAX_BODY_BYTES:
                raise HTTPException(413, _too_large().message)
        return message

    return receive_limited


def _marking(send: Send, new_cookie: str | None) -> Send:
    async def send_marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(HEADERS if headers.get("Content-Security-Policy") != FRAMED_CSP else _FRAMED_HEADERS)
            headers.setdefault("Cache-Control", "no-store")
            if new_cookie is not None:
                attributes = f"Path=/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_AGE_S}"
                headers.append("Set-Cookie", f"{COOKIE}={new_cookie}; {attributes}")
        await send(message)

    return send_marked
