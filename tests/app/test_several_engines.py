"""Several engines in one app: each prompt, action and page is about the one that it names."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.app.fakes import FakeEngine, Running, until
from tests.app.test_api import Later


@pytest.fixture
def both(server: Running, engine: FakeEngine) -> Iterator[tuple[FakeEngine, FakeEngine]]:
    """`main`, and `other`, which dialled in after it."""
    other = FakeEngine(server, "other").dial().greet()
    until(lambda: (record := server.hub.engines.get("other")) and record.state)
    yield engine, other
    other.hang_up()


def test_a_prompt_goes_to_the_engine_that_the_form_names(
    both: tuple[FakeEngine, FakeEngine], client: httpx.Client
) -> None:
    fields = {"prompt": "Hi", "engine": "other"}
    call = Later(lambda: client.post("/prompts", data=fields, headers={"HX-Request": "true"}))
    both[1].answer()
    assert call.response().status_code == 200


def test_a_prompt_that_names_no_engine_is_told_which_there_are(
    both: tuple[FakeEngine, FakeEngine], client: httpx.Client
) -> None:
    response = client.post("/prompts", data={"prompt": "Hi"}, headers={"HX-Request": "true"})
    assert response.status_code == 422
    assert "several engines (main, other)" in response.text


def test_openais_routes_take_the_engine_from_the_query(
    both: tuple[FakeEngine, FakeEngine], client: httpx.Client
) -> None:
    body = {"model": "default", "prompt": "Hi"}
    call = Later(lambda: client.post("/v1/completions?engine=other", json=body))
    both[1].answer("Hello")
    assert call.response().json()["choices"][0]["text"] == "Hello"
    assert client.get("/v1/models?engine=main").status_code == 200


def test_without_scripts_the_page_of_an_engine_is_had_from_a_form(
    both: tuple[FakeEngine, FakeEngine], client: httpx.Client
) -> None:
    page = client.get("/?engine=other").text
    assert '<option value="other" selected>other · scripted · ready</option>' in page
    assert 'name="engine" value="other"' in page
    assert 'action="/gate?engine=other"' in page


def test_moving_the_gate_comes_back_to_the_page_of_its_engine(
    both: tuple[FakeEngine, FakeEngine], client: httpx.Client
) -> None:
    call = Later(lambda: client.post("/gate?engine=other", data={"action": "pause"}))
    both[1].reply(both[1].command("gate"))
    assert call.response().headers["location"] == "/?engine=other"


def test_an_engine_that_is_not_there_is_not_replaced_by_another(
    both: tuple[FakeEngine, FakeEngine], client: httpx.Client
) -> None:
    page = client.get("/?engine=third").text
    assert "no model yet" in page
    assert 'data-engine="third"' in page


def test_one_engine_alone_has_no_picker(engine: FakeEngine, client: httpx.Client) -> None:
    assert '<form id="engines" class="engines" method="get" action="/" hidden>' in client.get("/").text
