"""The prompt form: from strings to a checked PromptForm. Errors name the field, as the API's do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from app.bodies import check_text, sampling_fields
from app.wire import Json
from engine.errors import RequestError, shown
from engine.request import check_priority

MAX_COPIES = 16
DEFAULT_BURST = 8
FORM_MAX_TOKENS = 256
MAX_FIELDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptForm:
    """What somebody asked for. `burst` > 0 sends that many example prompts instead of `prompt`."""

    prompt: str
    system: str
    conversation: str | None
    copies: int
    burst: int
    priority: int
    sampling: Json


async def read_fields(request: Request) -> dict[str, str]:
    """The form's fields; the last one of a name counts. Raises RequestError for files and for what is no text."""
    fields: dict[str, str] = {}
    try:
        async with request.form(max_files=0, max_fields=MAX_FIELDS) as form:
            for name, value in form.multi_items():
                if not isinstance(value, str):
                    raise RequestError("The form takes no files.")
                fields[name] = value
    except UnicodeError:  # the sender names the encoding, and some encodings decode nothing
        raise RequestError("The form cannot be read in the encoding that it names; send UTF-8.") from None
    return fields


def prompt_form(fields: Mapping[str, str]) -> PromptForm:
    """Raises RequestError naming the field."""
    burst = _burst(fields.get("burst", ""))
    prompt = check_text(fields.get("prompt", ""), "prompt").replace("\r\n", "\n")
    if not burst and not prompt.strip():
        raise RequestError("prompt is empty; write something to send.", param="prompt")
    copies = _whole(fields, "copies")
    if copies is not None and not 1 <= copies <= MAX_COPIES:
        raise RequestError(f"copies is {shown(copies)}; it must be from 1 to {MAX_COPIES}.", param="copies")
    return PromptForm(
        prompt=prompt,
        system=check_text(fields.get("system", ""), "system").replace("\r\n", "\n").strip(),
        conversation=fields.get("conversation", "").strip() or None,
        copies=copies or 1,
        burst=burst,
        priority=check_priority(_whole(fields, "priority")),
        sampling=_sampling(fields),
    )


def whole_number(fields: Mapping[str, str], name: str) -> int | None:
    """A field as a whole number; blank is None."""
    return _whole(fields, name)


def _sampling(fields: Mapping[str, str]) -> Json:
    body: Json = {name: _whole(fields, name) for name in ("max_tokens", "top_k", "seed")}
    body |= {name: _number(fields, name) for name in ("temperature", "top_p")}
    stops = [line for line in fields.get("stop", "").replace("\r\n", "\n").split("\n") if line]
    body["stop"] = [check_text(stop, "stop") for stop in stops] or None
    body["ignore_eos"] = _ticked(fields.get("ignore_eos", "")) or None
    return sampling_fields(body, default_max_tokens=FORM_MAX_TOKENS)


def _whole(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise RequestError(f"{name} must be a whole number.", param=name) from None


def _number(fields: Mapping[str, str], name: str) -> float | None:
    text = fields.get(name, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{name} must be a number.", param=name) from None


def _ticked(text: str) -> bool:
    return text.strip().lower() in ("on", "true", "yes")


def _burst(text: str) -> int:
    """A tick means the usual burst, a number that many, blank or 0 none."""
    if _ticked(text):
        return DEFAULT_BURST
    burst = _whole({"burst": text}, "burst") or 0
    if not 0 <= burst <= MAX_COPIES:
        raise RequestError(f"burst is {shown(burst)}; it must be from 0 to {MAX_COPIES}.", param="burst")
    return burst
