"""The door: what becomes a request, what is refused, and what the refusal says."""

import json
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import LoadError, RequestError
from engine.frontend import Frontend
from engine.request import Request
from engine.scripted import CHAT_TEMPLATE, EOS, VOCAB_SIZE, byte_tokenizer, scripted_facts

HELLO = [{"role": "user", "content": "Hello"}]


def frontend(
    *,
    template: str | None = CHAT_TEMPLATE,
    special: dict[str, str] | None = None,
    eos: frozenset[int] = frozenset({EOS}),
    **config: Any,
) -> Frontend:
    defaults: dict[str, Any] = {"num_blocks": 32, "max_model_len": 256}
    facts = scripted_facts(EngineConfig(model="scripted", **(defaults | config)))
    return Frontend(facts.config, facts.model, byte_tokenizer(), template, special or {}, eos)


def accept(door: Frontend | None = None, arrival_us: int = 0, **command: Any) -> Request:
    return (door or frontend()).make_request({"request": "r1"} | command, arrival_us)


def refuse(door: Frontend | None = None, **command: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        accept(door, **command)
    return caught.value


# -- what a prompt may be ----------------------------------------------------------------------------------------


def test_text_is_tokenised():
    assert accept(prompt="abc").prompt_token_ids == [97, 98, 99]


def test_token_ids_are_taken_as_they_are():
    assert accept(prompt_token_ids=[1, 2, 256]).prompt_token_ids == [1, 2, 256]


def test_messages_are_put_into_the_models_own_template():
    request = accept(messages=[{"role": "system", "content": "Be brief."}, *HELLO])
    assert bytes(request.prompt_token_ids) == b"<system>Be brief.\n<user>Hello\n<assistant>"


def test_special_tokens_are_known_to_the_template():
    door = frontend(template="{{ bos_token }}{{ messages[0].content }}", special={"bos_token": "^"})
    assert bytes(accept(door, messages=HELLO).prompt_token_ids) == b"^Hello"


def test_a_space_is_a_prompt():
    """A14: " " has a token; only what has none is refused."""
    assert accept(prompt=" ").prompt_token_ids == [32]


def test_a_conversation_keeps_its_turns_in_order():
    turns = [{"role": role, "content": role[0]} for role in ("user", "assistant", "user")]
    assert b"<user>u\n<assistant>a\n<user>u\n" in bytes(accept(messages=turns).prompt_token_ids)


# -- what it may not be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [{"prompt": ""}, {"prompt_token_ids": []}, {}, {"prompt": None}])
def test_an_empty_or_missing_prompt_is_refused(command):
    """A14."""
    error = refuse(**command)
    assert (error.status, error.param) == (400, "prompt")


@pytest.mark.parametrize("prompt", [7, ["a"], [""], {"text": "a"}, True])
def test_a_prompt_of_another_kind_is_refused(prompt):
    assert refuse(prompt=prompt).param == "prompt"


@pytest.mark.parametrize("ids", [[-1], [VOCAB_SIZE], [1.5], ["a"], [True], [None], "abc", [10**400], 7])
def test_token_ids_the_model_does_not_have_are_refused(ids):
    """K3: no assert on request data may end the loop."""
    error = refuse(prompt_token_ids=ids)
    assert error.param == "prompt"
    assert len(error.message) < 200


@pytest.mark.parametrize(("text", "word"), [("a\ud800b", "surrogate"), ("a\0b", "null")])
@pytest.mark.parametrize("as_messages", [False, True])
def test_text_that_is_no_text_is_refused(text, word, as_messages):
    """A17: before anything starts, and in words that can be encoded."""
    command = {"messages": [{"role": "user", "content": text}]} if as_messages else {"prompt": text}
    error = refuse(**command)
    assert word in error.message
    assert error.message.encode()


@pytest.mark.parametrize("role", ["wizard", "", None, 7, ["user"], {}])
def test_an_unknown_role_is_refused_by_its_place(role):
    error = refuse(messages=[*HELLO, {"role": role, "content": "x"}])
    assert (error.status, error.param) == (400, "messages[1].role")


@pytest.mark.parametrize("content", [None, 7, {}, ["x"]])
def test_content_that_is_no_text_is_refused_by_its_place(content):
    assert refuse(messages=[{"role": "user", "content": content}]).param == "messages[0].content"


@pytest.mark.parametrize("messages", [[], "hello", {}, 7, ["hello"], [None]])
def test_messages_that_are_no_list_of_messages_are_refused(messages):
    assert refuse(messages=messages).param.startswith("messages")


# -- the template ------------------------------------------------------------------------------------------------


def test_a_templates_own_refusal_is_one_readable_sentence():
    """A21."""
    door = frontend(template="{{ raise_exception('Roles must alternate.') }}")
    error = refuse(door, messages=HELLO)
    assert (error.status, error.param) == (400, "messages")
    assert "Roles must alternate." in error.message
    assert "\n" not in error.message


def test_a_templates_refusal_can_always_be_encoded():
    """A17: it may quote a part of the messages that nobody has looked at."""
    door = frontend(template="{{ raise_exception(messages[0].name) }}")
    assert refuse(door, messages=[HELLO[0] | {"name": "\ud800"}]).message.encode()


@pytest.mark.parametrize(
    "template", ["{{ messages[0].content.nothing.more }}", "{{ 1 // 0 }}", "{{ messages[0].content + 1 }}"]
)
def test_a_template_that_fails_on_these_messages_refuses_them(template):
    """A21: and says nothing of its insides."""
    error = refuse(frontend(template=template), messages=HELLO)
    assert (error.status, error.param) == (400, "messages")
    assert "Error" not in error.message


def test_a_template_cannot_reach_out_of_its_sandbox():
    assert refuse(frontend(template="{{ messages.__class__.__mro__ }}"), messages=HELLO).param == "messages"


def test_without_a_template_there_is_no_chat_and_the_refusal_names_the_way_out():
    """A21."""
    error = refuse(frontend(template=None), messages=HELLO)
    assert error.status == 400
    assert "/v1/completions" in error.message


def test_a_template_may_leave_a_loop_and_ask_for_the_date():
    """What published templates use beyond plain Jinja."""
    template = "{% for m in messages %}{{ m.content }}{% break %}{% endfor %}{{ strftime_now('') }}"
    assert bytes(accept(frontend(template=template), messages=HELLO * 2).prompt_token_ids) == b"Hello"


def test_a_template_may_write_json_as_it_is():
    template = "{{ messages[0] | tojson }}"
    messages = [{"role": "user", "content": "<é>"}]
    rendered = bytes(accept(frontend(template=template), messages=messages).prompt_token_ids).decode()
    assert json.loads(rendered) == messages[0]
    assert "<é>" in rendered


def test_a_template_that_is_no_template_stops_the_start_with_a_sentence():
    with pytest.raises(LoadError, match="chat template"):
        frontend(template="{% for %}")


# -- lengths -----------------------------------------------------------------------------------------------------


def test_a_prompt_one_below_the_context_is_answered_with_one_token():
    """A12."""
    assert accept(prompt="x" * 255).max_tokens == 1


@pytest.mark.parametrize("length", [256, 257])
def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(length):
    """A12."""
    error = refuse(prompt="x" * length)
    assert error.status == 400
    assert str(length) in error.message
    assert "255" in error.message


def test_a_prompt_that_can_never_fit_the_pool_is_refused_with_the_capacity():
    """A13: 200 tokens, 8 blocks of 16."""
    error = refuse(frontend(num_blocks=8, max_model_len=1024), prompt="x" * 200)
    assert error.status == 400
    assert "200" in error.message
    assert "128" in error.message
    assert "--num-blocks" in error.message


def test_a_prompt_that_just_fits_the_pool_is_taken():
    assert accept(frontend(num_blocks=8, max_model_len=1024), prompt="x" * 128).num_prompt_tokens == 128


def test_the_template_counts_toward_the_length():
    assert refuse(frontend(max_model_len=16), messages=HELLO).status == 400


def test_a_refusal_of_messages_names_messages():
    assert refuse(frontend(max_model_len=16), messages=HELLO).param == "messages"


def test_max_tokens_is_never_more_than_the_context_leaves():
    assert accept(prompt="x" * 250, sampling={"max_tokens": 100}).max_tokens == 6


def test_without_max_tokens_the_context_is_the_limit():
    assert accept(prompt="x" * 6).max_tokens == 250


# -- what else is settled ----------------------------------------------------------------------------------------


def test_bad_sampling_is_refused_by_the_fields_name():
    assert refuse(prompt="x", sampling={"temperature": float("nan")}).param == "temperature"


@pytest.mark.parametrize("sampling", [[], "hot", 7])
def test_sampling_that_is_no_object_is_refused(sampling):
    assert refuse(prompt="x", sampling=sampling or [1]).param == "sampling"


def test_null_sampling_is_none():
    """A22."""
    assert accept(prompt="x", sampling=None).sampling_params.temperature == 1.0


def test_the_models_end_tokens_stop_beside_the_callers():
    """A9."""
    assert accept(prompt="x", sampling={"stop_token_ids": [7]}).stop_token_ids == {7, EOS}


def test_a_stop_token_that_the_model_does_not_have_is_refused():
    """With min_tokens its logit would be looked for."""
    error = refuse(prompt="x", sampling={"stop_token_ids": [7, VOCAB_SIZE]})
    assert error.param == "stop_token_ids"
    assert str(error) == f"stop_token_ids holds the token id {VOCAB_SIZE}; ids go from 0 to {VOCAB_SIZE - 1}."


def test_ignore_eos_leaves_only_the_callers_stop_tokens():
    """A8."""
    sampling = {"stop_token_ids": [7], "ignore_eos": True}
    assert accept(prompt="x", sampling=sampling).stop_token_ids == {7}


@pytest.mark.parametrize(("ignore_eos", "stops"), [(True, set()), (False, {2, 7})])
def test_ignore_eos_is_about_every_end_token_that_the_model_has(ignore_eos, stops):
    """A8."""
    door = frontend(eos=frozenset({2, 7}))
    assert accept(door, prompt="x", sampling={"ignore_eos": ignore_eos}).stop_token_ids == stops


@pytest.mark.parametrize("sampling", [{"temperature": 0.5}, {"top_k": 3, "seed": 1}, {"stop": ["x"]}])
def test_other_sampling_parameters_leave_the_end_tokens_alone(sampling):
    """A9."""
    assert accept(frontend(eos=frozenset({2, 7})), prompt="x", sampling=sampling).stop_token_ids == {2, 7}


def test_a_seed_is_kept_and_a_missing_one_is_drawn():
    door = frontend(seed=1)
    assert accept(door, prompt="x", sampling={"seed": 42}).seed == 42
    assert accept(door, prompt="x").seed != accept(door, prompt="x").seed


def test_drawn_seeds_depend_on_the_engines_seed_alone():
    draws = [[accept(door, prompt="x").seed for _ in range(3)] for door in (frontend(seed=5), frontend(seed=5))]
    assert draws[0] == draws[1] != [accept(frontend(seed=6), prompt="x").seed]


def test_the_arrival_is_stamped_by_the_engine():
    assert accept(arrival_us=123, prompt="x").arrival_us == 123


def test_labels_are_carried_and_mean_nothing():
    request = accept(prompt="x", label="theirs", parent="p", owner="me", request_class="short", priority=3)
    assert (request.request_id, request.label, request.parent) == ("r1", "theirs", "p")
    assert (request.owner, request.request_class, request.priority) == ("me", "short", 3)


@pytest.mark.parametrize("field", ["label", "parent", "owner", "request_class"])
@pytest.mark.parametrize("value", ["\ud800", "a\0", 7, ["x"]])
def test_a_label_that_could_not_be_written_down_is_refused(field, value):
    """A17: it would end up in an event that nobody can encode."""
    assert refuse(prompt="x", **{field: value}).param == field


@pytest.mark.parametrize("priority", ["high", 1.5, True, float("nan"), 10**30])
def test_a_priority_is_a_whole_number(priority):
    assert refuse(prompt="x", priority=priority).param == "priority"


def test_each_request_gets_a_detokenizer_of_its_own():
    door = frontend()
    request = accept(door, prompt="Hi ", sampling={"stop": ["x"]})
    first, second = door.make_detokenizer(request), door.make_detokenizer(request)
    first.feed(0xC4)
    assert second.feed(ord("x")) == ("", True)
