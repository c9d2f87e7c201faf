"""Time travel: a past step is shown as it was, in bounded memory, while the engine runs on."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import APIResponse, Page, Route, WebSocketRoute, expect

from app.state import fold
from tests.app.processes import Served, serving
from tests.browser.actions import VISIBLE, burst, frames, pause, quiet, run, send, settle, table, wait_for, wait_running
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

SCRUB = """(step) => {
  const line = document.querySelector("#travel [name=moment]");
  line.value = String(step);
  line.dispatchEvent(new Event("input", { bubbles: true }));
}"""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Quick, and with so few blocks that eight answers do not fit."""
    with serving("--scripted-step-ms", "2", "--num-blocks", "60", "--max-num-batched-tokens", "64") as running:
        yield running


def recorded(served: Served) -> list[dict[str, Any]]:
    lines = gzip.decompress(served.client.get("/api/recording").content).decode().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] != "text"]


def states_at(events: list[dict[str, Any]], steps: list[int]) -> dict[int, Any]:
    """The state right after each of these steps, by the Python reducer."""
    found, state = {}, None
    for event in events:
        state = fold(state, event)
        if event["kind"] == "step" and event["step"] in steps:
            found[event["step"]] = copy.deepcopy(state)
    return found


def scrub(page: Page, step: int) -> Any:
    """Go to a step on the line; returns the state that the panels show then."""
    line = "document.querySelector('#travel [name=moment]')"
    wait_for(page, f"{line}.min <= {step} && {step} <= {line}.max && stepscope.moment().step > 0")
    page.evaluate(SCRUB, step)
    wait_for(page, f"stepscope.shown().step === {step}")
    frames(page)
    return page.evaluate("stepscope.shown()")


def press(page: Page, key: str, times: int = 1) -> None:
    """Press a key, and let the page draw."""
    for _ in range(times):
        page.keyboard.press(key)
    frames(page)


def call(page: Page, module: str, expression: str) -> Any:
    return page.evaluate(
        f"""async () => {{ const m = await import("/static/js/{module}.js"); return {expression}; }}"""
    )


# -- what is shown -----------------------------------------------------------------------------------------------


def test_a_past_step_is_shown_exactly_as_a_fold_of_the_recording_has_it(page: Page, served: Served) -> None:
    first = page.evaluate("stepscope.state().step")
    burst(page)
    settle(page)
    burst(page)
    send(page, "On and on", max_tokens=700)
    wait_for(page, f"stepscope.state().step > {first} + 700")
    steps = [first + n for n in (640, 3, 255, 256, 257, 300, 299, 100, 515)]
    before = page.evaluate("stepscope.state().step")
    shown = {step: scrub(page, step) for step in steps}
    assert page.evaluate("stepscope.state().step") > before  # it ran on meanwhile
    assert shown == states_at(recorded(served), steps)
    assert any(state["queues"]["waiting"] for state in shown.values())
    quiet(served)


def test_panels_show_the_moment_and_say_which(page: Page, served: Served) -> None:
    wait_running(page, burst(page)[:1])
    wait_for(page, "stepscope.state().totals.preemptions > 0")
    pause(page, served)
    last = page.evaluate("stepscope.state().step")
    state = scrub(page, last - 60)
    try:
        expect(page.locator("#travel output")).to_have_text(f"step {last - 60:,} · 60 behind")
        expect(page.locator("#live")).to_have_text("HELD · 60 steps behind · go live")
        expect(page.locator(".board .label")).to_have_text(f"step {last - 60:,}")
        expect(page.locator("[data-part=running]")).to_have_text(str(len(state["queues"]["running"])))
        counts = state["blocks"]["counts"]
        expect(page.locator("[data-part=kv-of]")).to_have_text(f"{counts['referenced']}/{counts['total']} blocks")
        expect(page.locator("#panel-timeline .detail")).to_contain_text(f"Step {last - 60:,}: ")
        expect(page.locator("#panel-gate [data-present]")).to_have_text("now")
        assert table(page, "slots")[0]["step"] == f"{last - 60:,}"
        held = {row["block"] for row in table(page, "kv") if row["held by"]}
        owned = {str(block) for request in state["requests"].values() for block in request["block_table"]}
        assert held == owned
        lanes = {row["request"]: row for row in table(page, "timeline")}
        for request in state["queues"]["running"]:
            facts = state["requests"][request]
            assert lanes[request]["output tok"] == f"{facts['num_output_tokens']}/{facts['max_tokens']}"
            assert lanes[request]["end"] == "–"
        press(page, "l")
        expect(page.locator("#travel output")).to_have_text(f"live · step {last:,}")
        expect(page.locator("#panel-gate [data-present]")).to_be_hidden()
    finally:
        run(served)
        quiet(served)


