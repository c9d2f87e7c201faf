"""Two engines in one app: the page shows the one that is chosen, and speaks to it alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.fakes import FakeEngine, Running, row, running, until
from tests.app.processes import ROOT
from tests.browser.actions import send, settle, wait_for
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser


@contextmanager
def scripted(server: Running, name: str, *flags: str) -> Iterator[None]:
    """An engine process that dials the app."""
    command = [sys.executable, "-m", "engine", "--app", f"{server.ws}/ws/engine", "--name", name, "--model", "scripted"]
    process = subprocess.Popen(
        [*command, "--scripted-step-ms", "4", "--num-blocks", "320", *flags],
        cwd=ROOT,
        env=os.environ | {"STEPSCOPE_ENGINE_TOKEN": server.hub.settings.engine_token},
        stdin=subprocess.PIPE,
    )
    try:
        until(lambda: (record := server.hub.engines.get(name)) and record.state, f"the hello of {name}")
        yield
    finally:
        process.kill()
        process.wait(10)


@pytest.fixture(scope="module")
def two() -> Iterator[Running]:
    """An app with the engines `first` and `second`, of different sizes."""
    with running() as server, scripted(server, "first"), scripted(server, "second", "--max-num-seqs", "2"):
        yield server


def pick(page: Page, name: str) -> None:
    page.select_option("#engines select", name)
    wait_for(page, f"stepscope.engine() === '{name}'")


def config(server: Running, name: str) -> dict[str, Any]:
    state = server.hub.engines[name].state
    assert state is not None
    return state


def test_everything_on_the_page_is_of_the_engine_that_is_chosen(open_page: OpenPage, two: Running) -> None:
    page = open_page(two.url)
    assert page.evaluate("stepscope.engine()") == "first"
    expect(page.locator("#engines option")).to_have_text(["first · scripted · ready", "second · scripted · ready"])
    pick(page, "second")
    [request] = send(page, "For the second one", max_tokens=5)
    settle(page)
    assert request in config(two, "second")["requests"]
    assert request not in config(two, "first")["requests"]
    expect(page.locator("[data-part=running-of]")).to_have_text("of 2 slots")
    expect(page.locator("#compare-open")).to_have_attribute("href", "/compare?engine=second")

    page.click("#gate [value=pause]")
    wait_for(page, "stepscope.state().gate.state === 'paused'")
    assert config(two, "first")["gate"]["state"] != "paused"
    page.click("#gate [value=run]")
    wait_for(page, "stepscope.state().gate.state !== 'paused'")
    with page.expect_download() as download:
        page.keyboard.press("e")
    assert "second" in download.value.suggested_filename

    pick(page, "first")
    expect(page.locator(f"[data-request={request}] .progress")).to_contain_text("on second: ")
    page.click(f"[data-request={request}] [data-select]")  # its card leads to its engine
    wait_for(page, "stepscope.engine() === 'second'")
    assert page.evaluate("stepscope.choice()") == {"kind": "request", "id": request}


def test_a_card_of_another_engine_leads_to_where_its_request_ended(open_page: OpenPage, two: Running) -> None:
    page = open_page(two.url)
    pick(page, "second")
    [early] = send(page, "For the second one", max_tokens=3)
    send(page, "Long after it", max_tokens=200)
    settle(page)
    pick(page, "first")
    page.click(f"[data-request={early}] [data-select]")
    wait_for(page, "stepscope.engine() === 'second'")
    end = f"stepscope.lanes().find(({{ id }}) => id === '{early}').end.at"
    wait_for(page, f"stepscope.moment().column === {end} - 1")
    assert page.evaluate("stepscope.lit().any")


def test_the_choice_is_in_the_address_and_opens_again(open_page: OpenPage, two: Running) -> None:
    page = open_page(two.url)
    page.locator("#engines select").focus()
    page.keyboard.press("ArrowDown")  # by the keyboard alone
    wait_for(page, "location.hash === '#engine=second'")
    page.reload()
    wait_for(page, "window.stepscope && stepscope.engine() === 'second' && stepscope.state() !== null")
    page.evaluate("location.hash = '#engine=first'")
    wait_for(page, "stepscope.engine() === 'first'")


def test_engines_that_come_and_go_leave_the_choice_alone(open_page: OpenPage) -> None:
    with running() as server:
        main = FakeEngine(server).dial().greet()
        page = open_page(server.url)
        expect(page.locator("#engines")).to_be_hidden()
        other = FakeEngine(server, "other").dial().greet()
        expect(page.locator("#engines")).to_be_visible()
        assert page.evaluate("stepscope.engine()") == "main"
        pick(page, "other")
        other.arrived("R7")
        other.admitted("R7")
        other.step(1, row("R7", scheduled=8, computed=8), tables=[["R7", [0]]])
        wait_for(page, "stepscope.state().step === 1")
        other.hang_up()
        expect(page.locator("#engines option[value=other]")).to_have_text("other · scripted · gone")
        FakeEngine(server, "third").dial().greet()
        expect(page.locator("#engines option")).to_have_count(3)
        assert page.evaluate("[stepscope.engine(), stepscope.state().step]") == ["other", 1]
        main.hang_up()


def test_an_engine_that_is_not_there_yet_is_waited_for(open_page: OpenPage) -> None:
    with running() as server:
        main = FakeEngine(server).dial().greet()
        page = open_page(f"{server.url}/#engine=late", ready=False)
        expect(page.locator("#banner strong")).to_have_text("Engine late is not connected.")
        expect(page.locator("#engines option[value=late]")).to_have_text("late · not connected")
        pick(page, "main")
        wait_for(page, "location.hash === '#engine=main'")  # and it stays, though the address named another one
        page.evaluate("location.hash = '#engine=late'")
        wait_for(page, "stepscope.engine() === null")
        late = FakeEngine(server, "late").dial().greet()
        wait_for(page, "stepscope.engine() === 'late' && stepscope.state() !== null")
        for engine in (main, late):
            engine.hang_up()


def test_a_prompt_goes_to_the_engine_on_show_also_where_the_page_was_written_for_another(
    open_page: OpenPage, two: Running
) -> None:
    page = open_page(two.url)
    page.evaluate("document.querySelector('#prompt-form [name=engine]').value = 'of a server that is gone'")
    [request] = send(page, "For the one on show", max_tokens=2)
    assert two.hub.ledger.entries[request].engine == page.evaluate("stepscope.engine()")


def test_without_a_name_the_server_is_not_asked_for_an_engine_of_no_name(still: Page) -> None:
    script = """async () => {
      const { withQuery } = await import("/static/js/query.js");
      return [withQuery("/a", { engine: "" }), withQuery("/a", { engine: "x&y", since: 0, until: undefined })];
    }"""
    assert still.evaluate(script) == ["/a", "/a?engine=x%26y&since=0"]


def test_the_reset_of_a_stage_takes_the_answers_of_its_engine_alone(open_page: OpenPage, two: Running) -> None:
    page = open_page(two.url)
    [kept] = send(page, "For the first", max_tokens=2)
    pick(page, "second")
    [gone] = send(page, "For the second", max_tokens=2)
    pick(page, "first")
    page.evaluate(
        """() => fetch("/api/engine?engine=second", {method: "POST", body: '{"action": "reset", "force": true}',
             headers: {"Content-Type": "application/json"}})"""
    )
    expect(page.locator("#note")).to_have_text("The stage of second was reset.")
    expect(page.locator(f"[data-request={gone}]")).to_have_count(0)
    expect(page.locator(f"[data-request={kept}]")).to_have_count(1)


def test_a_reset_is_one_of_a_life_that_was_known(still: Page) -> None:
    script = """async () => {
      const { createResets } = await import("/static/js/resets.js");
      const engine = { epoch: "a", history: { resets: null } };
      const among = createResets();
      const now = (epoch, resets) => (Object.assign(engine, { epoch, history: { resets } }), among([engine]).length);
      return [now("a", null), now("a", 3), now("a", 3), now("a", 4), now("b", 0), now("b", 1)];
    }"""
    assert still.evaluate(script) == [0, 0, 0, 1, 0, 1]


def test_a_past_step_of_one_engine_is_asked_for_while_another_is_read_or_could_not_help(still: Page) -> None:
    script = """async () => {
      const { createTravel } = await import("/static/js/travel.js");
      const { createHistory } = await import("/static/js/history.js");
      await import("/static/js/recording.js"); // else which of two comes first is the browser's affair
      const [a, b] = ["a", "b"].map((id) => ({ id, epoch: "e", state: null, history: createHistory() }));
      const visited = [];
      const visit = (column) => (visited.push(store.engine.id + column), false);
      const store = { engine: a, held: {}, hold() {}, visit };
      const axis = { hold() {}, reveal() {} };
      const travel = createTravel({ store, axis, selection: {}, plot: () => ({}), loop: { invalidateNow() {} } });
      const fetched = window.fetch;
      const asked = [];
      const refuse = [];
      window.fetch = (url) => (asked.push(url), new Promise((_, no) => refuse.push(no)));
      const turn = () => new Promise((go) => setTimeout(go));
      const open = async (n) => { while (refuse.length < n) await turn(); };
      const end = async () => (refuse.shift()(new Error("gone")), await turn());
      travel.goTo(1);
      store.engine = b;
      travel.goTo(2); // while the first is being read
      await open(2);
      await end();
      await end();
      travel.goTo(3); // not asked again so soon
      store.engine = a;
      travel.goTo(4); // but of this one nothing was missed yet
      await open(1);
      window.fetch = fetched;
      document.getElementById("note").hidden = true;
      return [asked.map((url) => url.split("=")[1]), visited];
    }"""
    asked, visited = still.evaluate(script)
    assert asked == ["a", "b", "a"]
    assert visited == ["a1", "b2", "b2", "b3", "b3", "a4"]
