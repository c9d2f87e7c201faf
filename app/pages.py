"""The pages and the form's actions: complete without any script, and htmx partials where a script asks.

A form's action answers a script (`HX-Request`) with a partial and 200, 413, 422, 429 or 503, and a plain browser with a
303 to a page that shows what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app import api
from app.bodies import Submission
from app.conversations import Conversation, Conversations
from app.embed import asked_panels, present_alone
from app.examples import EXAMPLES
from app.forms import MAX_COPIES, PromptForm, prompt_form, read_fields, whole_number
from app.hub import Hub
from app.ledger import Entry
from app.problems import Problem, as_problem, by_script
from app.security import owner_of
from app.state_view import engine_state, request_summary
from app.submit import arrival, served_model, submit

REFRESH_S = 2  # how often a page without script looks again
SEE_OTHER = 303


def _render(request: Request, name: str, context: Mapping[str, Any], status: int = 200) -> Response:
    response: Response = request.state.templates.TemplateResponse(request, name, dict(context), status)
    return response


async def favicon(_: Request) -> Response:
    """GET /favicon.ico: where browsers look for an icon of what names none, such as JSON."""
    return RedirectResponse("/static/icon.svg", 308)


async def index(request: Request) -> Response:
    """GET /: everything that is known now, before any script runs.

    `?engine=` shows this engine, instead of the first one; `?panel=kv,slots` these panels alone.
    """
    hub: Hub = request.state.hub
    chosen = request.query_params.get("engine")
    record = hub.engines.get(next(iter(hub.engines), "") if chosen is None else chosen)
    owner = owner_of(request)
    alone = asked_panels(request.query_params.get("panel"))
    entries = [entry for entry in hub.ledger.entries.values() if entry.arrived is not None]
    context = {
        "hub": hub.id,
        "state": engine_state(hub, record) if record else None,
        "engine": record.id if record else chosen or "",
        "chosen": chosen,
        "engines": [{**summary, "model": served_model(hub.engines[summary["id"]])} for summary in hub.summaries()],
        "model_name": served_model(record) if record else "",
        "requests": [request_summary(hub, entry, owner) for entry in reversed(entries[-64:])],
        "examples": EXAMPLES,
        "max_copies": MAX_COPIES,
        "share_text": hub.settings.share_text.value,
        "alone": alone,
        "presenter": "present" in request.query_params,
    }
    page = _render(request, "index.html", context)
    if alone:
        present_alone(alone, page)
    return page


async def compare(request: Request) -> Response:
    """GET /compare: two runs side by side; the browser fetches and folds them."""
    live = _page_of(request.query_params.get("engine"))
    return _render(request, "compare.html", {"engines": list(request.state.hub.engines), "live": live})


async def request_page(request: Request) -> Response:
    """GET /requests/{id}: one request; the page looks again by itself until it has ended."""
    hub: Hub = request.state.hub
    entry = api.find_entry(request)
    item = request_summary(hub, entry, owner_of(request))
    response = _render(request, "request.html", {"item": item, "live": not entry.over, "refresh_s": REFRESH_S})
    if not entry.over:
        response.headers["Refresh"] = str(REFRESH_S)
    return response


# -- prompts ---------------------------------------------------------------------------------------------------


async def send_prompts(request: Request) -> Response:
    """POST /prompts: one prompt, copies of it, or a burst of examples."""
    fields = await read_fields(request)
    engine = fields.get("engine") or None
    sent, refused = await _send(request, prompt_form(fields), engine)
    if not sent:
        raise refused[0]
    if by_script(request):
        requests = [{"id": e.id, "prompt": e.prompt, "conversation": e.conversation} for e in sent]
        messages = [problem.message for problem in refused]
        return _render(request, "_prompt_sent.html", {"requests": requests, "refused": messages})
    return RedirectResponse(f"/requests/{sent[0].id}" if len(sent) == 1 else _page_of(engine), SEE_OTHER)


async def _send(request: Request, form: PromptForm, engine: str | None) -> tuple[list[Entry], list[Problem]]:
    """Submit everything at once, then see what the engine says to each."""
    hub: Hub = request.state.hub
    owner = owner_of(request)
    conversations: Conversations = request.state.conversations
    chosen = conversations.find(form.conversation, owner) if form.conversation and not form.burst else None
    prompts = EXAMPLES[: form.burst] if form.burst else [form.prompt] * form.copies
    threads = [chosen or conversations.start(owner)]
    threads += [conversations.start(owner, like=chosen) for _ in prompts[1:]]
    taken = [_ask(hub, form, prompt, thread, owner, engine) for prompt, thread in zip(prompts, threads, strict=True)]
    outcomes = await asyncio.gather(*(arrival(hub, entry) for entry in taken), return_exceptions=True)
    sent = [entry for entry, outcome in zip(taken, outcomes, strict=True) if outcome is None]
    refused = [as_problem(outcome) for outcome in outcomes if isinstance(outcome, Exception)]
    return sent, refused


def _ask(
    hub: Hub, form: PromptForm, prompt: str, conversation: Conversation, owner: str | None, engine: str | None
) -> Entry:
    messages = conversation.with_question(prompt, form.system)
    submission = Submission(content={"messages": messages}, sampling=form.sampling, priority=form.priority)
    entry = submit(hub, submission, owner=owner, label=None, conversation=conversation.id, engine=engine)
    conversation.asked(messages, entry)
    return entry


# -- actions without script ------------------------------------------------------------------------------------


async def abort(request: Request) -> Response:
    """POST /requests/{id}/abort"""
    entry = api.find_entry(request)
    if not entry.over:
        request.state.hub.abort(entry)
    return _done(request, f"/requests/{entry.id}")


async def gate(request: Request) -> Response:
    """POST /gate: `action` and `steps` as form fields."""
    hub, record = api.engine_of(request)
    fields = await read_fields(request)
    await api.move_gate(hub, record, {"action": fields.get("action"), "steps": whole_number(fields, "steps")})
    return _done(request, _page_of(request.query_params.get("engine")))


async def restart(request: Request) -> Response:
    """POST /engine/restart: `force` as a form field."""
    hub, record = api.engine_of(request)
    force = bool((await read_fields(request)).get("force"))
    await api.restart_once(request.state.supervisor, hub, record, force=force)
    return _done(request, _page_of(request.query_params.get("engine")))


def _page_of(engine: str | None) -> str:
    """The address that shows an engine; None: the first one."""
    return "/" if engine is None else f"/?{urlencode({'engine': engine})}"


def _done(request: Request, page: str) -> Response:
    return Response(status_code=204) if by_script(request) else RedirectResponse(page, SEE_OTHER)
