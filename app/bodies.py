"""Request bodies: from bytes to a checked Submission. No sockets, no engine here.

Contract: whatever passes can be handed to the engine; whatever does not raises RequestError with a sentence
that names the field. null equals absent everywhere. A parameter that we do not implement yet is refused by name
unless it asks for nothing (`n: 1`, `tools: []` …), never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.wire import Json
from engine.errors import RequestError, shown
from engine.request import SamplingParams, check_priority

COMPLETIONS_MAX_TOKENS = 16  # OpenAI's default for /v1/completions
MAX_LABEL = 128  # characters of a client's own id

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

SAMPLING_FIELDS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "ignore_eos",
)
_OURS = ("model", "messages", "prompt", "stream", "stream_options", "stepscope", "priority", "class")
_LABELS = ("user", "metadata", "store", "safety_identifier", "prompt_cache_key")  # they change no answer
_HANDLED = frozenset((*SAMPLING_FIELDS, *_OURS, *_LABELS))
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "service_tier": ("auto", "default"),
    "use_beam_search": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request that is well formed; whether it fits the model is the engine's to say."""

    content: Json  # one of {"messages"}, {"prompt"}, {"prompt_token_ids"}
    sampling: Json  # the sampling fields of the body, by name
    model: str | None = None
    priority: int = 0  # lower is more urgent; it counts under the priority policy
    request_class: str | None = None  # the caller's word for its kind; latencies are told apart by it
    stream: bool = False
    include_usage: bool = False
    with_timings: bool = False

    @property
    def shown_prompt(self) -> str | None:
        """What to show as its prompt to those who may read it."""
        if "messages" in self.content:
            return str(self.content["messages"][-1]["content"])
        prompt: str | None = self.content.get("prompt")
        return prompt


