"""SamplingParams and Request: what was asked, and how far it has come.

A Request is owned by the scheduler; nobody else changes it. Its invariant: `num_computed_tokens` is how many
of `token_ids` have their keys and values in the cache, and a step hands the request some tokens so that it
catches up with `num_tokens`. There is no prefill mode; decode is a chunk of one.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import RequestError, shown

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_INTEGER = 2**53 - 1  # what every JSON reader keeps exact


class RequestStatus(enum.Enum):
    """Where a request is; always exactly one of these. A preempted request is waiting again."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(enum.Enum):
    """Why a request ended, in OpenAI's words where they have one."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to pick the next token, and when to stop.

    `temperature` 0 is greedy. `top_k` 0 is off. `min_p` rules out tokens less likely than that share of the likeliest
    one's probability. Nothing stops an answer that has no more than `min_tokens`. `seed` None draws one per request at
    arrival, so that the noise is always a function of (seed, output index) and survives preemption. `max_tokens` None
    means "as long as the context lasts" and is settled at arrival.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @classmethod
    def from_body(cls, body: Mapping[str, Any], *, default_max_tokens: int | None = None) -> SamplingParams:
        """Read the sampling fields of a JSON body; null equals absent.

        Raises RequestError naming the field for anything that is not a finite number of the right type
        within its limits: NaN passes no range check, a bool or a numeric string is not a number.
        """
        max_tokens = _integer(body, "max_tokens", low=1)
        max_completion_tokens = _integer(body, "max_completion_tokens", low=1)
        if max_tokens is None:
            max_tokens = max_completion_tokens
        temperature = _number(body, "temperature", low=0.0, high=2.0)
        top_p = _number(body, "top_p", low=0.0, high=1.0, above=True)
        top_k = _integer(body, "top_k", low=-1)
        min_tokens = _integer(body, "min_tokens", low=0) or 0
        if max_tokens is not None and min_tokens > max_tokens:
            raise RequestError(
                f"min_tokens is {min_tokens}, above max_tokens {max_tokens}; lower the first or raise the second.",
                param="min_tokens",
            )
        return cls(
            temperature=1.0 if temperature is None else temperature,
            top_k=0 if top_k is None or top_k == -1 else top_k,
            top_p=1.0 if top_p is None else top_p,
            min_p=_number(body, "min_p", low=0.0, high=1.0) or 0.0,
            seed=_integer(body, "seed", low=-MAX_INTEGER),
            max_tokens=default_max_tokens if max_tokens is None else max_tokens,
            min_tokens=min_tokens,
            stop=_stop_strings(body),
            stop_token_ids=_token_ids(body, "stop_token_ids"),
            ignore_eos=_boolean(body, "ignore_eos"),
        )


def _number(body: Mapping[str, Any], name: str, *, low: float, high: float, above: bool = False) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    span = f"a number {'above' if above else 'from'} {low:g} {'and at most' if above else 'to'} {high:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RequestError(f"{name} must be {span}, not {shown(value)}.", param=name)
    if not low <= value <= high or not math.isfinite(value) or (above and value == low):
        raise RequestError(f"{name} is {shown(value)}; it must be {span}.", param=name)
    return float(value)


def _integer(body: Mapping[str, Any], name: str, *, low: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(f"{name} must be a whole number, not {shown(value)}.", param=name)
    if not low <= value <= MAX_INTEGER:
        limit = f"at least {low}" if value < low else f"at most {MAX_INTEGER}"
        raise RequestError(f"{name} is {shown(value)}; it must be {limit}.", param=name)
    return value


def _boolean(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, not {shown(value)}.", param=name)
    return value


def _stop_strings(body: Mapping[str, Any]) -> tuple[str, ...]:
    value = body.get("stop")
    if value is None:
        return ()
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(s, str) for s in strings):
        raise RequestError(f"stop must be a string or a list of strings, not {shown(value)}.", param="stop")
    if len(strings) > MAX_STOP_STRINGS:
        raise RequestError(f"stop holds {len(strings)} strings; the limit is {MAX_STOP_STRINGS}.", param="stop")
    for string in strings:
        if not 1 <= len(string) <= MAX_STOP_CHARS:
            raise RequestError(
                f"a stop string has {len(string)} characters; it must have 1 to {MAX_STOP_CHARS}.", param="stop"
            )
    return tuple(strings)


def check_priority(value: object) -> int:
    """A whole number, lower is more urgent; left out is 0. Raises RequestError."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INTEGER:
        raise RequestError(
            f"priority is {shown(value)}; it must be a whole number between -{MAX_INTEGER} and {MAX_INTEGER}; "
            "lower is more urgent.",
            param="priority",
        )
    return value


def _token_ids(body: Mapping[str, Any], name: str) -> tuple[int, ...]:
    value = body.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or any(isinstance(t, bool) or not isinstance(t, int) for t in value):
        raise RequestError(f"{name} must be a list of token ids (whole numbers from 0).", param=name)
    if not all(0 <= token_id <= MAX_INTEGER for token_id in value):
        raise RequestError(f"{name} holds a number that is no token id; ids are whole numbers from 0.", param=name)
    return tuple(value)


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One sequence on its way through the engine.

    Times are microseconds since the engine's start, None until they happen;
    `arrival_us <= scheduled_us <= first_token_us <= last_token_us` always.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    max_tokens: int  # settled: never more than the context leaves room for
    seed: int  # settled: from the caller, or drawn at arrival
    stop_token_ids: frozenset[int]  # settled: the caller's and, unless ignore_eos, the model's
    arrival_us: int
    order: int = 0  # the how-manieth arrival of this engine; set by the scheduler
    label: str | None = None  # the client's own id; never used as a key
    parent: str | None = None
    owner: str | None = None
    priority: int = 0
    request_class: str | None = None

    status: RequestStatus = RequestStatus.WAITING
    token_ids: list[int] = field(default_factory=list)  # prompt, then output
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  # prompt tokens found in the prefix cache at first admission
    block_table: list[int] = field(default_factory=list)  # physical block ids in logical order
    block_hashes: list[str] = field(default_factory=list)  # one per full block of token_ids so far
    slot: int | None = None

    num_preemptions: int = 0
    num_lost_tokens: int = 0  # computed tokens thrown away by preemptions
    preempted_us: int = 0  # time spent between preemptions and the next schedule
    last_preempted_us: int | None = None
    scheduled_us: int | None = None
    first_token_us: int | None = None
    last_token_us: int | None = None
    finished_us: int | None = None
    gated_us: int = 0  # how long the gate was held during its life
    gated_mark_us: int = 0  # what the gate had been held in all at its arrival
    finish_reason: FinishReason | None = None
    finish_detail: str | None = None

    def __post_init__(self) -> None:
        if not self.token_ids:
            self.token_ids = list(self.prompt_token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - len(self.prompt_token_ids)

    @property
    def may_stop(self) -> bool:
        """Whether its last token may end it; an end token that is the last of `min_tokens` may not."""
        return self.num_output_tokens > self.sampling_params.min_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[len(self.prompt_token_ids) :]
