"""Roofline, Memory and Self: the golden values of METRICS, and the server's own word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.app.fakes import FakeEngine, Running, hello_body, row, running, until
from tests.browser.actions import frames, table, wait_for
from tests.browser.conftest import OpenPage
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

N, B16, KV = 7_615_000_000, 2, 57_344  # METRICS, "Roofline"
PEAK_FLOPS, PEAK_BYTES = 1e15, 4e12
PREFILLS = {128: "127.9", 1024: "1,020.1", 8192: "7,946.9"}
DECODES = {128: "1.00", 1024: "1.00", 8192: "0.97"}
BLOCK_BYTES = 16 * KV
NUM_BLOCKS, MAX_MODEL_LEN = 16, 2048


class Measured(FakeEngine):
    """An engine on a device that it measured; its steps cost what METRICS says of a model of 7.6 billion parameters."""

    device: ClassVar = {"type": "cpu", "name": "A device"}

    def greet(self) -> Measured:
        body = hello_body(self.config)
        body["model"]["dtype"] = "bfloat16"
        body["device"] |= {**self.device, "total_bytes": 32 * 2**30}
        body["device"] |= {"peak_flops": PEAK_FLOPS, "peak_bytes_per_s": PEAK_BYTES}
        pool = {"kv_pool": NUM_BLOCKS * BLOCK_BYTES, "bytes_per_token": KV, "bytes_per_block": BLOCK_BYTES}
        body["memory"] |= {"weights": N * B16, "activations": 2**30, "kv_dtype": "float16", **pool}
        self.say("hello", **{**body, "simulated": False})
        self.key()
        return self

    def compute(self, number: int, tokens: int, us: int, *, decode: bool = False, **known: Any) -> None:
        """A step that reads a prompt of so many tokens, or writes one token behind them."""
        new = 1 if decode else tokens
        counted = {"num_prefill_tokens": 0, "num_decode_tokens": 1} if decode else {"num_prefill_tokens": tokens}
        facts = {"flops": 2 * N * new, "bytes": N * B16 + KV * tokens, "wall_us": 2 * us, **counted}
        phases = {"publish": us // 10, "forward": us, "sample": us // 4}
        self.step(number, **{**facts, "phases_us": phases, "scopes": {"forward": "host"}, **known})


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def engine(server: Running) -> FakeEngine:
    """Six golden steps, a gated one, and one that is quicker than the roofs allow; two requests run."""
    engine = Measured(server)
    engine.dial().greet()
    for request, prompt in (("R1", 100), ("R2", 20)):
        engine.arrived(request, prompt_tokens=prompt)
        engine.admitted(request)
    for number, tokens in enumerate(PREFILLS, start=1):
        engine.compute(number, tokens, 400_000)
    for number, tokens in enumerate(DECODES, start=4):
        engine.compute(number, tokens, 10_000, decode=True)
    engine.compute(7, 128, 10_000, decode=True, gated=True)
    tables = [["R1", list(range(7))], ["R2", [7, 8]]]
    rows = [row("R1", scheduled=100, computed=100), row("R2", scheduled=20, computed=20)]
    engine.compute(8, 1, 2_000, decode=True, rows=rows, tables=tables)
    until(lambda: (record := server.hub.engines.get("main")) and record.seq == engine.seq)
    return engine


@pytest.fixture
def fresh() -> Iterator[Running]:
    """A server for one test; ask for it before `open_page`, so that it outlives the page."""
    with running() as server:
        yield server


@pytest.fixture
def page(open_page: OpenPage, server: Running, engine: FakeEngine) -> Page:
    page = open_page(server.url)
    wait_for(page, "stepscope.state().step === 8")
    page.locator("#panel-roofline").scroll_into_view_if_needed()
    return page


def state_of(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/api/state", verify=False).json()
    return found


def walk_back(page: Page, step: int) -> None:
    """Go back by arrow keys; the first of them may have to ask the server for the past."""
    while page.evaluate("stepscope.shown().step") > step:
        page.keyboard.press("ArrowLeft")
        frames(page)


# -- roofline ----------------------------------------------------------------------------------------------------


def test_points_of_the_roofline_have_the_golden_intensities(page: Page) -> None:
    rows = {int(each["step"]): each for each in table(page, "roofline")}
    found = {number: (each["kind"], each["FLOP/byte"]) for number, each in rows.items()}
    golden = [("prefill", words) for words in PREFILLS.values()] + [("decode", words) for words in DECODES.values()]
    assert [found[number] for number in range(1, 7)] == golden
    assert (rows[2]["FLOP/s"], rows[2]["of maths"]) == ("39 T", "3.9 %")  # 2·N·1,024 in 0.4 s
    assert (rows[4]["bytes/s"], rows[4]["of bandwidth"]) == ("1.52 T", "38 %")  # N·2 + κ·128 in 10 ms


def test_the_two_bars_are_those_of_the_last_step_which_is_above_its_roof(page: Page, server: Running) -> None:
    state = state_of(server)
    step, device = state["last_step"], state["device"]
    seconds = step["phases_us"]["forward"] / 1e6
    bandwidth = step["bytes"] / seconds / device["peak_bytes_per_s"]
    expect(page.locator("[data-roof=bandwidth] b")).to_have_text(f"{100 * bandwidth:.0f} %")
    expect(page.locator("[data-roof=maths] b")).to_have_text("0.8 %")
    expect(page.locator("#panel-roofline [data-of]")).to_have_text("step 8, decode")
    expect(page.locator("[data-ridge]")).to_contain_text("less than 250.0 FLOP per byte waits for memory")
    expect(page.locator("#panel-roofline .detail")).to_contain_text("Above its roof")
    expect(page.locator("[data-above]")).to_have_text(
        "1 point above the measured roof: it was measured while the machine was busy, or caches helped."
    )
    expect(page.locator("[data-ridge]")).not_to_contain_text("data sheet")  # nobody knows this device
    fill, track = (page.locator(f"[data-roof=bandwidth] {part}").bounding_box() for part in (".fill", ".track"))
    peak = page.locator("[data-roof=bandwidth] .peak").bounding_box()
    assert fill is not None
    assert track is not None
    assert peak is not None
    assert peak["x"] < fill["x"] + fill["width"] <= track["x"] + track["width"]


def newest_point(page: Page) -> dict[str, float]:
    """The middle of the newest mark, by the pixels of its hue; decode steps of the trail are paler."""
    found: dict[str, float] = page.evaluate(
        """() => {
          const canvas = document.querySelector("#panel-roofline canvas");
          const hue = getComputedStyle(document.documentElement).getPropertyValue("--decode").trim().toLowerCase();
          const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const at = [];
          for (let i = 0; i < data.length; i += 4) {
            const colour = "#" + [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0")).join("");
            if (colour === hue) at.push([(i / 4) % width, Math.floor(i / 4 / width)]);
          }
          const mean = (k) => at.reduce((sum, each) => sum + each[k], 0) / at.length / devicePixelRatio;
          return { x: mean(0), y: mean(1) };
        }"""
    )
    return found


def test_a_click_on_a_mark_chooses_its_step_and_arrow_keys_go_on_from_there(page: Page) -> None:
    frames(page)
    at = newest_point(page)
    page.click("#panel-roofline canvas", position={"x": at["x"], "y": at["y"]})
    chosen = page.evaluate("stepscope.choice()")
    assert chosen["kind"] == "step"
    assert page.evaluate("stepscope.moment().step") == 8
    walk_back(page, 6)
    expect(page.locator("#panel-roofline [data-of]")).to_have_text("step 6, decode")
    assert [int(each["step"]) for each in table(page, "roofline")] == [6, 5, 4, 3, 2, 1]
    expect(page.locator("#panel-roofline tr.chosen")).to_contain_text("0.97")


def test_a_gated_step_is_no_measurement(page: Page) -> None:
    gated = next(each for each in table(page, "roofline") if each["step"] == "7")
    assert gated["timed"] == "gated"
    page.locator("#panel-roofline td button", has_text="7").click()
    expect(page.locator("#panel-roofline .detail")).to_contain_text("that time is no measurement")
    assert page.locator(".peak-share.gated").count() == 2


def test_an_asynchronous_launch_is_not_a_forward_time(still: Page) -> None:
    """A draft model's passes are work too."""
    all_phases = {"draft": 5, "forward": 70, "sample": 9}

    def work(device: str, scope: str, **others: int) -> tuple[int, str, str]:
        step = json.dumps({"phases_us": {**all_phases, **others}, "scopes": {"forward": scope}})
        found = call(still, "roofline", f"m.workOf({step}, {{ type: {device!r} }})")
        return found["us"], found["phases"], found["clock"]

    assert work("cpu", "host", draft=0) == (70, "forward", "host")
    assert work("cpu", "host") == (75, "draft + forward", "host")
    assert work("cuda", "device", draft=0) == (70, "forward", "device")
    assert work("cuda", "host", draft=0) == (79, "forward + sample", "host")


# -- memory ------------------------------------------------------------------------------------------------------


def test_memory_adds_up_to_what_the_server_says_and_tells_how_many_more_fit(page: Page, server: Running) -> None:
    state = state_of(server)
    counts, memory = state["blocks"]["counts"], state["memory"]
    found = {each["what"]: int(each["bytes"].replace(",", "")) for each in table(page, "memory")}
    parts = [found[name] for name in ("weights", "KV pool", "activations, at most", "rest")]
    assert sum(parts) == found["the whole device"] == state["device"]["total_bytes"]
    pool = {"used": "referenced", "cached, idle": "cached_idle", "free": "free"}
    for words, name in pool.items():
        assert found[f"in the pool: {words}"] == counts[name] * memory["bytes_per_block"]
    unpaged = len(state["queues"]["running"]) * state["config"]["max_model_len"] * memory["bytes_per_token"]
    assert found["without paging, of the pool"] == unpaged
    figure = page.locator("#panel-memory [data-figure]")
    expect(figure.locator("nth=5")).to_have_text("57,344 bytes")
    expect(figure.locator("nth=6")).to_have_text("1 · 61 tokens each")  # 7 pages left, 4 for each
    expect(figure.locator("nth=7")).to_have_text("0 · 2,048 tokens each")
    expect(page.locator("[data-paging]")).to_contain_text("2 requests in 7.9 MiB, not 224 MiB reserved")


def test_memory_follows_the_moment_shown(page: Page) -> None:
    assert table(page, "memory")[5]["bytes"] == f"{9 * BLOCK_BYTES:,}"
    page.locator("h2").first.click()
    walk_back(page, 6)
    assert table(page, "memory")[5]["bytes"] == "0"


# -- self --------------------------------------------------------------------------------------------------------


def test_self_says_who_watches_what_was_lost_and_what_telling_costs(
    page: Page, server: Running, engine: FakeEngine
) -> None:
    figure = page.locator("#panel-self [data-self=viewers]")
    expect(figure).to_have_text(f"{state_of(server)['viewers']['connected']} of 100")
    # The last three decode steps and prefills, but the gated one: 40,000 × 3, 1,000 × 3 and 200 µs.
    expect(page.locator("[data-self=publish]")).to_have_text("1,000 µs")
    expect(page.locator("[data-self=share]")).to_have_text("5.0 %")
    expect(page.locator("[data-self=lost]")).to_have_text("none")
    engine.make("beat", step_age_us=None)
    engine.make("beat", step_age_us=None)
    engine.beat()
    engine.key()
    expect(page.locator("[data-self=lost]")).to_have_text("3 events")


WATCH = """(() => {
  let now = 0;
  const watch = m.createWatch(() => now);
  const heard = (at, t) => {
    now = at;
    watch.take({ events: [{}] }, { epoch: "e", clock: { at, t: 1000 * t } });
  };
  watch.take({ key: true, events: [{}] }, { epoch: "e", clock: { at: 0, t: 0 } });
  heard(1000, 5_000_900);
  heard(2000, 5_001_880);
  heard(3000, 5_002_900);
  now = 3500;
  return watch.figures(2);
})()"""


def test_a_delay_is_counted_from_the_quickest_event_not_between_two_clocks(still: Page) -> None:
    found = call(still, "watch", WATCH)
    assert found == {"received": 4 / 3.5, "drawn": 2 / 3.5, "heardMs": 500, "lateMs": 0, "jumps": 0}
    assert call(still, "watch", WATCH.replace("5_002_900", "5_002_870"))["lateMs"] == 30


# -- the three together ------------------------------------------------------------------------------------------


def test_the_first_of_the_three_is_reached_by_tab_from_the_panel_before(page: Page) -> None:
    page.focus("#panel-latency .detail")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "panel-roofline"


class OnH200(Measured):
    device: ClassVar = {"type": "cuda", "name": "NVIDIA H200"}


def test_the_roofs_of_the_data_sheet_stand_beside_the_measured_ones(fresh: Running, open_page: OpenPage) -> None:
    engine = OnH200(fresh)
    engine.dial().greet()
    engine.compute(1, 128, 400_000)
    page = open_page(fresh.url)
    page.locator("#panel-roofline").scroll_into_view_if_needed()
    expect(page.locator("[data-ridge]")).to_contain_text("Dashed is its data sheet: 989 TFLOP/s and 4.8 TB/s")
    expect(page.locator("[data-ridge]")).to_contain_text("measured were 101 % and 83 % of that")
    sheets = """[["cuda", "NVIDIA H200", "float32"], ["cuda", "Tesla T4", "bfloat16"], ["cpu", "NVIDIA L4", "float16"],
                 ["cuda", "NVIDIA H200 MIG 1g.18gb", "float16"]]
        .map(([type, name, dtype]) => m.sheetOf({ device: { type, name }, model: { dtype } })?.flops ?? null)"""
    assert call(page, "data_sheets", sheets) == [67e12, None, None, None]
    engine.hang_up()


def test_a_scripted_engine_says_why_it_has_no_roofline(fresh: Running, open_page: OpenPage) -> None:
    FakeEngine(fresh).dial().greet()
    page = open_page(fresh.url)
    page.locator("#panel-roofline").scroll_into_view_if_needed()
    expect(page.locator("#panel-roofline .empty")).to_have_text("No device: a scripted engine computes nothing.")
    expect(page.locator("#panel-memory [data-figure=total]")).to_contain_text("known")


def test_an_earlier_engines_steps_are_not_drawn_under_the_roofs_of_a_later_one(
    fresh: Running, open_page: OpenPage
) -> None:
    engine = Measured(fresh)
    engine.dial().greet()
    page = open_page(fresh.url)
    page.locator("#panel-roofline").scroll_into_view_if_needed()
    engine.compute(1, 128, 400_000)
    wait_for(page, "stepscope.state().step === 1")
    engine.hang_up()
    Measured(fresh).dial().greet()
    wait_for(page, "stepscope.state().step === 0")
    expect(page.locator("#panel-roofline .empty")).to_have_text("No step to show yet.")
    page.focus("#panel-roofline")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#panel-roofline .empty")).to_contain_text("an earlier engine’s")
    expect(page.locator("#panel-memory .empty")).to_contain_text("An earlier engine’s moment")