def test_figures_over_a_window_are_those_of_the_window_that_ended_there(page: Page, served: Served) -> None:
    send(page, "First", max_tokens=20)
    settle(page)
    between = page.evaluate("stepscope.state().step")
    before = page.evaluate("stepscope.finished().filter(({ timings }) => !timings.gated_us).length")
    send(page, "Second", max_tokens=20)
    settle(page)
    samples = page.locator("[data-timing=ttft_us] .n")
    expect(samples).to_have_text(str(before + 1))
    scrub(page, between + 5)
    expect(samples).to_have_text(str(before))
    expect(page.locator("[data-part=ttft-n]")).to_have_text(f"n = {before}")


# -- ways to another moment --------------------------------------------------------------------------------------


def test_arrow_keys_step_and_shift_steps_ten(page: Page, served: Served) -> None:
    send(page, "Walk with me", max_tokens=60)
    settle(page)
    last = page.evaluate("stepscope.state().step")
    page.locator("#travel [name=moment]").focus()  # on the line itself, keys do the same
    press(page, "ArrowRight")
    assert page.evaluate("stepscope.moment().step") == last
    press(page, "l")
    press(page, "ArrowLeft")
    assert page.evaluate("stepscope.moment().step") == last - 1  # live is after the newest one
    press(page, "ArrowLeft")
    assert page.evaluate("stepscope.moment().step") == last - 2
    press(page, "Shift+ArrowLeft", 2)
    assert page.evaluate("stepscope.shown().step") == last - 22
    press(page, "Shift+ArrowRight")
    press(page, "ArrowRight")
    assert page.evaluate("stepscope.shown().step") == last - 11
    page.click("#travel [data-walk='-1']")
    assert page.evaluate("stepscope.shown().step") == last - 12


def test_walking_keeps_a_chosen_request(page: Page, served: Served) -> None:
    (request,) = send(page, "Follow me", max_tokens=60)
    settle(page)
    page.click(f"[data-request={request}] [data-select]")
    press(page, "Shift+ArrowLeft")
    assert page.evaluate("stepscope.choice()") == {"kind": "request", "id": request}
    assert page.evaluate(f"stepscope.shown().requests.{request}.status") == "running"
    assert page.evaluate("stepscope.lit().blocks.length") > 0


def test_an_own_prompt_is_shown_live_and_that_of_others_moves_nobodys_view(page: Page, served: Served) -> None:
    send(page, "To have some past", max_tokens=20)
    settle(page)
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowLeft")
    wait_for(page, "!stepscope.moment().live")
    body = {"model": "default", "prompt": "From elsewhere", "max_tokens": 3}
    served.client.post("/v1/completions", json=body).raise_for_status()
    frames(page)
    assert not page.evaluate("stepscope.moment().live")
    send(page, "From here", max_tokens=3)
    wait_for(page, "stepscope.moment().live")


def test_run_shows_the_engine_run_and_lets_go_of_a_chosen_step(page: Page, served: Served) -> None:
    burst(page)
    settle(page)
    pause(page, served)
    press(page, "ArrowLeft", 2)
    assert page.evaluate("stepscope.choice().kind") == "step"
    page.locator("#gate button[value=run]").click()
    wait_for(page, "stepscope.moment().live && stepscope.choice() === null")


