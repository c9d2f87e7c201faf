"""Request bodies: what passes can be served, what does not is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.bodies import chat_submission, completion_submission, label_of, parse_json
from engine.errors import RequestError

USER = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"messages": [USER]}


def refusal(body: Any, *, chat: bool = True) -> RequestError:
    with pytest.raises(RequestError) as refused:
        (chat_submission if chat else completion_submission)(body)
    return refused.value


# -- the body --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[1]", b'"x"', b"null", b"\xff\xfe", b'{"a": ' + b"[" * 100_000, b'{"seed": ' + b"9" * 5000 + b"}"],
)
def test_a_body_that_is_not_a_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(RequestError):
        parse_json(raw)


def test_a_refusal_never_carries_text_that_cannot_be_encoded() -> None:
    body = parse_json(rb'{"messages": [{"role": "user", "content": "x"}], "\ud800": 1}')
    error = refusal(body)
    json.dumps([error.message, error.param], ensure_ascii=False).encode()


# -- sampling --------------------------------------------------------------------------------------------------

FIELDS = ["temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", '"0.5"', "true", "[]", "{}", "1e999"])
def test_a_sampling_value_that_is_no_number_is_refused_by_name(field: str, value: str) -> None:
    """A15: JSON as it comes."""
    body = parse_json(f'{{"messages": [{{"role": "user", "content": "x"}}], "{field}": {value}}}'.encode())
    assert refusal(body).param == field


@pytest.mark.parametrize("field", [*FIELDS, "stop", "stop_token_ids", "ignore_eos", "stream", "model", "n", "tools"])
def test_null_equals_absent(field: str) -> None:
    assert chat_submission({**CHAT, field: None}) == chat_submission(CHAT)


@pytest.mark.parametrize("value", [0, -1])
def test_max_tokens_must_be_at_least_one(value: int) -> None:
    assert refusal({**CHAT, "max_tokens": value}).param == "max_tokens"


def test_completions_default_to_sixteen_tokens_and_chats_to_the_context() -> None:
    assert completion_submission({"prompt": "x"}).sampling == {"max_tokens": 16}
    assert chat_submission(CHAT).sampling == {}


@pytest.mark.parametrize("stop", ["\ud800", ["ok", "\x00"]])
def test_a_stop_string_must_be_text(stop: Any) -> None:
    assert refusal({**CHAT, "stop": stop}).param == "stop"


@pytest.mark.parametrize(
    ("name", "value"),
    [("min_p", float("nan")), ("min_p", 1.1), ("min_p", -0.1), ("min_tokens", -1), ("min_tokens", 1.5)],
)
def test_a_minimum_out_of_its_range_is_refused(name: str, value: Any) -> None:
    """A15: NaN passes no range check."""
    assert refusal({**CHAT, name: value}).param == name


def test_min_tokens_raise_a_default_that_nobody_asked_for() -> None:
    assert completion_submission({"prompt": "x", "min_tokens": 20}).sampling["max_tokens"] == 20


def test_more_tokens_at_least_than_at_most_are_refused() -> None:
    error = refusal({**CHAT, "min_tokens": 9, "max_tokens": 8})
    assert error.message == "min_tokens is 9, above max_tokens 8; lower the first or raise the second."


@pytest.mark.parametrize(("asked", "expected"), [(None, 0), (0, 0), (-3, -3), (2**40, 2**40)])
def test_a_priority_is_passed_on(asked: int | None, expected: int) -> None:
    assert chat_submission({**CHAT, "priority": asked}).priority == expected


@pytest.mark.parametrize("priority", [True, 1.5, "1", [], 2**70])
def test_a_priority_is_a_whole_number(priority: Any) -> None:
    assert refusal({**CHAT, "priority": priority}).param == "priority"


@pytest.mark.parametrize(
    ("asked", "expected"), [(None, None), ("chat", "chat"), ("a\nb" + 200 * "c", "ab" + 126 * "c")]
)
def test_a_class_is_passed_on_as_a_label(asked: str | None, expected: str | None) -> None:
    assert chat_submission({**CHAT, "class": asked}).request_class == expected


@pytest.mark.parametrize("asked", [True, 1, ["chat"], {}])
def test_a_class_is_a_string(asked: Any) -> None:
    assert refusal({**CHAT, "class": asked}).param == "class"


# -- what we do not implement ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 2), ("n", True), ("best_of", 3), ("echo", True), ("suffix", "x"), ("logprobs", True), ("logprobs", 5),
        ("top_logprobs", 2), ("logit_bias", {"1": 5}), ("presence_penalty", 0.5), ("frequency_penalty", float("nan")),
        ("tools", [{}]), ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
    ],
)  # fmt: skip
def test_a_parameter_of_later_is_refused_by_name(name: str, value: Any) -> None:
    """A19 cannot happen: log probabilities are not computed, and asking for them is refused here, so
    none that is infinite can reach a JSON writer. A35 has no logprobs to cancel for the same reason."""
    error = refusal({**CHAT, name: value})
    assert error.param == name
    assert name in error.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 1), ("presence_penalty", 0), ("presence_penalty", 0.0), ("logprobs", False), ("tools", []),
        ("response_format", {"type": "text"}), ("logit_bias", {}), ("echo", False), ("best_of", 1),
        ("top_logprobs", 0), ("user", "me"), ("metadata", {"a": "b"}), ("store", False),
    ],
)  # fmt: skip
def test_a_parameter_that_asks_for_nothing_passes(name: str, value: Any) -> None:
    assert chat_submission({**CHAT, name: value}).content == {"messages": [USER]}


@pytest.mark.parametrize("name", ["frobnicate", "top_kk", "prompt"])
def test_an_unknown_parameter_is_refused_by_name(name: str) -> None:
    assert refusal({**CHAT, name: 1}).param == name


# -- messages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        ([1], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role"),
        ([{"role": ["user"], "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": ""}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([USER, {"role": "user", "content": "\ud800"}], "messages[1].content"),
        ([{"role": "user", "content": "a\x00b"}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": "x", "tool_calls": [{}]}], "messages[0]"),
    ],
)
def test_a_bad_message_is_refused_by_place(messages: Any, param: str) -> None:
    assert refusal({"messages": messages}).param == param


def test_null_members_of_a_message_equal_absent_ones() -> None:
    message = {"role": "assistant", "content": "x", "tool_calls": None, "refusal": None, "annotations": []}
    assert chat_submission({"messages": [message]}).content == {"messages": [{"role": "assistant", "content": "x"}]}


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat_submission({"messages": [{"role": "user", "content": parts}]}).shown_prompt == "ab"


def test_the_developer_role_is_the_system_role() -> None:
    submission = chat_submission({"messages": [{"role": "developer", "content": "x"}]})
    assert submission.content["messages"][0]["role"] == "system"


# -- prompts ---------------------------------------------------------------------------------------------------


BAD_PROMPTS = [None, "", [""], [], [[]], 5, {"a": 1}, [1, "a"], [-1], [1.5], [True], [2**40], "\ud800", "\x00"]
SEVERAL_PROMPTS = [["a", "b"], [[1], [2]]]


@pytest.mark.parametrize("prompt", BAD_PROMPTS + SEVERAL_PROMPTS)
def test_a_bad_prompt_is_refused(prompt: Any) -> None:
    assert refusal({"prompt": prompt}, chat=False).param == "prompt"


@pytest.mark.parametrize(
    ("prompt", "content"),
    [
        ("hi", {"prompt": "hi"}),
        (" ", {"prompt": " "}),
        (["hi"], {"prompt": "hi"}),
        ([1, 2], {"prompt_token_ids": [1, 2]}),
        ([[1, 2]], {"prompt_token_ids": [1, 2]}),
    ],
)
def test_a_prompt_is_a_string_or_token_ids_or_a_list_of_one(prompt: Any, content: Any) -> None:
    assert completion_submission({"prompt": prompt}).content == content


# -- the rest --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, "yes", []])
@pytest.mark.parametrize("field", ["stream", "stepscope"])
def test_a_flag_is_true_or_false(field: str, value: Any) -> None:
    assert refusal({**CHAT, field: value}).param == field


@pytest.mark.parametrize("options", [5, {"include_usage": 1}, {"other": True}])
def test_bad_stream_options_are_refused(options: Any) -> None:
    assert refusal({**CHAT, "stream": True, "stream_options": options}).param == "stream_options"


def test_stream_options_need_a_stream() -> None:
    assert refusal({**CHAT, "stream_options": {"include_usage": True}}).param == "stream_options"


def test_a_label_is_cut_and_cleaned() -> None:
    assert label_of("a\x1bb" + "c" * 500) == "ab" + "c" * 126
    assert label_of("\n") is None
