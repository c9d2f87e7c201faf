"""The worksheets: their sums against the golden values of METRICS, and what a person does with them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.app.processes import Served
from tests.browser.actions import frames, send, settle, table
from tests.browser.conftest import OpenPage
from tests.browser.test_accessibility import violations
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

EXAMPLE = {"queue": 200, "prefill": 300, "other": 100, "tpot": 40, "tokens": 101}


def sums(page: Page, function: str, *arguments: Any) -> Any:
    return call(page, "sums", f"m.{function}({', '.join(map(json.dumps, arguments))})")


# -- latency -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factors", "first", "last"),
    [({}, 600, 4600), ({"prefill": 0.5}, 450, 4450), ({"tpot": 0.75}, 600, 3600), ({"tokens": 0}, 600, 600)],
)
def test_the_worked_example_comes_out(still: Page, factors: dict[str, float], first: float, last: float) -> None:
    found = sums(still, "latencyOf", sums(still, "scaledParts", EXAMPLE, factors))
    assert (found["first"], found["last"]) == (first, last)


def test_halving_each_part_alone(still: Page) -> None:
    found = {each["part"]: (each["first"], each["last"]) for each in sums(still, "halvings", EXAMPLE)}
    assert found == {
        "queue": (500, 4500),
        "prefill": (450, 4450),
        "other": (550, 4550),
        "tpot": (600, 2600),
        "tokens": (600, 2600),  # 51 tokens, 50 gaps
    }


def test_the_worksheet_shows_the_worked_example_and_what_a_slider_does(page: Page) -> None:
    panel = page.locator("#panel-worksheet")
    expect(panel.locator("[data-first]")).to_have_text("600 ms")
    expect(panel.locator("[data-last]")).to_have_text("4,600 ms")
    expect(panel.locator("[data-part=prefill] .half-first")).to_have_text("450 ms")
    expect(panel.locator("[data-part=prefill] .half-last")).to_have_text("4,450 ms")
    slider = panel.locator("[name=x_tpot]")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    expect(panel.locator("[data-last-as-if]")).to_have_text("→ 3,600 ms, 22 % less")
    expect(panel.locator("[data-first-as-if]")).to_have_text("→ 600 ms, the same")
    expect(slider).to_have_attribute("aria-valuetext", "times 0.75, 30 ms")
    assert table(page, "worksheet")[-1] == {"part": "last token there after", "now": "4,600 ms", "as if": "3,600 ms"}


def test_sliders_and_numbers_survive_a_reload_and_can_be_put_back(page: Page) -> None:
    page.fill("#panel-worksheet [name=queue]", "50")
    page.locator("[name=x_prefill]").fill("0.5")
    page.reload()
    expect(page.locator("[data-first]")).to_have_text("450 ms")
    expect(page.locator("[data-first-as-if]")).to_have_text("→ 300 ms, 33 % less")
    page.click("[data-reset]")
    expect(page.locator("[data-first-as-if]")).to_be_empty()


def test_a_finished_request_fills_the_worksheet(page: Page, served: Served) -> None:
    (request,) = send(page, "Measure me", max_tokens=12)
    settle(page)
    form = page.locator("#worksheet-form")
    form.locator("[name=request]").select_option(request)
    timings = served.client.get(f"/api/requests/{request}").json()["timings"]
    expect(form.locator("[name=tokens]")).to_have_value("12")
    expect(form.locator("[name=other]")).not_to_have_value("0")
    for part in ("queue", "prefill", "tpot"):
        assert float(form.locator(f"[name={part}]").input_value()) == pytest.approx(
            timings[f"{part}_us"] / 1000, abs=1e-3
        )
    form.locator("[name=queue]").fill("7")
    expect(form.locator("[name=request]")).to_have_value("")


def test_the_chosen_request_can_be_taken(page: Page) -> None:
    (request,) = send(page, "Choose me", max_tokens=9)
    settle(page)
    expect(page.locator("[data-take]")).to_be_hidden()
    page.click(f"#answers [data-request={request}] [data-select]")
    page.click("[data-take]")
    expect(page.locator("#worksheet-form [name=tokens]")).to_have_value("9")
    expect(page.locator("#worksheet-form [name=request]")).to_have_value(request)


def test_a_number_that_cannot_be_is_named_with_its_limits(page: Page) -> None:
    form = page.locator("#worksheet-form")
    form.locator("[name=tokens]").fill("0")
    expect(form.locator(".error")).to_have_text("Output tokens is 0; it must be a whole number from 1 to 1,000,000.")
    expect(form.locator("[name=tokens]")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("[data-last]")).to_have_text("–")
    form.locator("[name=tokens]").fill("")
    expect(form.locator(".error")).to_contain_text("Output tokens is empty")
    form.locator("[name=tokens]").fill("1")
    expect(form.locator(".error")).to_be_empty()
    expect(page.locator("[data-last]")).to_have_text("600 ms")


# -- KV cache ----------------------------------------------------------------------------------------------------

LLAMA2 = {"layers": 32, "heads": 32, "kvHeads": 32, "headDim": 128, "dtype": "float16"}
QWEN = {"layers": 28, "heads": 28, "kvHeads": 4, "headDim": 128, "dtype": "float16"}
SMOL = {"layers": 30, "heads": 9, "kvHeads": 3, "headDim": 64, "dtype": "float16"}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (LLAMA2, 524_288),
        (QWEN, 57_344),
        (SMOL, 23_040),
        ({**SMOL, "dtype": "float32"}, 46_080),
        ({**QWEN, "dtype": "fp8"}, 29_568),
        ({**QWEN, "dtype": "int8"}, 2 * 28 * 4 * (128 + 4)),  # with a scale for each key and value
    ],
)
def test_bytes_per_token(still: Page, shape: dict[str, Any], expected: int) -> None:
    assert sums(still, "kvBytesPerToken", shape) == expected


def test_conversations_that_fit_are_whole_ones(still: Page) -> None:
    found = sums(still, "kvFit", LLAMA2, 4000, 16 * 2**30)
    assert found["conversation"] == 2_097_152_000
    assert (found["fit"], found["tokensThatFit"]) == (8, 32_768)
    assert call(still, "panels/kv_sum", "m.gigabytes(2097152000)") == "2.097 GB"


def test_what_sharing_heads_and_smaller_numbers_change(still: Page) -> None:
    found = {each["name"]: sums(still, "kvBytesPerToken", each["shape"]) for each in sums(still, "kvVariants", QWEN)}
    assert found == {"asked": 57_344, "mha": 7 * 57_344, "mqa": 57_344 // 4, "fp8": 29_568, "int8": 29_568}


def test_a_preset_fills_the_calculator_and_the_sum_is_shown(page: Page) -> None:
    panel = page.locator("#panel-kvsum")
    panel.locator("[name=model]").select_option(label="Llama 2 7B")
    expect(panel.locator(".steps li")).to_have_text([
        "one key: 128 numbers × 2 bytes256 bytes",
        "× 32 KV heads × 32 layers262,144 bytes",
        "× 2: a value beside each key524,288 bytes a token",
        "× 4,000 tokens: one conversation2,097,152,000 bytes, 2.097 GB",
        "16 GiB of memory ÷ that8 conversations",
    ])  # fmt: skip
    rows = table(page, "kvsum")
    assert [row["bytes a token"] for row in rows] == ["524,288", "524,288", "16,384", "270,336", "270,336"]
    panel.locator("[name=memory]").fill("1")
    expect(panel.locator(".steps li").last).to_contain_text("not one whole conversation; 2,048 tokens of it")
    panel.locator("[name=kvHeads]").fill("5")
    expect(panel.locator(".error")).to_contain_text("KV heads is 5; it must divide the 32 attention heads")
    expect(panel.locator("[name=model]")).to_have_value("")


def test_the_engine_with_a_model_is_offered_as_a_shape(page: Page) -> None:
    """A scripted engine has none; so the offer is asked with the facts of one that has."""
    expect(page.locator("#kvsum-form [name=model] option")).not_to_contain_text(["this engine"])
    hello = {
        "model": {"num_parameters": 1, "num_layers": 30, "num_attention_heads": 9, "num_kv_heads": 3, "head_dim": 64}
        | {"dtype": "float32"},
        "memory": {"kv_pool": 2**30},
        "config": {},
    }
    shape = call(page, "panels/kv_sum", f"m.engineShape({json.dumps(hello)})")
    assert sums(page, "kvBytesPerToken", shape) == 46_080
    assert shape["memory"] == 1
    for said, kept in {"int8": "int8", "float32": "float32"}.items():  # whatever the weights are of
        hello["model"]["dtype"], hello["memory"]["kv_dtype"] = "bfloat16", said
        assert call(page, "panels/kv_sum", f"m.engineShape({json.dumps(hello)}).dtype") == kept
    assert call(page, "panels/kv_sum", "m.engineShape(null)") is None


# -- intensity ---------------------------------------------------------------------------------------------------

LOAD = {"parameters": 7_615_000_000, "weightBytes": 2, "kvBytes": 57_344, "sequences": 1}


@pytest.mark.parametrize(
    ("tokens", "prefill", "decode"), [(128, "127.9", "1.00"), (1024, "1020.1", "1.00"), (8192, "7946.9", "0.97")]
)
def test_intensity_of_the_golden_model(still: Page, tokens: int, prefill: str, decode: str) -> None:
    load = {**LOAD, "tokens": tokens}
    assert f"{sums(still, 'prefillIntensity', load):.1f}" == prefill
    assert f"{sums(still, 'decodeIntensity', load):.2f}" == decode


def test_cache_and_weights_weigh_the_same_near_265_590_tokens(still: Page) -> None:
    assert round(sums(still, "evenTokens", LOAD)) == 265_590


def test_as_many_sequences_as_needed_reach_the_ridge_and_sometimes_none_do(still: Page) -> None:
    load = {**LOAD, "tokens": 128}
    needed = sums(still, "sequencesToReach", 295, load)
    assert sums(still, "decodeIntensity", {**load, "sequences": needed}) >= 295
    assert sums(still, "decodeIntensity", {**load, "sequences": needed - 1}) < 295
    assert sums(still, "sequencesToReach", 295, {**load, "tokens": 1024}) is None


def test_the_intensity_calculator_says_its_sum_and_what_it_means(page: Page) -> None:
    panel = page.locator("#panel-intensity")
    results = panel.locator(".steps b")
    expect(results).to_have_text(["1,020.1 FLOP/byte", "1.00 FLOP/byte", "295.2 FLOP/byte"])
    expect(panel.locator(".detail")).to_contain_text("Writing waits for memory")
    panel.locator("[name=tokens]").fill("8192")
    expect(results).to_have_text(["7,946.9 FLOP/byte", "0.97 FLOP/byte", "295.2 FLOP/byte"])
    panel.locator("[name=device]").select_option(label="A100 80 GB")
    expect(results.last).to_have_text("153.0 FLOP/byte")
    rows = {row["tokens"]: row for row in table(page, "intensity")}
    assert rows["128"]["prefill FLOP/byte"] == "127.9"


# -- for everyone ------------------------------------------------------------------------------------------------


def test_0_goes_to_the_worksheets(page: Page) -> None:
    page.locator("h2").first.click()
    page.keyboard.press("0")
    assert page.evaluate("document.activeElement.id") == "panel-worksheet"


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_nothing_serious_in_the_worksheets(open_page: OpenPage, served: Served, scheme: str) -> None:
    page = open_page(served.url, color_scheme=scheme)
    page.fill("#panel-kvsum [name=layers]", "")
    page.locator("[name=x_prefill]").fill("0.5")
    frames(page)
    assert violations(page) == []
    for panel in ("worksheet", "kvsum", "intensity"):
        table(page, panel)
    assert violations(page) == []


def test_the_worksheets_fit_a_phone(open_page: OpenPage, served: Served) -> None:
    page = open_page(served.url, viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    for panel in ("worksheet", "kvsum", "intensity"):
        box = page.locator(f"#panel-{panel}").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") == 390