def parse_json(raw: bytes) -> Json:
    """The body as an object. Python's reader lets NaN and Infinity through: the field checks then name the field."""
    try:
        body = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise RequestError("The body is not valid UTF-8.") from None
    except (ValueError, RecursionError):
        raise RequestError("The body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise RequestError("The body must be a JSON object.")
    return body


def chat_submission(body: Json) -> Submission:
    """POST /v1/chat/completions."""
    _refuse_unknown(body, "prompt")
    return _submission(body, {"messages": _messages(body.get("messages"))}, default_max_tokens=None)


def completion_submission(body: Json) -> Submission:
    """POST /v1/completions."""
    _refuse_unknown(body, "messages")
    return _submission(body, _prompt(body.get("prompt")), default_max_tokens=COMPLETIONS_MAX_TOKENS)


def sampling_fields(body: Mapping[str, Any], *, default_max_tokens: int | None) -> Json:
    """The body's sampling fields, checked here so that a bad value fails before it reaches the engine."""
    SamplingParams.from_body(body)
    sampling = {name: body[name] for name in SAMPLING_FIELDS if body.get(name) is not None}
    if default_max_tokens is not None and not {"max_tokens", "max_completion_tokens"} & sampling.keys():
        sampling["max_tokens"] = max(default_max_tokens, sampling.get("min_tokens", 0))
    return sampling


def label_of(value: str | None) -> str | None:
    """A client's own id as a label: shown, never a key."""
    if value is None:
        return None
    return "".join(char for char in value if char.isprintable())[:MAX_LABEL] or None


def check_text(text: str, param: str) -> str:
    """Text that can be encoded and tokenised; returned as it came."""
    if "\x00" in text:
        raise RequestError(f"{param} contains a null character.", param=param)
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise RequestError(f"{param} contains half of a surrogate pair, which is not a character.", param=param)
    return text


# -- the parts -------------------------------------------------------------------------------------------------


def _submission(body: Json, content: Json, *, default_max_tokens: int | None) -> Submission:
    stops = body.get("stop")
    for stop in stops if isinstance(stops, list) else [stops]:
        if isinstance(stop, str):
            check_text(stop, "stop")
    stream = _flag(body, "stream")
    return Submission(
        content=content,
        sampling=sampling_fields(body, default_max_tokens=default_max_tokens),
        model=_model(body),
        priority=check_priority(body.get("priority")),
        request_class=_class(body),
        stream=stream,
        include_usage=_include_usage(body, stream),
        with_timings=_flag(body, "stepscope"),
    )


def _refuse_unknown(body: Json, *foreign: str) -> None:
    for name, value in body.items():
        if value is None or (name in _HANDLED and name not in foreign):
            continue
        if name not in _NEUTRAL:
            plain = name.isprintable() and len(name) <= 60  # half a surrogate pair could not even be sent back
            shown = name if plain else "A field with an unusual name"
            raise RequestError(f"{shown} is not a parameter that this server knows.", param=name if plain else None)
        if not any(value == neutral and _same_kind(value, neutral) for neutral in _NEUTRAL[name]):
            raise RequestError(f"{name} is not supported yet; leave it out or at its neutral value.", param=name)


def _same_kind(value: object, neutral: object) -> bool:
    return isinstance(value, bool) is isinstance(neutral, bool)


def _flag(body: Json, name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false.", param=name)
    return bool(value)


def _model(body: Json) -> str | None:
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise RequestError("model must be a string.", param="model")
    return model


def _class(body: Json) -> str | None:
    value = body.get("class")
    if value is not None and not isinstance(value, str):
        raise RequestError(f"class is {shown(value)}; it must be a string.", param="class")
    return label_of(value)


def _include_usage(body: Json, stream: bool) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise RequestError("stream_options must be an object.", param="stream_options")
    if not stream:
        raise RequestError("stream_options needs stream to be true.", param="stream_options")
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            raise RequestError("stream_options knows only include_usage.", param="stream_options")
    usage = options.get("include_usage")
    if usage is not None and not isinstance(usage, bool):
        raise RequestError("stream_options.include_usage must be true or false.", param="stream_options")
    return bool(usage)


def _prompt(value: object) -> Json:
    if value is None:
        raise RequestError("prompt is missing.", param="prompt")
    if isinstance(value, list) and len(value) > 1 and all(isinstance(item, (str, list)) for item in value):
        raise RequestError("prompt holds several prompts; send one per request.", param="prompt")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)):
        value = value[0]
    if isinstance(value, str):
        if not value:
            raise RequestError("prompt is empty.", param="prompt")
        return {"prompt": check_text(value, "prompt")}
    if not isinstance(value, list) or not all(_is_token_id(token) for token in value):
        raise RequestError("prompt must be a string or a list of token ids (whole numbers from 0).", param="prompt")
    if not value:
        raise RequestError("prompt is empty.", param="prompt")
    return {"prompt_token_ids": value}


def _is_token_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _messages(value: object) -> list[Json]:
    if value is None:
        raise RequestError("messages is missing.", param="messages")
    if not isinstance(value, list):
        raise RequestError("messages must be a list.", param="messages")
    if not value:
        raise RequestError("messages is empty.", param="messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(value)]


def _message(value: object, at: str) -> Json:
    if not isinstance(value, dict):
        raise RequestError(f"{at} must be an object with role and content.", param=at)
    role = value.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise RequestError(f"{at}.role must be one of {', '.join(ROLES)}.", param=f"{at}.role")
    for name, member in value.items():
        if name not in ("role", "content") and member is not None and member != []:
            shown = name if name.isprintable() and len(name) <= 60 else "a member"
            raise RequestError(f"{at} has {shown}, which is not supported.", param=at)
    content = _content(value.get("content"), f"{at}.content")
    if role == "user" and not content:
        raise RequestError(f"{at}.content is empty.", param=f"{at}.content")
    return {"role": ROLES[role], "content": content}


def _content(value: object, at: str) -> str:
    if value is None:
        raise RequestError(f"{at} is missing.", param=at)
    if isinstance(value, str):
        return check_text(value, at)
    if not isinstance(value, list):
        raise RequestError(f"{at} must be a string or a list of text parts.", param=at)
    texts = []
    for index, part in enumerate(value):
        here = f"{at}[{index}]"
        if not isinstance(part, dict) or part.get("type") != "text":
            raise RequestError(f"{here}.type must be text; other kinds of parts are not supported.", param=here)
        if not isinstance(part.get("text"), str):
            raise RequestError(f"{here}.text must be a string.", param=here)
        texts.append(check_text(part["text"], here))
    return "".join(texts)