def test_a_request_that_has_left_the_picture_is_shown_where_it_ended_and_dims_nothing_else(
    page: Page, served: Served
) -> None:
    (early,) = send(page, "an early one", max_tokens=4)
    send(page, "a long one, much later", max_tokens=200)
    settle(page)
    page.locator(f"[data-request={early}] [data-select]").click()
    end = f"stepscope.lanes().find(({{ id }}) => id === '{early}').end.at"
    wait_for(page, f"stepscope.moment().column === {end} - 1")
    assert page.evaluate("stepscope.lit().blocks.length") > 0
    press(page, "l")
    assert page.evaluate("[stepscope.choice().id, stepscope.lit().any]") == [early, False]
    press(page, "Escape")


def test_a_request_that_is_sought_is_shown_from_its_arrival_as_far_as_it_fits(still: Page) -> None:
    script = """(() => {
      const revealed = [];
      const history = { lanes: new Map([["R1", { arrive: 10, end: { at: 51 } }]]), steps: new Map([[50, {}]]) };
      const store = { engine: { history }, hold() {}, visit: () => true };
      const axis = { hold() {}, reveal: (column) => revealed.push(column), span: () => ({ from: 500, to: 600 }) };
      const travel = m.createTravel({ store, axis, selection: {}, plot: () => ({}), loop: { invalidateNow() {} } });
      travel.seek("R1", () => revealed.push("shown"));
      return revealed;
    })()"""
    assert call(still, "travel", script) == [10, 50, "shown"]


def test_one_choice_after_another_is_gone_to_and_clearing_the_last_goes_live_again(page: Page) -> None:
    (first,) = send(page, "an early one", max_tokens=4)
    send(page, "a long one", max_tokens=150)
    settle(page)
    (second,) = send(page, "another", max_tokens=4)
    send(page, "a long one, much later", max_tokens=150)
    settle(page)
    for request in (second, first):
        page.locator(f"[data-request={request}] [data-select]").click()
        end = f"stepscope.lanes().find(({{ id }}) => id === '{request}').end.at"
        wait_for(page, f"stepscope.moment().column === {end} - 1")
    press(page, "Escape")
    assert page.evaluate("stepscope.moment().live")


class Late:
    """A reply that was made in time, and comes when it is let go."""

    def __init__(self, page: Page, pattern: str) -> None:
        self.held: list[tuple[Route, APIResponse]] = []
        page.route(pattern, lambda route: self.held.append((route, route.fetch())))

    def come(self, page: Page) -> None:
        while not self.held:
            page.wait_for_timeout(20)
        for route, response in self.held:
            route.fulfill(response=response)
        page.wait_for_timeout(200)


def choose_from_before_a_reload(page: Page) -> tuple[str, Late]:
    """A request whose steps have to be asked of the server; its answer is still to come."""
    (early,) = send(page, "an early one", max_tokens=4)
    send(page, "a long one, much later", max_tokens=150)
    settle(page)
    page.reload()
    wait_for(page, f"stepscope.lanes().some(({{ id, end }}) => id === {early!r} && end)")
    late = Late(page, "**/api/recording*")
    page.locator(f"[data-request={early}] [data-select]").click()
    return early, late


def test_what_comes_after_a_reset_of_the_stage_is_not_shown_again(page: Page, served: Served) -> None:
    _, late = choose_from_before_a_reload(page)
    served.client.post("/api/engine", json={"action": "reset", "force": True}).raise_for_status()
    wait_for(page, "stepscope.lanes().length === 0")
    late.come(page)
    assert page.evaluate("[stepscope.lanes().length, stepscope.tape().steps]") == [0, 0]


