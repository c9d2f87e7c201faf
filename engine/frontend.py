"""Frontend: from what somebody sent to a Request that the engine can serve, or a sentence why not.

Bad input fails here, alone, before it owns anything: the chat template, the tokenizer and every limit are applied in
the frontend's own thread, and the engine's loop sees only requests that can run.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from engine.config import EngineConfig
from engine.detokenizer import Detokenizer
from engine.errors import LoadError, RequestError, brief, shown
from engine.events import ModelFacts
from engine.request import Request, SamplingParams, check_priority

ROLES = ("system", "user", "assistant", "tool", "developer")


class Frontend:
    """Makes requests and their detokenizers. `config` is resolved. Raises LoadError for a template that is none."""

    def __init__(
        self,
        config: EngineConfig,
        facts: ModelFacts,
        tokenizer: Tokenizer,
        chat_template: str | None,
        special_tokens: Mapping[str, str],
        eos_token_ids: frozenset[int],
    ) -> None:
        assert config.max_model_len is not None
        assert config.num_blocks is not None
        self._tokenizer = tokenizer
        self._special_tokens = dict(special_tokens)
        self._eos_token_ids = eos_token_ids
        self._vocab_size = facts.vocab_size
        self._max_model_len = config.max_model_len
        self._capacity = config.num_blocks * config.block_size
        self._seeds = random.Random(config.seed)
        self._template = None if chat_template is None else _template(chat_template)

    def make_request(self, command: Mapping[str, Any], arrival_us: int) -> Request:
        """Check and settle a `submit` command. Raises RequestError naming the field and the limit."""
        params = SamplingParams.from_body(_sampling(command))
        prompt = self._prompt_token_ids(command)
        room = self._room(len(prompt), "prompt" if command.get("messages") is None else "messages")
        self._check_known(params.stop_token_ids, "stop_token_ids")
        stop_ids = frozenset(params.stop_token_ids)
        return Request(
            request_id=command["request"],
            prompt_token_ids=prompt,
            sampling_params=params,
            max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            seed=self._seeds.getrandbits(48) if params.seed is None else params.seed,
            stop_token_ids=stop_ids if params.ignore_eos else stop_ids | self._eos_token_ids,
            arrival_us=arrival_us,
            label=_label(command, "label"),
            parent=_label(command, "parent"),
            owner=_label(command, "owner"),
            priority=check_priority(command.get("priority")),
            request_class=_label(command, "request_class"),
        )

    def make_detokenizer(self, request: Request) -> Detokenizer:
        return Detokenizer(self._tokenizer, request.prompt_token_ids, request.sampling_params.stop)

    def _room(self, num_prompt_tokens: int, param: str) -> int:
        """How many output tokens the context leaves; refuses a prompt that could never be served."""
        if num_prompt_tokens >= self._max_model_len:
            raise RequestError(
                f"The prompt has {num_prompt_tokens} tokens; the limit is {self._max_model_len - 1}, since "
                f"--max-model-len is {self._max_model_len} and at least one token is to be generated. Shorten it.",
                param=param,
            )
        if num_prompt_tokens > self._capacity:
            raise RequestError(
                f"The prompt has {num_prompt_tokens} tokens; the whole KV cache holds {self._capacity}. "
                "Shorten it, or start the engine with a larger --num-blocks.",
                param=param,
            )
        return self._max_model_len - num_prompt_tokens

    def _prompt_token_ids(self, command: Mapping[str, Any]) -> list[int]:
        if command.get("messages") is not None:
            ids = self._encode(self._render(command["messages"]), "messages", special=False)
        elif command.get("prompt_token_ids") is not None:
            ids = self._given_ids(command["prompt_token_ids"])
        elif isinstance(command.get("prompt"), str):
            ids = self._encode(command["prompt"], "prompt", special=True)
        else:
            raise RequestError("There is no prompt: give messages, prompt or prompt_token_ids.", param="prompt")
        if not ids:
            raise RequestError("The prompt is empty; it must have at least one token.", param="prompt")
        return ids

    def _given_ids(self, ids: Any) -> list[int]:
        if not isinstance(ids, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in ids):
            raise RequestError("prompt must be text or a list of token ids (whole numbers).", param="prompt")
        self._check_known(ids, "prompt")
        return list(ids)

    def _check_known(self, ids: Sequence[int], param: str) -> None:
        for token_id in ids:
            if not 0 <= token_id < self._vocab_size:
                raise RequestError(
                    f"{param} holds the token id {shown(token_id)}; ids go from 0 to {self._vocab_size - 1}.",
                    param=param,
                )

    def _encode(self, text: str, param: str, *, special: bool) -> list[int]:
        check_text(text, param)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special).ids
        return ids

    def _render(self, messages: Any) -> str:
        """The prompt that the model's chat template makes of these messages."""
        if self._template is None:
            raise RequestError(
                "This model has no chat template, so it has no chat; use /v1/completions with a prompt.",
                param="messages",
            )
        _check_messages(messages)
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._special_tokens)
        except jinja2.TemplateError as error:
            said = str(error).encode(errors="replace").decode()  # it may hold what no check has seen
            if any(message["content"] and message["content"] in said for message in messages):
                said = "it quotes them, which is not for everybody to read."  # a refusal is a public event
            raise RequestError(
                f"The model's chat template refuses these messages: {brief(said)}", param="messages"
            ) from None
        except Exception:  # a template is a program, and can fail like one
            raise RequestError("The model's chat template cannot render these messages.", param="messages") from None


def check_text(text: str, param: str) -> None:
    """Refuse text that is not Unicode text."""
    if "\0" in text:
        raise RequestError(f"{param} holds a null character (U+0000); remove it.", param=param)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{param} holds half of a surrogate pair; it is not valid Unicode.", param=param) from None


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages must be a list of at least one message.", param="messages")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise RequestError(f"messages[{i}].role must be one of {', '.join(ROLES)}.", param=f"messages[{i}].role")
        if not isinstance(message.get("content"), str):
            raise RequestError(f"messages[{i}].content must be a string.", param=f"messages[{i}].content")
        check_text(message["content"], f"messages[{i}].content")


def _sampling(command: Mapping[str, Any]) -> Mapping[str, Any]:
    sampling = command.get("sampling")
    if sampling is not None and not isinstance(sampling, dict):
        raise RequestError(f"sampling must be an object, not {shown(sampling)}.", param="sampling")
    return sampling or {}


def _label(command: Mapping[str, Any], name: str) -> str | None:
    """A caller's own word for something. It means nothing here, but it goes into events and must be text for that."""
    label = command.get(name)
    if label is None:
        return None
    if not isinstance(label, str):
        raise RequestError(f"{name} must be a string, not {shown(label)}.", param=name)
    check_text(label, name)
    return label


def _template(source: str) -> jinja2.Template:
    """A chat template with what published ones expect beyond plain Jinja, in a sandbox."""

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    try:
        return environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise LoadError(f"The model's chat template cannot be read (line {error.lineno}): {brief(error)}") from None
