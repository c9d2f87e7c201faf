"""The reducer in JavaScript against the one in Python, on the same recordings; and the small modules beside it."""

from __future__ import annotations

import copy
import gzip
import json
import math
import random
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from app.hub import HEARTBEAT_S
from app.state import fold
from tests.app.fakes import until
from tests.app.processes import Served, serving
from tests.browser.actions import send, settle
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

FOLD = """async (lines) => {
  const { fold } = await import("/static/js/state.js");
  const events = lines.map((line) => JSON.parse(line));
  const states = [];
  let state = null;
  for (const event of events) {
    if (event.kind === "text") continue;
    if (event.kind === "key") states.push(structuredClone(state));
    state = fold(state, structuredClone(event));
  }
  return [...states, state];
}"""


@pytest.fixture(scope="module")
def tight() -> Iterator[Served]:
    """So few blocks that requests are preempted and cached blocks evicted."""
    with serving("--num-blocks", "24", "--max-num-batched-tokens", "48", "--scripted-step-ms", "1") as running:
        yield running


@pytest.fixture(scope="module")
def recording(tight: Served) -> list[str]:
    """A recording with preemptions, evictions, aborts, a refusal, a cache reset and a few keys in it."""
    client = tight.client
    for i in range(24):
        body = {"prompt": f"{i % 5} " * 30, "max_tokens": 90, "model": "default"}
        client.post("/prompts", data={**body, "copies": "2"}, headers={"hx-request": "true"}).raise_for_status()
        if i % 6 == 0:
            client.delete(f"/api/requests/R{2 * i + 2}")
    client.post("/v1/completions", json={"model": "default", "prompt": "x" * 5000})
    until(lambda: not sum(len(queue) for queue in tight.state()["queues"].values()), "the end of all requests")
    client.post("/api/engine", json={"action": "reset_prefix_cache"}).raise_for_status()
    client.post("/api/marks", json={"text": "the end"}).raise_for_status()
    lines = gzip.decompress(client.get("/api/recording").content).decode().splitlines()
    events = [json.loads(line) for line in lines]
    kinds = {event.get("event", event["kind"]) for event in events}
    assert {"key", "step", "arrived", "preempted", "resumed", "finished", "cache_reset", "mark"} <= kinds
    assert any(event["evicted"] for event in events if event["kind"] == "step")
    return lines


def folded(lines: list[str]) -> list[Any]:
    """The state before each key and at the end, by the Python reducer."""
    states = []
    state = None
    for event in map(json.loads, lines):
        if event["kind"] == "key":
            states.append(copy.deepcopy(state))
        if event["kind"] != "text":
            state = fold(state, event)
    return [*states, state]


def test_both_reducers_fold_a_recording_to_the_same_states(
    open_page: OpenPage, tight: Served, recording: list[str]
) -> None:
    page = open_page(tight.url)
    assert page.evaluate(FOLD, recording) == folded(recording)


def test_folding_a_key_and_what_follows_gives_the_next_key(
    open_page: OpenPage, tight: Served, recording: list[str]
) -> None:
    page = open_page(tight.url)
    before_keys = page.evaluate(FOLD, recording)[:-1]
    keys = [event["state"] for event in map(json.loads, recording) if event["kind"] == "key"]
    assert len(keys) > 2
    assert before_keys[1:] == keys[1:]


def test_both_reducers_forget_the_same_when_the_stage_is_reset(
    open_page: OpenPage, tight: Served, recording: list[str]
) -> None:
    page = open_page(tight.url)
    last = json.loads(recording[-1])
    header = {name: last[name] for name in ("engine", "epoch", "t")}
    told = [{"kind": "reset", "victims": [3, 4]}, *({"kind": "mark", "step": 0, "text": str(i)} for i in range(70))]
    lines = recording + [json.dumps({**header, "seq": last["seq"] + 1 + i, **event}) for i, event in enumerate(told)]
    state = page.evaluate(FOLD, lines)[-1]
    assert state == folded(lines)[-1]
    assert (state["requests"], state["finished"], state["num_resets"]) == ({}, [], 1)
    assert [mark["text"] for mark in state["marks"]] == [str(i) for i in range(6, 70)]


@pytest.fixture(scope="module")
def page(still: Page) -> Page:
    """One for all of these."""
    return still


def call(page: Page, module: str, expression: str) -> Any:
    return page.evaluate(
        f"""async () => {{ const m = await import("/static/js/{module}.js"); return {expression}; }}"""
    )


