"""/v1: OpenAI's routes. One Exchange per POST carries a request from its body to the last byte of its answer.

Contract: nothing is sent before the engine has taken or refused the request; a client that hangs up at any
moment aborts its request and nothing else; an answer that cannot be finished says so in its stream and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from app.bodies import Submission, chat_submission, completion_submission, label_of, parse_json
from app.hub import Hub
from app.ledger import Entry
from app.openai import Endpoint, Shaper
from app.problems import Problem, error_object
from app.security import owner_of
from app.submit import arrival, find_engine, require_serving, served_model, submit
from app.wire import Json, encode_bytes

COMMENT_EVERY_S = 15.0  # proxies and clients give up on a stream that is silent for longer

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


async def models(request: Request) -> JSONResponse:
    """GET /v1/models: the one model that is served, by the engine named in the query if there are several."""
    hub: Hub = request.state.hub
    record = find_engine(hub, request.query_params.get("engine"))
    require_serving(hub, record)
    created = record.hello["clock_unix_us"] // 1_000_000 if record.hello else 0
    card = {"id": served_model(record), "object": "model", "created": created, "owned_by": "stepscope"}
    if record.state is not None:
        card["max_model_len"] = record.state["config"]["max_model_len"]
    return JSONResponse({"object": "list", "data": [card]})


async def chat_completions(request: Request) -> Exchange:
    """POST /v1/chat/completions."""
    return _exchange(request, Endpoint.CHAT, chat_submission(parse_json(await request.body())))


async def completions(request: Request) -> Exchange:
    """POST /v1/completions."""
    return _exchange(request, Endpoint.COMPLETION, completion_submission(parse_json(await request.body())))


def _exchange(request: Request, endpoint: Endpoint, submission: Submission) -> Exchange:
    hub: Hub = request.state.hub
    read_at = time.monotonic()
    label = label_of(request.headers.get("x-request-id"))
    engine = request.query_params.get("engine")
    entry = submit(hub, submission, owner=owner_of(request), label=label, read_at=read_at, engine=engine)
    shaper = Shaper(endpoint=endpoint, request=entry.id, model=served_model(hub.engine(entry.engine)))
    return Exchange(hub, entry, shaper, submission)


class Exchange:
    """The ASGI answer to one POST."""

    def __init__(self, hub: Hub, entry: Entry, shaper: Shaper, submission: Submission) -> None:
        self._hub = hub
        self._entry = entry
        self._shaper = shaper
        self._submission = submission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = self._stream(send) if self._submission.stream else self._whole(scope, receive, send)
        answering = asyncio.ensure_future(work)
        watching = asyncio.ensure_future(hung_up(receive))
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            await stop(answering, watching)
            if not self._entry.over:
                self._hub.abort(self._entry)

    # -- the whole answer at once ------------------------------------------------------------------------------

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        entry = self._entry
        await arrival(self._hub, entry)
        while not entry.over:
            await entry.change()
        failure = _failure(entry)
        if failure is not None:
            raise failure
        body = self._shaper.whole(entry, with_timings=self._submission.with_timings)
        await JSONResponse(body)(scope, receive, send)

    # -- piece by piece ----------------------------------------------------------------------------------------

    async def _stream(self, send: Send) -> None:
        await arrival(self._hub, self._entry)
        await send({"type": "http.response.start", "status": 200, "headers": list(_STREAM_HEADERS)})
        if self._shaper.endpoint is Endpoint.CHAT:
            await _event(send, self._shaper.role())
        await self._stream_text(send)
        await self._stream_end(send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream_text(self, send: Send) -> None:
        entry, sent = self._entry, 0
        while True:
            if sent < len(entry.parts):
                text = "".join(entry.parts[sent:])
                sent = len(entry.parts)
                await _event(send, self._shaper.delta(text))
                entry.written_at = entry.written_at or time.monotonic()
            elif entry.over:
                return
            else:
                await self._wait_or_comment(send)

    async def _wait_or_comment(self, send: Send) -> None:
        try:
            async with asyncio.timeout(COMMENT_EVERY_S):
                await self._entry.change()
        except TimeoutError:
            await send({"type": "http.response.body", "body": b": waiting\n\n", "more_body": True})

    async def _stream_end(self, send: Send) -> None:
        entry = self._entry
        failure = _failure(entry)
        if failure is not None:
            await _event(send, error_object(failure.status, failure.message))
            return
        await _event(send, self._shaper.last(entry, with_timings=self._submission.with_timings))
        if self._submission.include_usage:
            await _event(send, self._shaper.usage(entry))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})


def _failure(entry: Entry) -> Problem | None:
    """What to say about a request that has no proper end."""
    if entry.lost is not None:
        return Problem(503, entry.lost)
    if entry.finished is None or entry.finished["reason"] != "error":
        return None
    if entry.finished["detail"] == "shutdown":
        return Problem(503, "The engine was stopped or restarted before the answer was complete.")
    return Problem(500, "The engine ended this request with an error; its terminal says what.")


async def _event(send: Send, value: Json) -> None:
    await send({"type": "http.response.body", "body": b"data: " + encode_bytes(value) + b"\n\n", "more_body": True})


async def hung_up(receive: Receive) -> None:
    """Returns when the client has left; its request must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def stop(*tasks: asyncio.Future[Any]) -> None:
    """Cancel them and wait for their ends."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
