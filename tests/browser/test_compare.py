"""/compare: two runs on one axis, their numbers, what is said of them, and the ghost."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from engine.recording import Recording, write_recording
from engine.summary import summarize
from tests.app.fakes import until
from tests.app.processes import Served, serving
from tests.browser.actions import quiet, wait_for
from tests.browser.conftest import OpenPage
from tests.browser.test_accessibility import violations
from tests.engine.recorded import Recorder

pytestmark = pytest.mark.browser

READY = "window.compare && compare.ready()"
DEMO = "demo, not your engine"
HTMX = {"HX-Request": "true"}
REPLAYED = re.compile(r"^last run: 8 requests, \d\d:\d\d, replayed by the model$")
LAST_OF_EIGHT = re.compile(r"^last run: 8 requests, \d\d:\d\d$")


@pytest.fixture
def compare(open_page: OpenPage, served: Served) -> Page:
    """The page as it opens, its demo read."""
    page = open_page(f"{served.url}/compare", ready=False)
    wait_for(page, READY)
    return page


def part(page: Page, side: str, name: str) -> Any:
    return page.locator(f"#side-{side} [data-part={name}]")


def saved(recording: Recording, path: Path) -> Path:
    write_recording(path, [recording.hello, *map(as_json, recording.events)])
    return path


def as_json(event: Any) -> Any:
    return json.loads(json.dumps(event, default=dataclasses.asdict))


# -- what one sees at once ---------------------------------------------------------------------------------------


def test_the_demo_says_at_once_which_mode_was_faster(compare: Page) -> None:
    expect(compare.locator("#verdict")).to_have_text(
        "B (continuous) finished the same 24 requests 2.2 times as fast as A: 7.52 s instead of 16.4 s."
    )
    for side, mode in (("a", "static"), ("b", "continuous")):
        expect(part(compare, side, "mode")).to_have_text(mode)
        expect(part(compare, side, "label")).to_have_text("simulated")


def test_arrow_keys_move_one_moment_over_both_sides(compare: Page) -> None:
    expect(part(compare, "b", "moment")).to_have_text("at 8.21 s: 0 running, 0 waiting, 24 of 24 finished")
    for _ in range(5):
        compare.keyboard.press("Shift+ArrowLeft")
    expect(compare.locator("#at")).to_have_text("4.10 s")
    expect(part(compare, "a", "moment")).to_have_text("at 4.10 s: 1 running, 16 waiting, 7 of 24 finished")
    lefts = {part(compare, side, "cursor").bounding_box()["x"] for side in "ab"}
    assert len(lefts) == 1
    compare.check("input[value=steps]")
    expect(compare.locator("#at")).to_have_text("step 96")


def test_of_however_many_slots_none_covers_the_ticks(still: Page) -> None:
    script = """async () => {
      const { bottomOf } = await import("/static/js/compare_picture.js");
      return [1, 8, 200, 4096].map((slots) => bottomOf({ height: 148 }, { slots }));
    }"""
    assert all(bottom <= 148 - 16 for bottom in still.evaluate(script))


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_serious(open_page: OpenPage, served: Served, scheme: str) -> None:
    page = open_page(f"{served.url}/compare", ready=False, color_scheme=scheme)
    wait_for(page, READY)
    assert violations(page) == []


def test_a_phone_gets_one_column_and_no_sideways_scroll(open_page: OpenPage, served: Served) -> None:
    page = open_page(
        f"{served.url}/compare", ready=False, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
    )
    wait_for(page, READY)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator("#side-a canvas").bounding_box()["height"] > 100  # type: ignore[index]


def test_arrow_keys_scroll_the_numbers_where_they_are_wider_than_a_phone(open_page: OpenPage, served: Served) -> None:
    page = open_page(f"{served.url}/compare", ready=False, viewport={"width": 390, "height": 844})
    wait_for(page, READY)
    numbers = page.locator(".numbers")
    numbers.evaluate("(element) => { element.style.width = '120px'; }")
    at = page.locator("#at").text_content()
    numbers.focus()
    page.keyboard.press("ArrowRight")
    wait_for(page, "document.querySelector('.numbers').scrollLeft > 0")
    assert page.locator("#at").text_content() == at


def test_arrow_keys_move_the_moment_from_numbers_that_have_room(compare: Page) -> None:
    at = compare.locator("#at").text_content() or ""
    compare.locator(".numbers").focus()
    compare.keyboard.press("ArrowRight")
    expect(compare.locator("#at")).not_to_have_text(at)


# -- the numbers -------------------------------------------------------------------------------------------------


def summary_numbers(recording: Recording) -> dict[str, Any]:
    """What engine/summary.py has under the page's names."""
    summary = summarize(recording)
    return {
        "finished": summary.num_finished,
        "makespan": summary.makespan_us,
        "steps": summary.num_steps,
        "outputTokens": summary.output_tokens,
        "rate": pytest.approx(summary.output_tokens_per_s),
        "ttft": summary.ttft_us["p50"],
        "tpot": pytest.approx(summary.tpot_us["p50"]),
        "gap": summary.worst_gap_us,
        "occupancy": pytest.approx(summary.slot_occupancy),
        "prefillTokens": summary.prefill_tokens,
        "cached": summary.cached_tokens,
        "preemptions": summary.preemptions,
    }