@pytest.mark.parametrize(
    ("samples", "p", "expected"),
    [([], 50, None), ([7], 99, 7), ([1, 2, 3, 4], 50, 2), (list(range(1, 101)), 95, 95), (list(range(1, 101)), 99, 99)],
)
def test_a_percentile_is_a_sample_that_happened(page: Page, samples: list[int], p: int, expected: int | None) -> None:
    assert call(page, "metrics", f"m.percentile({samples}, {p})") == expected


def test_percentiles_of_a_tally_are_those_of_its_samples(still: Page) -> None:
    rng = random.Random(5)
    lists = [[rng.randrange(most) for _ in range(n)] for n in (1, 2, 3, 99, 1000) for most in (1, 7, 10**6)]
    tallies = [list(Counter(samples).items()) for samples in lists]
    ps = [0, 1, 50, 95, 99, 100]
    ranks = [[sorted(samples)[max(0, math.ceil(p / 100 * len(samples)) - 1)] for p in ps] for samples in lists]
    found = call(still, "tally", f"{json.dumps(tallies)}.map((tally) => m.percentilesOf(new Map(tally), {ps}))")
    assert found == [{"n": len(lists[i]), "ranks": ranks[i]} for i in range(len(lists))]
    assert call(still, "tally", "m.percentilesOf(new Map(), [50])") == {"n": 0, "ranks": [None]}


def test_undefined_and_gated_values_give_no_sample(page: Page) -> None:
    finished = [
        {"timings": {"tpot_us": None, "gated_us": 0}},
        {"timings": {"tpot_us": 5, "gated_us": 0}},
        {"timings": {"tpot_us": 9, "gated_us": 1}},
    ]
    assert call(page, "metrics", f"m.samplesOf({json.dumps(finished)}, 'tpot_us')") == [5]


def test_undefined_prints_as_a_dash_and_zero_as_zero(page: Page) -> None:
    assert call(page, "format", "[m.duration(null), m.rate(null), m.rate(0), m.count(undefined)]") == [
        "–",
        "–",
        "0",
        "–",
    ]


def test_an_idle_engine_has_a_rate_of_nought_and_a_gated_one_none(page: Page) -> None:
    step = {"accepted_us": 1_000_000, "gated": False, "num_prefill_tokens": 30, "num_decode_tokens": 8}
    old, now = f"m.rates([{json.dumps(step)}], 9e6)", f"m.rates([{json.dumps(step)}], 1.5e6)"
    gated = f"m.rates([{json.dumps({**step, 'gated': True})}], 1.5e6)".replace("True", "true")
    assert call(page, "metrics", old) == {"prefill": 0, "decode": 0}
    assert call(page, "metrics", now) == {"prefill": 15, "decode": 4}
    assert call(page, "metrics", gated) == {"prefill": None, "decode": None}


SILENT_LINE = """async (seconds) => {
  const { connect } = await import("/static/js/socket.js");
  const real = { WebSocket, setInterval, now: performance.now };
  let check, message, now = 0, closed = 0;
  window.setInterval = (does) => (check = does);
  performance.now = () => now;
  window.WebSocket = class {
    static OPEN = 1;
    readyState = 1;
    addEventListener = (kind, heard) => kind === "message" && (message = heard);
    send() {}
    close() { closed += 1; }
  };
  const show = (hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  };
  try {
    connect({ frame: () => true, text() {}, took() {}, first() {}, phase() {} });
    message({ data: JSON.stringify({ hub: "h", n: 1, events: [] }) });
    if (seconds.hidden) show(true);
    now += 1000 * (seconds.hidden ?? seconds.heard);
    if (seconds.hidden) show(false);
    check();
    return closed;
  } finally {
    Object.assign(window, { WebSocket: real.WebSocket, setInterval: real.setInterval });
    performance.now = real.now;
  }
}"""


@pytest.mark.parametrize(
    ("seconds", "closed"), [({"heard": HEARTBEAT_S + 1}, 0), ({"heard": 2 * HEARTBEAT_S}, 1), ({"hidden": 600}, 0)]
)
def test_a_line_is_dead_when_a_heartbeat_is_missing_but_not_after_being_hidden(
    page: Page, seconds: dict[str, float], closed: int
) -> None:
    assert page.evaluate(SILENT_LINE, seconds) == closed


