"""SamplingParams.from_body: every field, every kind of bad value, by name."""

import json

import pytest

from engine.errors import RequestError
from engine.request import MAX_STOP_CHARS, MAX_STOP_STRINGS, Request, RequestStatus, SamplingParams
from tests.engine.harness import Harness

NUMBERS = ("temperature", "top_p")
INTEGERS = ("top_k", "seed", "max_tokens", "max_completion_tokens")
FIELDS = (*NUMBERS, *INTEGERS, "stop", "stop_token_ids", "ignore_eos")
MINUS_ONE_IS_FINE = {"seed", "top_k"}  # any seed; top_k -1 is off, as in vLLM


def refusal(**body) -> RequestError:
    with pytest.raises(RequestError) as caught:
        SamplingParams.from_body(body)
    return caught.value


def test_an_empty_body_gives_the_defaults():
    assert SamplingParams.from_body({}) == SamplingParams()


@pytest.mark.parametrize("field", FIELDS)
def test_null_equals_absent(field):
    """A15, A22."""
    assert SamplingParams.from_body({field: None}) == SamplingParams()


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "-1", '"0.5"', "true", "{}", "1" + "0" * 400])
def test_a_value_that_makes_no_sense_is_refused_by_name(field, value):
    """A15: as it comes out of a JSON body; NaN passes no range check, and a string is no number."""
    fine = {("ignore_eos", "true"), ("stop", '"0.5"')} | {(name, "-1") for name in MINUS_ONE_IS_FINE}
    if (field, value) in fine:
        SamplingParams.from_body({field: json.loads(value)})
        return
    error = refusal(**{field: json.loads(value)})
    assert (error.status, error.param) == (400, field)
    assert error.message.startswith(field)
    assert len(error.message) < 200


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ['"' + "\\ud800" * 50 + '"', '"日本語日本語日本語"', "[" * 900 + "]" * 900])
def test_a_strange_value_is_quoted_short_and_in_plain_characters(field, value):
    """A5, A17: a message is cut between characters and can always be encoded."""
    if field == "stop" and value.startswith('"'):
        return  # any short string will do
    error = refusal(**{field: json.loads(value)})
    assert error.message.isascii()
    assert len(error.message) < 200


@pytest.mark.parametrize("field", NUMBERS)
def test_a_whole_number_is_a_number(field):
    params = SamplingParams.from_body({field: 1})
    assert getattr(params, field) == 1.0
    assert isinstance(getattr(params, field), float)


@pytest.mark.parametrize(("field", "value"), [(name, 1.5) for name in INTEGERS] + [("top_k", 1.0)])
def test_a_fraction_is_no_whole_number(field, value):
    assert refusal(**{field: value}).param == field


@pytest.mark.parametrize(
    ("field", "value"), [("temperature", 2.01), ("top_p", 0), ("top_p", 1.01), ("top_k", -2), ("max_tokens", 0)]
)
def test_a_value_beyond_its_limit_is_refused_with_the_limit(field, value):
    """A10: max_tokens 0 is an error, never one token."""
    error = refusal(**{field: value})
    assert error.param == field
    assert "must be" in error.message


@pytest.mark.parametrize(
    ("field", "value"), [("temperature", 0), ("temperature", 2), ("top_p", 1), ("top_k", 1), ("max_tokens", 1)]
)
def test_a_value_at_its_limit_is_fine(field, value):
    assert getattr(SamplingParams.from_body({field: value}), field) == value


def test_temperature_zero_is_greedy():
    assert SamplingParams.from_body({"temperature": 0}).greedy
    assert not SamplingParams.from_body({}).greedy


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_zero_and_minus_one_are_off(top_k):
    assert SamplingParams.from_body({"top_k": top_k}).top_k == 0


def test_max_completion_tokens_is_max_tokens_by_its_new_name():
    assert SamplingParams.from_body({"max_completion_tokens": 7}).max_tokens == 7


def test_max_completion_tokens_is_checked_beside_max_tokens():
    """K3: what is not used is not ignored either."""
    assert refusal(max_tokens=5, max_completion_tokens="x").param == "max_completion_tokens"


def test_the_default_of_max_tokens_is_the_callers():
    assert SamplingParams.from_body({}, default_max_tokens=16).max_tokens == 16
    assert SamplingParams.from_body({"max_tokens": 3}, default_max_tokens=16).max_tokens == 3


# -- stop strings and tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "stop"), [("a", ("a",)), (["a", "bc"], ("a", "bc")), ([], ())])
def test_stop_is_a_string_or_a_list(value, stop):
    assert SamplingParams.from_body({"stop": value}).stop == stop


@pytest.mark.parametrize("value", ["", [""], [None], ["a", 1], ["x"] * (MAX_STOP_STRINGS + 1), "x" * 257])
def test_a_stop_that_could_not_work_is_refused(value):
    assert refusal(stop=value).param == "stop"


def test_the_longest_and_most_stop_strings_are_fine():
    assert len(SamplingParams.from_body({"stop": ["x" * MAX_STOP_CHARS] * MAX_STOP_STRINGS}).stop) == MAX_STOP_STRINGS


@pytest.mark.parametrize("value", [[True], [-1], ["7"], 7, [1.0], [2**53]])
def test_stop_token_ids_are_whole_numbers(value):
    assert refusal(stop_token_ids=value).param == "stop_token_ids"


# -- Request -----------------------------------------------------------------------------------------------------


def test_a_request_starts_waiting_with_its_prompt_as_its_tokens():
    request = Harness().request("abc")
    assert request.status is RequestStatus.WAITING
    assert request.token_ids == request.prompt_token_ids == [97, 98, 99]
    assert request.token_ids is not request.prompt_token_ids


def test_output_tokens_are_what_comes_after_the_prompt():
    request: Request = Harness().request("abc")
    request.token_ids += [1, 2]
    assert (request.num_prompt_tokens, request.num_tokens, request.num_output_tokens) == (3, 5, 2)
    assert request.output_token_ids == [1, 2]