def busy_run() -> Recording:
    """Nine requests that share beginnings, get preempted, and have a knob turned under them."""
    recorder = Recorder(num_blocks=16, max_num_seqs=4, max_num_batched_tokens=64, watermark=0.0)
    for index in range(10):
        if index == 5:
            recorder.turn(200_000, max_num_seqs=3)
        recorder.at(index * 40_000, "shared" * 8 + "abc"[index % 3] * 20 * index, 20 + index)
    return recorder.recording()


def held_run() -> Recording:
    """Two requests; the gate was held for a second while both were answered."""
    recorder = Recorder(max_num_seqs=2)
    for prompt in ("one", "two"):
        recorder.at(0, prompt, 12)
    recorder.turn(60_000, max_queue=99)
    recorder.harness.gate("pause")
    recorder.harness.core.timer.idle()
    recorder.harness.clock.advance(1_000_000)
    recorder.harness.gate("run")
    return recorder.recording()


def test_a_gap_that_the_gate_held_is_nobodys_longest(compare: Page, tmp_path: Path) -> None:
    run = held_run()
    part(compare, "a", "file").set_input_files(saved(run, tmp_path / "run.jsonl.gz"))
    expect(part(compare, "a", "from")).to_contain_text("turned while it ran: max_queue")
    expected = summarize(run).worst_gap_us
    assert expected is not None
    assert 0 < expected < 100_000
    assert compare.evaluate("compare.numbers().a.gap") == expected


def test_the_numbers_are_those_of_the_engines_own_summary(compare: Page, tmp_path: Path) -> None:
    run = busy_run()
    part(compare, "a", "file").set_input_files(saved(run, tmp_path / "run.jsonl.gz"))
    expect(part(compare, "a", "from")).to_contain_text("turned while it ran: max_num_seqs")
    expected = summary_numbers(run)
    assert expected["preemptions"] > 0 < expected["cached"]
    found = compare.evaluate("compare.numbers().a")
    assert {name: found[name] for name in expected} == expected