def test_text_is_placed_by_characters_not_by_code_units(page: Page) -> None:
    script = """(() => {
      const texts = m.createTexts();
      texts.put("R1", 0, "a🤖");
      texts.put("R1", 2, "b");
      const hole = texts.put("R1", 9, "x");
      texts.put("R1", 1, "ü!");
      return [texts.get("R1"), hole];
    })()"""
    assert call(page, "texts", script) == ["aü!", None]


@pytest.mark.parametrize(("device_us", "said"), [("930", ". Device busy 93 %."), ("null", ".")])
def test_how_busy_a_gpu_was_is_said_where_it_is_known(page: Page, device_us: str, said: str) -> None:
    script = f"""(() => {{
      const step = {{ step: 1, wall_us: 1000, device_us: {device_us}, phases_us: {{}}, scopes: {{}}, rows: [],
        waiting: [], evicted: [], num_scheduled_tokens: 1, token_budget: 2, ended_by: "all_scheduled" }};
      const root = document.getElementById("panel-anatomy").cloneNode(true);
      const history = {{ steps: new Map([[1, step]]), notes: new Map() }};
      m.anatomy.detail(root, {{ history, choice: {{ kind: "step", column: 1 }} }});
      return root.querySelector(".detail").textContent;
    }})()"""
    assert call(page, "panels/anatomy", script).endswith(f"in 1.0 ms{said}")


def test_a_broken_invariant_is_named(page: Page) -> None:
    script = """(() => {
      const state = structuredClone(stepscope.state());
      state.blocks.counts.free -= 1;
      return [m.brokenInvariant(stepscope.state()), m.brokenInvariant(state)];
    })()"""
    sound, broken = call(page, "metrics", script)
    assert sound is None
    assert "is not" in broken


def test_a_curl_command_carries_the_sampling_of_its_request(page: Page) -> None:
    send(page, "It's me", max_tokens=5)
    settle(page)
    script = """(() => {
      const card = document.querySelector("#answers [data-request]");
      const engine = { state: structuredClone(stepscope.state()) };
      const store = { engine, engines: new Map([["main", engine]]), having: () => engine };
      const given = { ignore_eos: true, stop_token_ids: [7] };
      Object.assign(engine.state.requests[card.dataset.request].sampling, given);
      return m.curlCommand(card, document.getElementById("prompt-form"), { get: () => "" }, store);
    })()"""
    body = json.loads(shlex.split(call(page, "curl", script))[-1])
    assert body["messages"] == [{"role": "user", "content": "It's me"}]
    assert (body["max_tokens"], body["ignore_eos"], body["stop_token_ids"]) == (5, True, [7])


def test_steps_that_never_reached_the_page_are_a_gap(page: Page) -> None:
    script = """(() => {
      const history = m.createHistory();
      const state = structuredClone(stepscope.state());
      const key = (step) => ({ kind: "key", epoch: "e", state: { ...state, step } });
      m.remember(history, key(5), key(5).state);
      history.steps.set(5, { step: 5, rows: [] });
      m.remember(history, key(9), key(9).state);
      return [history.gaps, history.last];
    })()"""
    assert call(page, "history", script) == [[{"from": 6, "to": 9}], 9]


def test_gaps_that_are_remembered_are_bounded(page: Page) -> None:
    script = """(() => {
      const history = m.createHistory();
      const state = structuredClone(stepscope.state());
      history.steps.set(0, { step: 0, rows: [] });
      for (let step = 1; step <= 1000; step += 1) m.remember(history, { kind: "key", epoch: "e" }, { ...state, step });
      return [history.gaps.length, history.gaps.at(-1).to];
    })()"""
    assert call(page, "history", script) == [200, 1000]


def test_only_gated_requests_of_the_window_are_said_to_be_left_out(page: Page) -> None:
    script = """(async () => {
      const { WINDOW, windowOf } = await import("/static/js/latency_window.js");
      const timings = { ttft_us: 1, tpot_us: 1, e2e_us: 1 };
      const sample = (gated_us) => ({ id: "R", at: 1, epoch: "E", timings: { ...timings, gated_us } });
      const finished = [...new Array(9).fill(sample(1)), ...new Array(WINDOW - 1).fill(sample(0)), sample(1)];
      return m.windowWords(windowOf({ finished, epoch: "E", epochs: [] }, Infinity), "");
    })()"""
    assert "1 gated left out." in call(page, "panels/latency", f"await {script}")
