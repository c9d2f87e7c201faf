"""The pages without script and the forms' actions, as a browser and as htmx send them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.app.fakes import FakeEngine, Running, until
from tests.app.test_api import Later

HTMX = {"HX-Request": "true"}
BROWSER = {"Accept": "text/html,application/xhtml+xml"}


def send(client: httpx.Client, data: dict[str, Any], **headers: str) -> Later:
    return Later(lambda: client.post("/prompts", data=data, headers=headers))


# -- pages -----------------------------------------------------------------------------------------------------


def test_the_page_is_complete_before_any_script(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    call = send(client, {"prompt": "What is a <b>page</b>?"})
    engine.answer("A piece of <paper>")
    call.response()
    page = client.get("/").text
    assert "scripted" in page
    assert "What is a &lt;b&gt;page&lt;/b&gt;?" in page
    assert "A piece of &lt;paper&gt;" in page
    assert "<b>page</b>?" not in page


def test_the_page_is_there_without_any_engine(client: httpx.Client) -> None:
    assert client.get("/").status_code == 200


def test_two_engines_can_be_compared(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    assert "<option>main</option>" not in client.get("/compare").text
    other = FakeEngine(server, "other").dial().greet()
    page = until(lambda: "<option>other</option>" in (page := client.get("/compare").text) and page)
    assert page.count("<option>main</option>") == 2
    other.hang_up()


def test_another_visitor_sees_no_text(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    call = send(client, {"prompt": "private question"})
    engine.answer("private answer")
    call.response()
    assert "private" not in httpx.get(f"{server.url}/").text
    assert "private" not in httpx.get(f"{server.url}/requests/R1").text


def test_a_requests_page_looks_again_until_it_has_ended(engine: FakeEngine, client: httpx.Client) -> None:
    call = send(client, {"prompt": "question"})
    command = engine.command("submit")
    engine.arrived(command["request"], owner=command["owner"])
    place = call.response().headers["location"]
    live = client.get(place)
    assert int(live.headers["refresh"]) >= 1
    engine.text(command["request"], 0, "the answer")
    engine.finished(command["request"])
    ended = until(lambda: "refresh" not in (page := client.get(place)).headers and page)
    assert "the answer" in ended.text


def test_static_files_are_compressed_and_asked_about_each_time(client: httpx.Client) -> None:
    response = client.get("/static/vendor/htmx.min.js")
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["cache-control"] == "no-cache"
    again = client.get("/static/vendor/htmx.min.js", headers={"If-None-Match": response.headers["etag"]})
    assert again.status_code == 304


def test_an_unknown_page_is_a_page(client: httpx.Client) -> None:
    response = client.get("/requests/R99", headers=BROWSER)
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")


# -- prompts ---------------------------------------------------------------------------------------------------


def test_without_script_a_prompt_leads_to_its_page(engine: FakeEngine, client: httpx.Client) -> None:
    call = send(client, {"prompt": "hello"})
    engine.answer()
    response = call.response()
    assert (response.status_code, response.headers["location"]) == (303, "/requests/R1")


def test_with_htmx_a_prompt_answers_with_its_partial(engine: FakeEngine, client: httpx.Client) -> None:
    call = send(client, {"prompt": "hello <i>"}, **HTMX)
    engine.answer()
    response = call.response()
    assert response.status_code == 200
    assert 'data-request="R1"' in response.text
    assert "hello &lt;i&gt;" in response.text


def test_form_fields_become_sampling_parameters(engine: FakeEngine, client: httpx.Client) -> None:
    fields = {
        "prompt": "x",
        "system": "Be brief.",
        "max_tokens": "7",
        "temperature": "0.5",
        "top_k": " 3 ",
        "seed": "1",
    }
    call = send(client, {**fields, "top_p": "", "stop": "one\r\ntwo\r\n"})
    command = engine.answer()
    call.response()
    assert command["sampling"] == {"max_tokens": 7, "temperature": 0.5, "top_k": 3, "seed": 1, "stop": ["one", "two"]}
    assert command["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]


def test_copies_are_as_many_requests(engine: FakeEngine, client: httpx.Client) -> None:
    call = send(client, {"prompt": "same", "copies": "3"}, **HTMX)
    commands = [engine.command("submit") for _ in range(3)]
    for command in commands:
        engine.arrived(command["request"], owner=command["owner"])
    assert {command["messages"][0]["content"] for command in commands} == {"same"}
    assert call.response().text.count("data-request=") == 3


@pytest.mark.parametrize(("burst", "count"), [("on", 8), ("3", 3)])
def test_a_burst_sends_different_examples(engine: FakeEngine, client: httpx.Client, burst: str, count: int) -> None:
    call = send(client, {"prompt": "", "burst": burst})
    commands = [engine.command("submit") for _ in range(count)]
    for command in commands:
        engine.arrived(command["request"], owner=command["owner"])
    assert len({command["messages"][0]["content"] for command in commands}) == count
    assert call.response().headers["location"] == "/"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": " \n"}, "prompt"), ({"prompt": "a\x00"}, "prompt"),
        ({"prompt": "x", "max_tokens": "0"}, "max_tokens"), ({"prompt": "x", "max_tokens": "1.5"}, "max_tokens"),
        ({"prompt": "x", "temperature": "nan"}, "temperature"), ({"prompt": "x", "temperature": "hot"}, "temperature"),
        ({"prompt": "x", "top_p": "inf"}, "top_p"), ({"prompt": "x", "top_k": "-5"}, "top_k"),
        ({"prompt": "x", "copies": "17"}, "copies"), ({"prompt": "x", "copies": "-1"}, "copies"),
        ({"burst": "99"}, "burst"), ({"prompt": "x", "seed": "9" * 40}, "seed"),
        ({"prompt": "x", "stop": "y" * 300}, "stop"),
    ],
)  # fmt: skip
def test_a_bad_field_is_422_for_htmx_and_400_for_a_browser(
    engine: FakeEngine, client: httpx.Client, fields: dict[str, str], param: str
) -> None:
    partial = client.post("/prompts", data=fields, headers=HTMX)
    assert partial.status_code == 422
    assert param in partial.text
    page = client.post("/prompts", data=fields, headers=BROWSER)
    assert page.status_code == 400
    assert page.headers["content-type"].startswith("text/html")


def test_a_full_queue_is_429_in_both(engine: FakeEngine, client: httpx.Client) -> None:
    for headers in (HTMX, BROWSER):
        call = send(client, {"prompt": "x"}, **headers)
        engine.rejected(engine.command("submit")["request"], 429, "The queue is full.")
        response = call.response()
        assert response.status_code == 429
        assert "The queue is full." in response.text


def test_without_an_engine_it_is_503_in_both(client: httpx.Client) -> None:
    assert client.post("/prompts", data={"prompt": "x"}, headers=HTMX).status_code == 503
    assert client.post("/prompts", data={"prompt": "x"}, headers=BROWSER).status_code == 503


def test_some_of_many_may_be_refused(engine: FakeEngine, client: httpx.Client) -> None:
    call = send(client, {"prompt": "x", "copies": "2"}, **HTMX)
    first, second = engine.command("submit"), engine.command("submit")
    engine.arrived(first["request"], owner=first["owner"])
    engine.rejected(second["request"], 429, "The queue is full.")
    response = call.response()
    assert response.status_code == 200
    assert response.text.count("data-request=") == 1
    assert "The queue is full." in response.text


@pytest.mark.parametrize("chunked", [False, True])
def test_a_prompt_that_is_too_large_is_refused_in_words(
    engine: FakeEngine, client: httpx.Client, chunked: bool
) -> None:
    body = b"prompt=" + b"a" * 2_000_000
    for headers in (HTMX, BROWSER):
        form = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        response = client.post("/prompts", content=iter([body]) if chunked else body, headers=form)
        assert response.status_code == 413
        assert response.headers["content-type"].startswith("text/html")
        assert "larger than the limit" in response.text


@pytest.mark.parametrize("charset", ["undefined", "no-such", "utf-16", "unicode_escape"])
def test_a_form_in_an_odd_encoding_breaks_nothing(engine: FakeEngine, client: httpx.Client, charset: str) -> None:
    part = b'--B\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n\r\n--B--\r\n'
    headers = {"Content-Type": f"multipart/form-data; boundary=B; charset={charset}"}
    assert client.post("/prompts", content=part, headers=headers).status_code == 400


def test_a_form_with_too_many_fields_is_refused_in_words(engine: FakeEngine, client: httpx.Client) -> None:
    response = client.post("/prompts", data={f"f{n}": "x" for n in range(100)}, headers=HTMX)
    assert response.status_code == 422
    assert response.text.strip().startswith("Too many fields")


def test_a_file_in_the_form_is_refused(engine: FakeEngine, client: httpx.Client) -> None:
    assert client.post("/prompts", files={"prompt": ("a.txt", b"x")}).status_code == 400


# -- conversations ---------------------------------------------------------------------------------------------


def conversation_of(text: str) -> str:
    return text.partition('data-conversation="')[2].partition('"')[0]


def ask(engine: FakeEngine, client: httpx.Client, answer: str, **fields: str) -> tuple[dict[str, Any], str]:
    call = send(client, fields, **HTMX)
    command = engine.answer(answer)
    text = call.response().text
    until(lambda: client.get(f"/api/requests/{command['request']}").json()["status"] == "finished")
    return command, text


def test_a_conversation_goes_on_with_what_was_said(engine: FakeEngine, client: httpx.Client) -> None:
    _, text = ask(engine, client, "It is Paris", prompt="Capital of France?", system="Be brief.")
    command, _ = ask(engine, client, "Two million", prompt="How big is it?", conversation=conversation_of(text))
    assert [(message["role"], message["content"]) for message in command["messages"]] == [
        ("system", "Be brief."),
        ("user", "Capital of France?"),
        ("assistant", "It is Paris"),
        ("user", "How big is it?"),
    ]


def test_a_conversation_waits_for_its_answer(engine: FakeEngine, client: httpx.Client) -> None:
    call = send(client, {"prompt": "one"}, **HTMX)
    command = engine.command("submit")
    engine.arrived(command["request"], owner=command["owner"])
    conversation = conversation_of(call.response().text)
    response = client.post("/prompts", data={"prompt": "two", "conversation": conversation}, headers=HTMX)
    assert response.status_code == 409


def test_a_refused_question_was_never_asked(engine: FakeEngine, client: httpx.Client) -> None:
    _, text = ask(engine, client, "one", prompt="first")
    conversation = conversation_of(text)
    call = send(client, {"prompt": "refused", "conversation": conversation}, **HTMX)
    engine.rejected(engine.command("submit")["request"], 429, "The queue is full.")
    call.response()
    command, _ = ask(engine, client, "two", prompt="second", conversation=conversation)
    assert [message["content"] for message in command["messages"]] == ["first", "one", "second"]


def test_nobody_goes_on_with_somebody_elses_conversation(
    server: Running, engine: FakeEngine, client: httpx.Client
) -> None:
    _, text = ask(engine, client, "one", prompt="first")
    data = {"prompt": "second", "conversation": conversation_of(text)}
    assert httpx.post(f"{server.url}/prompts", data=data, headers=HTMX).status_code == 422


# -- actions without script ------------------------------------------------------------------------------------


def test_the_abort_form_goes_back_to_the_request(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    engine.arrived("R1")
    until(lambda: "R1" in server.hub.ledger.entries)
    response = client.post("/requests/R1/abort")
    assert (response.status_code, response.headers["location"]) == (303, "/requests/R1")
    assert engine.command("abort")["request"] == "R1"


def test_the_gate_form_goes_back_to_the_page(engine: FakeEngine, client: httpx.Client) -> None:
    call = Later(lambda: client.post("/gate", data={"action": "step", "steps": "2"}))
    command = engine.command("gate")
    engine.reply(command)
    assert command["steps"] == 2
    assert call.response().headers["location"] == "/"


def test_a_bad_gate_form_says_why(engine: FakeEngine, client: httpx.Client) -> None:
    assert client.post("/gate", data={"action": "fly"}, headers=BROWSER).status_code == 400


@pytest.mark.parametrize("path", ["/", "/api/state", "/metrics"])
def test_pages_and_json_are_compressed(engine: FakeEngine, client: httpx.Client, path: str) -> None:
    response = client.get(path)
    assert response.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in response.headers["vary"]


def test_a_recording_is_not_compressed_twice(engine: FakeEngine, client: httpx.Client) -> None:
    assert "content-encoding" not in client.get("/api/recording").headers


def test_a_browser_that_looks_for_an_icon_of_its_own_accord_finds_the_pages(server: Running) -> None:
    answer = httpx.get(f"{server.url}/favicon.ico", follow_redirects=True)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("image/svg+xml")