def test_a_recording_of_several_runs_gives_its_last(compare: Page, tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.at(0, "first", 9)
    for index in range(3):
        recorder.at(5_000_000, f"second {index}", 5)
    path = saved(recorder.recording(), tmp_path / "runs.jsonl.gz")
    drop = """([name, bytes]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(bytes)], name));
      document.querySelector("#side-b").dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
    }"""
    compare.evaluate(drop, [path.name, list(path.read_bytes())])
    expect(part(compare, "b", "from")).to_have_text("runs.jsonl.gz")
    numbers = compare.evaluate("compare.numbers().b")
    assert (numbers["requests"], numbers["outputTokens"]) == (3, 15)
    part(compare, "a", "file").set_input_files(saved(busy_run(), tmp_path / "ten.jsonl.gz"))
    expect(compare.locator("#verdict")).to_have_text(
        "A had 10 requests, B 3, so the two are not compared. Send the same to both."
    )


def test_a_file_that_is_no_recording_is_refused_and_the_side_stays(compare: Page) -> None:
    for content in (b"\x1f\x8bnot gzip", b"no recording\n", b'{"kind": "step"}\n', b""):
        part(compare, "a", "file").set_input_files({"name": "x.jsonl", "mimeType": "text/plain", "buffer": content})
        expect(part(compare, "a", "error")).not_to_be_empty()
        expect(part(compare, "a", "mode")).to_have_text("static")


def doctored(change: Callable[[list[Any]], Any]) -> dict[str, Any]:
    """A recording of two requests that somebody has changed, as a file."""
    recorder = Recorder()
    for prompt in ("one", "other"):
        recorder.at(0, prompt, 5)
    run = recorder.recording()
    events = [run.hello, *map(as_json, run.events)]
    change(events)
    lines = "".join(json.dumps(event).replace("Infinity", "1e999") + "\n" for event in events)
    return {"name": "x.jsonl", "mimeType": "text/plain", "buffer": lines.encode()}


def steps(events: list[Any]) -> list[Any]:
    return [event for event in events if event["kind"] == "step"]


def configs(events: list[Any]) -> list[Any]:
    return [event.get("state", event)["config"] for event in events if event["kind"] in ("hello", "key")]


def test_what_would_freeze_the_page_or_is_of_another_version_is_refused(compare: Page) -> None:
    changes: dict[str, Callable[[list[Any]], Any]] = {
        "damaged": lambda events: steps(events)[-1].update(accepted_us=float("inf")),
        "damaged, cut off": lambda events: [config.update(max_num_seqs=10**9) for config in configs(events)],
        "is damaged": lambda events: events[0]["config"].update(num_blocks=10**9),
        "schema version is 2": lambda events: events[0].update(v=2),
    }
    for words, change in changes.items():
        part(compare, "a", "file").set_input_files(doctored(change))
        expect(part(compare, "a", "error")).to_contain_text(words)
        expect(part(compare, "a", "from")).to_have_text(DEMO)


def test_a_recording_with_a_hole_is_not_judged_and_anothers_events_are_passed_over(
    compare: Page, tmp_path: Path
) -> None:
    def drop(events: list[Any]) -> None:
        events.remove(steps(events)[2])

    def mix(events: list[Any]) -> None:
        events.insert(events.index(steps(events)[2]), {**steps(events)[1], "epoch": "another"})

    one = Recorder()
    one.at(0, "one", 5)
    part(compare, "b", "file").set_input_files(saved(one.recording(), tmp_path / "one.jsonl.gz"))
    for change, words in ((drop, "Events of A are missing"), (mix, "A had 2 requests")):
        part(compare, "a", "file").set_input_files(doctored(change))
        expect(compare.locator("#verdict")).to_contain_text(words)


def test_a_line_without_end_is_not_read_to_its_end(still: Page) -> None:
    read = """async () => {
      const { eachLine } = await import("/static/js/recording.js");
      let pieces = 0;
      const zeros = new Uint8Array(2 ** 20);
      const bytes = new ReadableStream({ pull: (to) => (pieces++ < 500 ? to.enqueue(zeros) : to.close()) });
      return eachLine(bytes, () => {}).then(() => "read", () => pieces);
    }"""
    assert 32 < still.evaluate(read) < 40


def test_a_static_side_says_why_its_groups_are_small(compare: Page, tmp_path: Path) -> None:
    recorder = Recorder(batching="static", num_blocks=16, max_num_seqs=4, watermark=0.0)
    for index in range(6):
        recorder.at(0, f"prompt {index}", 80)
    part(compare, "a", "file").set_input_files(saved(recorder.recording(), tmp_path / "static.jsonl.gz"))
    expect(part(compare, "a", "groups")).to_contain_text("in 4 slots: each request is given the blocks")
    expect(part(compare, "b", "groups")).to_be_empty()


# -- what may be said --------------------------------------------------------------------------------------------


OBSTACLES = {
    "b.over = false": "B still runs",
    "a.cut = true": "does not reach back",
    "b.lost = true": "Events of B are missing",
    "a.gated = true": "no measurements",
    "b.arrivals.pop()": "A had 24 requests, B 23",
    "b.arrivals[3].prompt += 1": "other lengths",
    "b.arrivals[23].at += 9e6": "same times",
    "b.steps.splice(9)": "not equally long",
}


def test_a_difference_is_stated_only_of_the_same_work(still: Page) -> None:
    changes = ", ".join(f"(a, b) => {{ {change}; }}" for change in OBSTACLES)
    said = still.evaluate(
        f"""async () => {{
          const {{ demoRun }} = await import("/static/js/compare_sources.js");
          const {{ obstacle }} = await import("/static/js/compare_numbers.js");
          const said = [];
          for (const change of [() => {{}}, {changes}]) {{
            const [a, b] = await Promise.all([demoRun("static"), demoRun("continuous")]);
            change(a, b);
            said.push(obstacle(a, b));
          }}
          return said;
        }}"""
    )
    assert said[0] is None
    for sentence, words in zip(said[1:], OBSTACLES.values(), strict=True):
        assert words in sentence


# -- runs of one's own -------------------------------------------------------------------------------------------


def test_the_demo_is_plainly_one_and_leaves_when_a_run_of_ones_own_comes(compare: Page, tmp_path: Path) -> None:
    for side in "ab":
        expect(part(compare, side, "from")).to_have_text(DEMO)
        expect(part(compare, side, "from")).to_have_css("font-weight", "600")
    expect(compare.locator("#how")).to_contain_text("This is a demo, not your engine.")
    own = saved(busy_run(), tmp_path / "own.jsonl.gz")
    part(compare, "a", "file").set_input_files(own)
    expect(part(compare, "a", "from")).to_contain_text("own.jsonl.gz")
    expect(compare.locator("#verdict")).to_have_text("B is still empty, so there is nothing to compare.")
    expect(part(compare, "b", "empty")).to_contain_text("Now B: press Simulate for what another mode would have made")
    expect(part(compare, "b", "empty")).to_contain_text(
        "turn a knob on the engine’s page, send the same requests again"
    )
    expect(part(compare, "b", "from")).to_be_hidden()
    expect(part(compare, "b", "big")).to_have_text("–")
    part(compare, "b", "file").set_input_files(own)
    expect(compare.locator("#verdict")).to_contain_text("10 requests")
    expect(part(compare, "a", "from")).to_contain_text("own.jsonl.gz")


def test_a_plain_link_leads_back_to_the_engine_that_one_came_from(open_page: OpenPage, served: Served) -> None:
    for query, address in (("", "/"), ("?engine=a%26b", "/?engine=a%26b")):
        page = open_page(f"{served.url}/compare{query}", ready=False)
        expect(page.get_by_role("link", name="Live page")).to_have_attribute("href", address)


def test_the_legends_swatches_have_the_colours_of_the_marks(compare: Page) -> None:
    """An answer is written in the decode colour; each end that is drawn is explained."""
    looks = "(swatch) => getComputedStyle(swatch).backgroundImage"
    decode = "getComputedStyle(document.documentElement).getPropertyValue('--decode')"
    hue = compare.evaluate(f"[...{decode}.trim().slice(1).matchAll(/../g)].map((pair) => parseInt(pair, 16))")
    assert f"rgb({', '.join(map(str, hue))})" in compare.locator(".swatch.wrote").evaluate(looks)
    expect(compare.locator(".explain")).to_contain_text("Ends: ■ stop, ┃ length, ✕ cancelled, ▲ error.")


def test_the_cursor_and_the_words_of_the_end_leave_the_ticks_alone(compare: Page) -> None:
    """Ticks stand in the lowest 16 pixels of the picture."""
    well = compare.locator("#side-b canvas").bounding_box()
    assert well is not None
    for name in ("cursor", "ended"):
        box = part(compare, "b", name).bounding_box()
        assert box["y"] + box["height"] <= well["y"] + well["height"] - 16


def test_the_way_to_the_engine_leaves_this_page_as_it_is(compare: Page) -> None:
    link = compare.get_by_role("link", name="the engine’s page")
    expect(link).to_have_attribute("target", "_blank")
    expect(link).to_have_attribute("rel", "noopener")
    expect(compare.locator("ol li").first).to_contain_text("opens in a new tab")


def burst(served: Served, **config: Any) -> None:
    """Eight prompts at once under these settings, to their ends."""
    served.client.patch("/api/config", json=config).raise_for_status()
    served.client.post("/prompts", data={"burst": "8", "max_tokens": "24"}, headers=HTMX).raise_for_status()
    until(lambda: not any(served.state()["queues"].values()), "the end of all requests")


def test_two_runs_taken_in_turn_are_said_to_be(compare: Page, served: Served) -> None:
    quiet(served)
    for side, batching in (("a", "continuous"), ("b", "static")):
        burst(served, batching=batching, max_num_seqs=2)
        part(compare, side, "last").click()
        expect(part(compare, side, "from")).to_have_text(LAST_OF_EIGHT)
    modes = [part(compare, side, "mode").text_content() for side in "ab"]
    assert modes == ["continuous", "static"]
    expect(compare.locator("#how")).to_contain_text("Run in turn on one machine, aligned at t = 0.")
    assert compare.evaluate("Object.values(compare.numbers()).map(({ finished }) => finished)") == [8, 8]


def test_a_run_that_goes_on_is_looked_at_until_it_is_over(compare: Page, served: Served) -> None:
    quiet(served)
    gate = lambda **action: served.client.post("/api/gate", json=action).raise_for_status()  # noqa: E731
    gate(action="pause")
    served.client.post("/prompts", data={"prompt": "On and on", "max_tokens": "9"}, headers=HTMX).raise_for_status()
    gate(action="step", steps=3)
    until(lambda: served.state()["queues"]["running"], "a running request")
    part(compare, "a", "last").click()
    expect(compare.locator("#verdict")).to_have_text("A still runs: 0 of 1 requests have finished.")
    expect(part(compare, "a", "big-words")).to_have_text("so far")
    expect(compare.locator("#numbers tbody tr").nth(1)).to_contain_text("time so far, s")
    gate(action="run")
    expect(compare.locator("#verdict")).to_contain_text("A was paused or stepped by hand")
    expect(compare.locator("#verdict")).to_contain_text("Send it again without pausing")
    expect(part(compare, "a", "big-words")).to_have_text("until all had finished")
    expect(part(compare, "a", "label")).to_have_text("simulated")


def test_the_knobs_lead_to_the_last_run_beside_its_ghost(open_page: OpenPage, served: Served) -> None:
    quiet(served)
    burst(served, batching="continuous", max_num_seqs=2)
    page = open_page(served.url)
    page.click("[data-ghost=batching]")
    page.wait_for_url("**/compare?**")
    wait_for(page, READY, timeout_s=60)
    for side, mode in (("a", "continuous"), ("b", "static")):
        expect(part(page, side, "label")).to_have_text("simulated")
        expect(part(page, side, "mode")).to_have_text(mode)
    expect(part(page, "a", "from")).to_have_text(REPLAYED)
    expect(part(page, "b", "from")).to_have_text("the last run, one setting turned")
    expect(page.locator("#verdict")).to_contain_text("B (static)")
    expect(page.locator("#how")).to_contain_text("Both are simulated: A’s arrivals, replayed in virtual time")
    expect(page.locator("#how")).to_contain_text(re.compile(r"The model misses A’s own run by [\d.]+ %\."))


def test_beside_its_ghost_a_run_is_predicted_in_every_number_and_a_sentence_says_how_it_ran(
    open_page: OpenPage, served: Served
) -> None:
    quiet(served)
    burst(served, batching="continuous", max_num_seqs=2)
    page = open_page(f"{served.url}/compare?ghost=max_num_seqs", ready=False)
    wait_for(page, READY, timeout_s=60)
    makespan = page.evaluate("compare.numbers().a.makespan") / 1e6
    expect(part(page, "a", "big")).to_have_text(f"{makespan:.2f} s")
    expect(part(page, "a", "big-words")).to_have_text("until all had finished")
    assert f"instead of {makespan:.2f} s, both predicted" in page.text_content("#verdict")  # type: ignore[operator]
    expect(page.locator("#side-a canvas")).to_have_attribute(
        "aria-label", f"Slots over time, all finished at {makespan:.2f} s"
    )
    assert page.locator("#numbers thead th").all_text_contents() == ["", "A", "B", "B ÷ A", "A as it really ran"]
    _, simulated, _, _, really = page.locator("#numbers tbody tr").nth(1).locator("td").all_text_contents()
    assert simulated == f"{makespan:.2f}"
    expect(part(page, "a", "really")).to_contain_text(f"As it really ran: {really} s; the model says ")
    expect(part(page, "b", "really")).to_be_empty()


def test_a_phone_does_not_scroll_sideways_for_a_fifth_column(open_page: OpenPage, served: Served) -> None:
    quiet(served)
    burst(served, batching="continuous", max_num_seqs=2)
    page = open_page(f"{served.url}/compare?ghost=batching", ready=False, viewport={"width": 390, "height": 844})
    wait_for(page, READY, timeout_s=60)
    expect(page.locator("#numbers thead th")).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_run_that_was_paused_is_compared_as_predicted(open_page: OpenPage, served: Served) -> None:
    quiet(served)
    served.client.post("/api/gate", json={"action": "pause"}).raise_for_status()
    served.client.post("/prompts", data={"burst": "8", "max_tokens": "24"}, headers=HTMX).raise_for_status()
    served.client.post("/api/gate", json={"action": "run"}).raise_for_status()
    until(lambda: not any(served.state()["queues"].values()), "the end of all requests")
    page = open_page(f"{served.url}/compare?ghost=max_num_seqs", ready=False)
    wait_for(page, READY, timeout_s=60)
    expect(page.locator("#verdict")).to_contain_text("both predicted")
    expect(part(page, "a", "really")).to_contain_text("A was really paused or stepped by hand")
    expect(page.locator("#how")).to_contain_text("misses A’s own run is not known, as that was held by hand.")
    expect(page.locator("#numbers thead th").last).to_have_text("A as it really ran, held by hand")


def said_of_predictions(still: Page, script: str) -> Any:
    """`script`, in the demo's runs `a` (static, 16.4 s) and `b`; `say` says what is predicted of them."""
    return still.evaluate(
        f"""async () => {{
          const {{ demoRun }} = await import("/static/js/compare_sources.js");
          const {{ differences, numbersOf }} = await import("/static/js/compare_numbers.js");
          const {{ verdict }} = await import("/static/js/compare_verdict.js");
          const [a, b] = await Promise.all([demoRun("static"), demoRun("continuous")]);
          const say = (a, b, was) => verdict(a, b, differences(a, b), was && {{ name: "A", numbers: was }});
          const ran = (share) => ({{ ...numbersOf(a), makespan: numbersOf(a).makespan * share }});
          {script}
        }}"""
    )


def test_what_is_predicted_closer_together_than_the_model_comes_cannot_be_told(still: Page) -> None:
    told, unsure, same, unknown = said_of_predictions(
        still,
        """
          const unknown = { ...ran(1), makespan: null };
          return [say(a, b, ran(1.1)), say(a, b, ran(3)), say(a, a, ran(3)), say(a, b, unknown)];
        """,
    )
    assert told == (
        "B (continuous) would finish the same 24 requests 2.2 times as fast as A: 7.52 s instead of 16.4 s, "
        "both predicted."
    )
    assert unsure == (
        "Which is faster cannot be told: the ends of B (continuous) and A are predicted 8.89 s apart, and the model "
        "misses A’s own by more, by 32.82 s."
    )
    assert same == "B would finish the same 24 requests in A’s time, to within 1 %."
    assert unknown == told


def test_what_an_accurate_model_predicts_nearly_alike_is_told_to_be_the_same(still: Page) -> None:
    accurate, wrong = said_of_predictions(
        still,
        """
          const [first, ...rest] = a.steps.toReversed();
          const near = { ...a, steps: [...rest.toReversed(), { ...first, accepted_us: first.accepted_us + 1_600 }] };
          return [say(a, near, ran(1.001)), say(a, near, ran(1.1))];
        """,
    )
    assert accurate == "B would finish the same 24 requests in A’s time, to within 1 %."
    assert "predicted 0.0016 s apart, and the model misses A’s own by more, by 1.64" in wrong


def test_that_nothing_was_cut_into_chunks_is_said_and_why(still: Page) -> None:
    uncut, chunk, cut = said_of_predictions(
        still,
        """
          a.config.enable_chunked_prefill = true;
          const off = { ...a, config: { ...a.config, enable_chunked_prefill: false } };
          const said = [say(a, off)];
          a.config.long_prefill_token_threshold = off.config.long_prefill_token_threshold = 64;
          said.push(say(a, off));
          const rows = [{ request: "R1", slot: 0, phase: "prefill", out: 0 }];
          const half = { ...a, steps: [{ ...a.steps[0], rows }, ...a.steps.slice(1)] };
          return [...said, say(half, off)];
        """,
    )
    assert uncut.endswith("No prompt was longer than a step’s budget of 256 tokens, so nothing was cut into chunks.")
    assert chunk.endswith("No prompt was longer than the longest chunk, 64 tokens, so nothing was cut into chunks.")
    assert "chunks" not in cut


def test_a_ghost_that_cannot_be_is_refused_in_words(open_page: OpenPage, served: Served, faults: list[str]) -> None:
    page = open_page(f"{served.url}/compare?ghost=nonsense", ready=False)
    expect(page.locator("#side-b [data-part=error]")).to_contain_text("nonsense cannot be given here")
    faults[:] = [fault for fault in faults if "400" not in fault]


def test_a_ghost_of_a_run_that_began_meanwhile_is_not_set_beside_the_old_one(
    open_page: OpenPage, served: Served
) -> None:
    quiet(served)
    burst(served, batching="continuous", max_num_seqs=2)
    held: list[Route] = []

    def hold(route: Route) -> None:
        if not held:
            burst(served, batching="continuous", max_num_seqs=2)
        held.append(route)
        route.continue_()

    page = open_page(
        f"{served.url}/compare?ghost=batching", ready=False, prepare=lambda page: page.route("**/api/ghost*", hold)
    )
    expect(part(page, "b", "error")).to_have_text("Another run began meanwhile; simulate again.")
    expect(part(page, "b", "big")).to_have_text("–")
    assert len(held) == 2


def test_a_ghost_of_a_run_that_went_on_is_of_no_other(still: Page) -> None:
    """By what is known of the run: when its requests came and its last step ended, which here was at 20."""
    script = """async () => {
      const { isOfAnother } = await import("/static/js/compare_predicted.js");
      const replay = (at, of = "e") => ({ hello: { epoch: "s", replay_of: of }, arrivals: [{ at }], steps: [] });
      const run = { hello: { epoch: "e" }, over: true, arrivals: [{ at: 1 }, { at: 2 }], steps: [{ accepted_us: 20 }] };
      const cut = { ...run, cut: true };
      const pairs = [[replay(1), run], [replay(2), run], [replay(1, "f"), run], [replay(9), run]];
      pairs.push([replay(9), cut], [replay(21), cut], [replay(21), { ...cut, over: false }]);
      return pairs.map(([replay, run]) => isOfAnother(replay, run));
    }"""
    assert still.evaluate(script) == [False, False, True, True, False, True, False]


def held_at_three_steps(served: Served) -> None:
    """A request under way, in the hand of the gate."""
    quiet(served)
    served.client.post("/api/gate", json={"action": "pause"}).raise_for_status()
    served.client.post("/prompts", data={"prompt": "On and on", "max_tokens": "9"}, headers=HTMX).raise_for_status()
    served.client.post("/api/gate", json={"action": "step", "steps": 3}).raise_for_status()
    until(lambda: served.state()["queues"]["running"], "a running request")


def test_a_server_that_cannot_be_reached_for_a_while_ends_neither_the_look_nor_the_promised_simulation(
    open_page: OpenPage, served: Served, faults: list[str]
) -> None:
    held_at_three_steps(served)
    page = open_page(f"{served.url}/compare?ghost=max_num_seqs", ready=False)
    expect(part(page, "a", "big-words")).to_have_text("so far")
    page.route("**/api/recording*", lambda route: route.abort(), times=1)
    expect(part(page, "a", "busy")).to_have_text("The server cannot be reached; it is asked again.")
    served.client.post("/api/gate", json={"action": "run"}).raise_for_status()
    expect(part(page, "b", "from")).to_have_text("the last run, one setting turned")
    expect(part(page, "a", "big-words")).to_have_text("until all had finished")
    faults[:] = [fault for fault in faults if "ERR_FAILED" not in fault]


def test_a_run_that_the_server_knows_no_more_is_not_said_to_go_on(open_page: OpenPage, served: Served) -> None:
    held_at_three_steps(served)
    page = open_page(f"{served.url}/compare?ghost=max_num_seqs", ready=False)
    expect(part(page, "a", "big-words")).to_have_text("so far")
    served.client.post("/api/engine", json={"action": "reset", "force": True}).raise_for_status()
    expect(part(page, "a", "error")).to_contain_text("No request has arrived yet.")
    expect(page.locator("#verdict")).to_contain_text("Events of A are missing")
    expect(part(page, "b", "busy")).to_be_empty()


def test_of_a_run_whose_engine_died_nothing_is_said_or_drawn_to_have_finished(open_page: OpenPage) -> None:
    with serving("--scripted-step-ms", "4") as mortal:
        mortal.client.post("/prompts", data={"burst": "3", "max_tokens": "2000"}, headers=HTMX).raise_for_status()
        until(lambda: mortal.state()["queues"]["running"], "running requests")
        mortal.engine_process().send_signal(signal.SIGKILL)
        until(lambda: mortal.client.get("/readyz").status_code != 200, "the engine's end")
        page = open_page(f"{mortal.url}/compare?ghost=batching", ready=False)
        wait_for(page, READY, timeout_s=60)
        expect(page.locator("#verdict")).to_contain_text("Events of A are missing")
        expect(part(page, "a", "really")).to_contain_text("how it really ran is known in part only")
        expect(page.locator("#numbers tbody tr").nth(1)).to_contain_text("time as far as is known, s")
        finished = page.locator("#numbers tbody tr").first.locator("td").all_text_contents()
        assert {cell.split(" ")[0] for cell in finished if " of " in cell} == {"0"}
        for side in "ab":
            expect(part(page, side, "big-words")).to_have_text("as far as is known")
            expect(part(page, side, "ended")).to_be_hidden()
            label = page.locator(f"#side-{side} canvas")
            expect(label).to_have_attribute("aria-label", re.compile("^Slots over time, as far as is known"))
        for _ in range(10):
            page.keyboard.press("Shift+ArrowRight")
        expect(part(page, "a", "moment")).to_contain_text(re.compile(r" 0 of \d finished$"))


def test_of_a_run_that_was_lost_its_replays_have_the_ends_that_were_heard(still: Page) -> None:
    script = """async () => {
      const { likeWithLike } = await import("/static/js/compare_predicted.js");
      const { demoRun } = await import("/static/js/compare_sources.js");
      const [twin, ghost] = await Promise.all(["continuous", "static"].map(demoRun));
      const hello = { ...twin.hello, epoch: "e" };
      const run = { ...twin, hello, over: false, lost: true, ends: [twin.ends[0]] };
      for (const replay of [twin, ghost]) replay.hello = { ...replay.hello, replay_of: "e" };
      const ended = ({ over, moments, history }) => {
        const ends = [...history.lanes.values()].filter(({ end }) => end).length;
        return [over, ends, moments.at(-1).finished];
      };
      const both = ({ a, b }) => [ended(a), ended(b)];
      const pair = { ...ghost, twin };
      return [[run, pair], [pair, run], [{ ...run, over: true }, pair]].map((sides) => both(likeWithLike(...sides)));
    }"""
    lost, other_way, over = still.evaluate(script)
    assert lost == other_way == [[False, 1, 1]] * 2
    assert over == [[True, 24, 24]] * 2