def test_who_let_go_of_a_choice_is_not_taken_there_later(page: Page) -> None:
    _, late = choose_from_before_a_reload(page)
    press(page, "l")
    press(page, " ")
    column = page.evaluate("stepscope.moment().column")
    late.come(page)
    assert page.evaluate("stepscope.moment().column") == column


def test_clearing_a_choice_whose_steps_came_late_goes_live_again(page: Page) -> None:
    early, late = choose_from_before_a_reload(page)
    late.come(page)
    end = f"stepscope.lanes().find(({{ id }}) => id === '{early}').end.at"
    wait_for(page, f"stepscope.moment().column === {end} - 1")
    press(page, "Escape")
    assert page.evaluate("stepscope.moment().live")


def test_a_request_that_ended_while_nobody_looked_ends_at_its_last_token(page: Page, served: Served) -> None:
    page.evaluate(VISIBLE, False)
    body = {"prompt": "unseen", "max_tokens": 4}
    served.client.post("/v1/completions", json=body).raise_for_status()
    served.client.post("/v1/completions", json={**body, "max_tokens": 60}).raise_for_status()
    page.evaluate(VISIBLE, True)
    wait_for(page, "stepscope.finished().length >= 2")
    wait_for(page, "stepscope.lanes().slice(-2).every(({ end, last }) => end && last !== null && end.at === last + 1)")


def test_jumping_goes_from_one_event_of_a_kind_to_the_next(page: Page, served: Served) -> None:
    burst(page)
    settle(page)
    events = recorded(served)
    started = [e["seq"] for e in events if e.get("event") == "arrived"][-8]
    step, preempted, finished = 0, [], []
    for event in events:
        step = event["step"] if event["kind"] == "step" else step
        if event["seq"] > started and event.get("event") == "preempted":
            preempted.append(step + 1)
        if event["seq"] > started and event.get("event") == "finished":
            finished.append(step)
    preempted, finished = sorted(set(preempted)), sorted(set(finished))
    page.locator("h2").first.click()
    page.select_option("#travel [name=kind]", "preempted")
    page.locator("h2").first.click()
    for expected in reversed(preempted):
        press(page, ",")
        assert page.evaluate("stepscope.shown().step") == expected
    page.select_option("#travel [name=kind]", "finished")
    for expected in finished:
        page.click("#travel [data-jump='1']")
        shown = page.evaluate("stepscope.shown()")
        assert shown["step"] == expected
        assert shown["requests"][shown["finished"][-1]]["finish_reason"]  # what came of the step is told, too
    page.click("#travel [data-jump='1']")
    expect(page.locator("#note")).to_have_text("No later end of a request is known to this page.")


def test_a_slow_step_takes_over_twice_the_median_and_a_gated_one_sets_no_pace(still: Page) -> None:
    script = """(() => {
      const steps = new Map([1, 2, 3, 4, 5, 6].map((step) => [step, { step, wall_us: 10, gated: false }]));
      Object.assign(steps.get(2), { wall_us: 21 });
      Object.assign(steps.get(5), { wall_us: 20 });
      for (let step = 7; step < 20; step += 1) steps.set(step, { step, wall_us: 9, gated: true });
      const history = { steps, notes: new Map(), last: 19 };
      return [m.findEvent(history, "slow", 19, -1), m.findEvent(history, "slow", 2, 1)];
    })()"""
    assert call(still, "travel", script) == [2, None]


def test_dragging_the_axis_takes_the_moment_along(page: Page, served: Served) -> None:
    send(page, "Drag me", max_tokens=120)
    settle(page)
    last = page.evaluate("stepscope.state().step")
    box = page.locator("#panel-slots canvas").bounding_box()
    assert box
    page.mouse.move(box["x"] + 100, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 300, box["y"] + 80, steps=5)
    page.mouse.up()
    step = page.evaluate("stepscope.moment().step")
    assert step < last - 10
    assert page.evaluate("stepscope.shown().step") == step


# -- the address -------------------------------------------------------------------------------------------------


def test_the_address_opens_engine_step_selection_and_view_again(
    page: Page, open_page: OpenPage, served: Served
) -> None:
    (request,) = send(page, "Come back to this", max_tokens=90)
    settle(page)
    last = page.evaluate("stepscope.state().step")
    state = scrub(page, last - 40)
    page.click(f"[data-request={request}] [data-select]")
    page.locator("#panel-slots canvas").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    wait_for(page, f"location.hash.includes('choose=request:{request}') && location.hash.includes('px=')")
    other = open_page(page.url)
    wait_for(other, f"stepscope.shown().step === {last - 40}")
    frames(other)
    assert other.evaluate("stepscope.shown()") == state
    assert other.evaluate("stepscope.choice()") == {"kind": "request", "id": request}
    wait_for(other, f"location.href === {page.url!r}")  # axis and all
    page.locator("h2").first.click()
    press(page, "Escape")
    press(page, "l")
    wait_for(page, "location.hash === ''")


def test_changing_the_address_goes_there(page: Page, served: Served) -> None:
    send(page, "By its number", max_tokens=40)
    settle(page)
    last = page.evaluate("stepscope.state().step")
    scrub(page, last - 3)
    wait_for(page, f"location.hash.includes('step={last - 3}')")
    page.evaluate("(step) => (location.hash = location.hash.replaceAll(String(step), String(step - 20)))", last - 3)
    wait_for(page, f"stepscope.shown().step === {last - 23}")
    assert page.evaluate("stepscope.choice().column") == last - 23


def test_the_address_of_an_engine_that_has_ended_is_said_to_be_one(open_page: OpenPage, served: Served) -> None:
    page = open_page(f"{served.url}#engine=main&epoch=gone&step=3")
    expect(page.locator("#note")).to_contain_text("an engine that has ended")
    assert page.evaluate("stepscope.moment().live")


@pytest.mark.parametrize(
    ("hash_", "place"),
    [
        ("#prompt", None),
        ("#engine=e&epoch=x&step=-1&choose=block:7", {"step": None, "choice": {"kind": "block", "id": 7}}),
        ("#engine=e&epoch=x&step=12&choose=nonsense:1&px=9e9", {"step": 12, "choice": None, "px": None}),
    ],
)
def test_only_what_can_be_meant_is_read_from_an_address(still: Page, hash_: str, place: dict[str, Any] | None) -> None:
    read = call(still, "permalink", f"m.placeOf({hash_!r})")
    assert read is None if place is None else place.items() <= read.items()


# -- what this page did not hear ---------------------------------------------------------------------------------


def test_steps_from_before_the_page_was_opened_are_had_from_the_server(
    page: Page, open_page: OpenPage, served: Served
) -> None:
    burst(page)
    settle(page)
    late = open_page(served.url)
    last = late.evaluate("stepscope.state().step")
    steps = [last - 90, last - 20, last - 91]
    shown = {step: scrub(late, step) for step in steps}
    assert shown == states_at(recorded(served), steps)


class Forgetful:
    """A line that can be cut, and over which the page cannot resume: it comes back to a key and a gap."""

    def __init__(self) -> None:
        self.down = False
        self.open: list[WebSocketRoute] = []

    def attach(self, page: Page) -> None:
        page.route_web_socket("**/ws", self._connect)

    def _connect(self, route: WebSocketRoute) -> None:
        if self.down:
            route.close()
            return
        server = route.connect_to_server()
        self.open.append(route)
        route.on_message(lambda message: None if "resume" in str(message) else server.send(message))

    def cut(self) -> None:
        self.down = True
        self.open[-1].close()


def test_a_gap_stays_visible_and_its_steps_and_their_doing_are_fetched(open_page: OpenPage, served: Served) -> None:
    quiet(served)
    line = Forgetful()
    page = open_page(served.url, prepare=line.attach)
    send(page, "Before the gap", max_tokens=30)
    settle(page)
    before = page.evaluate("stepscope.state().step")
    line.cut()
    body = {"model": "default", "prompt": "behind your back", "max_tokens": 40}
    request = served.client.post("/v1/completions", json=body).json()["id"].removeprefix("cmpl-")
    line.down = False
    wait_for(page, f"stepscope.state().step >= {before} + 40")
    assert [gap["from"] for gap in page.evaluate("stepscope.gaps()")] == [before + 1]
    wait_for(page, f"stepscope.lanes().some((lane) => lane.id === {request!r} && lane.chunks === 1)")
    steps = [before + 20, before - 5]
    assert {step: scrub(page, step) for step in steps} == states_at(recorded(served), steps)
    scrub(page, before + 1)
    expect(page.locator("#panel-timeline .detail")).to_contain_text(f"{request} was admitted")
    assert len(page.evaluate("stepscope.gaps()")) == 1


def test_a_restarted_engine_leaves_the_old_ones_steps_to_be_looked_at(open_page: OpenPage) -> None:
    with serving("--scripted-step-ms", "2") as own:
        page = open_page(own.url)
        send(page, "In the first life", max_tokens=50)
        settle(page)
        epoch, last = page.evaluate("[stepscope.epoch(), stepscope.state().step]")
        old = scrub(page, last - 10)
        own.client.post("/api/engine", json={"action": "restart", "force": True}).raise_for_status()
        wait_for(page, f"stepscope.epoch() !== {epoch!r} && stepscope.state() !== null")
        assert page.evaluate("stepscope.shown()") == old  # still held
        press(page, "l")
        send(page, "In the second life", max_tokens=20)
        settle(page)
        page.evaluate(SCRUB, last - 10)
        wait_for(page, "!stepscope.moment().live")
        assert page.evaluate("stepscope.shown()") == old
        expect(page.locator("#travel output")).to_contain_text(f"step {last - 10} · ")
        press(page, "l")
        page.locator("h2").first.click()
        press(page, "ArrowLeft")
        assert page.evaluate("stepscope.shown().step") == page.evaluate("stepscope.state().step") - 1
        page.close()


# -- what it costs -----------------------------------------------------------------------------------------------


def test_folding_on_never_changes_a_copy(page: Page, served: Served) -> None:
    burst(page)
    settle(page)
    events = recorded(served)
    keys = [n for n, event in enumerate(events) if event["kind"] == "key"]
    changed = page.evaluate(
        """async (events) => {
          const { fold } = await import("/static/js/state.js");
          const { copyState } = await import("/static/js/copy.js");
          const copies = [];
          let state = null;
          events.forEach((event, i) => {
            state = fold(state, structuredClone(event));
            if (i % 40) return;
            const copy = copyState(state);
            copies.push([copy, JSON.stringify(copy), JSON.stringify(state)]);
          });
          return copies.filter(([copy, then, original]) => JSON.stringify(copy) !== then || then !== original).length;
        }""",
        events[keys[-4] :],
    )
    assert changed == 0


@pytest.mark.alone
def test_a_hundred_steps_a_second_leave_hardly_any_long_task(open_page: OpenPage) -> None:
    with serving("--scripted-step-ms", "10") as brisk:
        page = open_page(brisk.url)
        page.evaluate(
            """() => {
              window.long = [];
              new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => e.duration)))
                .observe({ type: "longtask" });
            }"""
        )
        first, ms = page.evaluate("[stepscope.state().step, performance.now()]")
        for copies in (8, 8, 8):
            send(page, "On and on", max_tokens=600, copies=copies)
        page.evaluate("window.long.length = 0")
        wait_for(page, f"performance.now() > {ms} + 20_000", timeout_s=60)
        last, now = page.evaluate("[stepscope.state().step, performance.now()]")
        assert last - first > 400  # a loaded machine takes them slower
        blocked = page.evaluate("window.long.reduce((sum, each) => sum + each, 0)")
        assert blocked < 0.1 * (now - ms)
        scrub(page, last - 300)
        page.close()
