"""The KV panel's pictures, against the server's own word while the engine is paused: block tables, the prefix tree, a
block's line with the tokens in it, the strip."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.app.processes import Served, serving
from tests.browser.actions import frames, pause, table, wait_for
from tests.browser.conftest import OpenPage
from tests.browser.pages import new_page
from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

SYSTEM = "You are a careful librarian. Answer in plain words, and cite the shelf. " * 3
ASKED = [f"Where is shelf {shelf}?" for shelf in "ABCDEFGH"]


class Scene(NamedTuple):
    page: Page
    served: Served
    state: dict[str, Any]


def ask(page: Page, served: Served, prompt: str, max_tokens: int) -> None:
    """As this page's viewer, who may read the answer."""
    form = {"prompt": prompt, "system": SYSTEM, "max_tokens": str(max_tokens)}
    assert page.context.request.post(f"{served.url}/prompts", form=form, headers={"hx-request": "true"}).ok


@pytest.fixture(scope="module")
def paused(browser: Browser) -> Iterator[Scene]:
    """Eight requests with one system prompt, caught while they answer; one before them has left its blocks cached."""
    with serving("--scripted-step-ms", "6", "--num-blocks", "320") as served:
        faults: list[str] = []
        page = new_page(browser, faults.append, {})
        page.goto(served.url)
        wait_for(page, "window.stepscope && stepscope.state() !== null")
        ask(page, served, "Where is shelf A?", 60)
        wait_for(page, "stepscope.state().finished.length === 1")
        pause(page, served)
        for prompt in ASKED:
            ask(page, served, prompt, 200)
        until = page.evaluate("stepscope.state().step") + 50
        served.client.post("/api/gate", json={"action": "step", "steps": 50}).raise_for_status()
        wait_for(page, f"stepscope.state().step === {until}")
        state = pause(page, served)
        assert len(state["queues"]["running"]) == 8
        yield Scene(page, served, state)
        page.context.close()
        assert faults == []


@pytest.fixture
def scene(paused: Scene) -> Scene:
    """With nothing chosen, live, and all pages shown."""
    paused.page.locator("h2").first.click()
    paused.page.keyboard.press("Escape")
    paused.page.keyboard.press("l")
    show(paused.page, "pages")
    return paused


def show(page: Page, name: str) -> None:
    page.click(f"[data-kv-view={name}]")
    expect(page.locator(f"[data-kv-view={name}]")).to_have_attribute("aria-pressed", "true")
    frames(page, 3)


def choose(page: Page, choice: str) -> None:
    """Click a box of the picture."""
    box = page.evaluate(choice)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.click("#panel-kv canvas", position={"x": x, "y": y})
    frames(page)


def tables_of(state: dict[str, Any]) -> dict[str, list[int]]:
    return {name: state["requests"][name]["block_table"] for name in state["queues"]["running"]}


def drawn_tables(page: Page) -> dict[str, list[int]]:
    tables: dict[str, list[int]] = {}
    for cell in page.evaluate("stepscope.kvTable()"):
        tables.setdefault(cell["request"], []).append(cell["block"])
    return tables


def test_the_tables_drawn_are_those_of_the_state(scene: Scene) -> None:
    show(scene.page, "tables")
    assert drawn_tables(scene.page) == tables_of(scene.state)


def test_of_a_chosen_request_its_table_is_drawn_alone_and_a_cell_chooses_its_block(scene: Scene) -> None:
    request = scene.state["queues"]["running"][3]
    blocks = scene.state["requests"][request]["block_table"]
    scene.page.click(f"[data-request={request}] [data-select]")
    show(scene.page, "tables")
    assert drawn_tables(scene.page) == {request: blocks}
    choose(scene.page, "stepscope.kvTable().at(-1)")
    assert scene.page.evaluate("stepscope.choice()") == {"kind": "block", "id": blocks[-1]}


def test_the_table_twin_says_what_was_found_in_the_cache(scene: Scene) -> None:
    request = scene.state["queues"]["running"][3]
    facts = scene.state["requests"][request]
    scene.page.click(f"[data-request={request}] [data-select]")
    show(scene.page, "tables")
    rows = table(scene.page, "kv")
    scene.page.click("#panel-kv details.twin summary")
    assert [int(row["physical"]) for row in rows] == facts["block_table"]
    found = [row["from"] for row in rows].count("cache")
    assert 0 < found == facts["num_cached_tokens"] // 16
    assert {row["from"] for row in rows[found:]} == {"computed"}


def assert_tree_is_of(bars: list[dict[str, Any]], state: dict[str, Any]) -> None:
    """Every block that is held is in one bar, at its place, with those who hold it; and every cached one in one."""
    tables = tables_of(state)
    refs, hashes = state["blocks"]["refs"], state["blocks"]["hashes"]
    drawn = [block for bar in bars for block in bar["blocks"]]
    assert sorted(drawn) == [block for block, ref in enumerate(refs) if ref or hashes[block]]
    for bar in bars:
        for place, block in enumerate(bar["blocks"], bar["depth"]):
            holders = [name for name, blocks in tables.items() if blocks[place : place + 1] == [block]]
            assert bar["requests"] == holders
            assert len(holders) == refs[block]


def test_the_prefix_tree_has_every_block_once_and_the_shared_ones_first(scene: Scene) -> None:
    show(scene.page, "tree")
    bars = scene.page.evaluate("stepscope.kvBars()")
    assert_tree_is_of(bars, scene.state)
    shared = set.intersection(*map(set, tables_of(scene.state).values()))
    assert (set(bars[0]["blocks"]), bars[0]["depth"], len(bars[0]["requests"])) == (shared, 0, 8)
    assert any(not bar["requests"] for bar in bars)  # the answer before them
    rows = table(scene.page, "kv")
    scene.page.click("#panel-kv details.twin summary")
    assert [(int(row["depth"]), int(row["blocks"])) for row in rows] == [
        (bar["depth"], len(bar["blocks"])) for bar in bars
    ]


def test_the_prefix_tree_is_that_of_the_moment_shown(scene: Scene) -> None:
    show(scene.page, "tree")
    scene.page.locator("h2").first.click()
    scene.page.keyboard.press("Shift+ArrowLeft")
    frames(scene.page, 3)
    then = scene.page.evaluate("stepscope.shown()")
    assert then["step"] < scene.state["step"]
    assert_tree_is_of(scene.page.evaluate("stepscope.kvBars()"), then)


def test_a_page_opened_later_learns_where_cached_blocks_stand(scene: Scene, open_page: OpenPage) -> None:
    late = open_page(f"{scene.served.url}/?kv=tree")
    wait_for(late, "stepscope.kvBars().some(({ requests }) => !requests.length)")
    assert_tree_is_of(late.evaluate("stepscope.kvBars()"), scene.state)
    # It did not ask for them, so it may not read them.
    request = scene.state["queues"]["running"][0]
    choose(late, f"stepscope.kvBars().find(({{ requests }}) => requests.join() === '{request}')")
    assert late.evaluate("stepscope.choice()") == {"kind": "request", "id": request}
    show(late, "tables")
    choose(late, "stepscope.kvTable().at(-1)")
    expect(late.locator("#panel-kv .detail")).to_contain_text("text is not shared with this viewer")


def test_the_keyboard_walks_the_tree_and_chooses(scene: Scene) -> None:
    scene.page.focus("[data-kv-view=tree]")
    scene.page.keyboard.press("Enter")
    frames(scene.page, 3)
    bars = scene.page.evaluate("stepscope.kvBars()")
    scene.page.keyboard.press("Tab")
    for _ in range(4):
        if scene.page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
        scene.page.keyboard.press("Tab")
    for key in ("Home", "ArrowRight", "ArrowDown", "ArrowDown"):
        scene.page.keyboard.press(key)
    canvas = scene.page.locator("#panel-kv canvas")
    bar = bars[int(canvas.get_attribute("aria-valuenow") or 0)]
    assert bar["y"] > bars[1]["y"]
    assert f"({len(bar['blocks'])} block" in (canvas.get_attribute("aria-valuetext") or "")
    scene.page.keyboard.press("Enter")
    assert scene.page.evaluate("stepscope.lit().requests") == bar["requests"]


def test_a_block_is_told_with_its_history_and_the_tokens_in_it(scene: Scene) -> None:
    request = scene.state["queues"]["running"][0]
    facts = scene.state["requests"][request]
    index = facts["num_prompt_tokens"] // 16
    show(scene.page, "tables")
    choose(scene.page, f"stepscope.kvTable().find((cell) => cell.request === '{request}' && cell.index === {index})")
    wait_for(scene.page, "document.querySelectorAll('[data-kv-chips] span').length > 0")
    line = scene.page.locator("#panel-kv .detail")
    expect(line).to_contain_text(f"1 reference, held by {request}")
    expect(line).to_contain_text(re.compile(r"for \d+ steps"))
    expect(line).to_contain_text(f"in it {facts['num_prompt_tokens'] % 16} tokens of the prompt and")
    said = "".join(scene.page.locator("[data-kv-chips] span").all_text_contents())
    answer = scene.page.locator(f"[data-request={request}] .said").text_content() or ""
    assert said == answer[: 16 - facts["num_prompt_tokens"] % 16]


def test_a_cached_block_names_who_held_it_before(scene: Scene) -> None:
    before = scene.state["finished"][0]
    show(scene.page, "tree")
    choose(scene.page, "stepscope.kvBars().find(({ requests }) => !requests.length)")
    line = scene.page.locator("#panel-kv .detail")
    expect(line).to_contain_text(re.compile(rf"cached, idle · let go \d+ steps ago .* before: {before} steps \d+–\d+"))
    wait_for(scene.page, "document.querySelectorAll('[data-kv-chips] span').length === 16")
    answer = scene.page.locator(f"[data-request={before}] .said").text_content() or ""
    assert "".join(scene.page.locator("[data-kv-chips] span").all_text_contents()) in answer


def test_the_strip_sums_to_the_whole(scene: Scene) -> None:
    figures = {
        name: scene.page.locator(f"dd:has([data-figure={name}])").inner_text()
        for name in ("referenced", "cached_idle", "free")
    }
    blocks = scene.state["blocks"]
    each = scene.page.evaluate("stepscope.state().config.block_size") * 1024
    for name, figure in figures.items():
        assert re.search(rf"· {blocks['counts'][name]:,} blocks? · ", figure)
    shares = [float(figure.split(" %")[0]) for figure in figures.values()]
    assert sum(shares) == pytest.approx(100)
    grown = scene.page.locator(".strip .part").evaluate_all("all => all.map((part) => Number(part.style.flexGrow))")
    assert sum(grown) == pytest.approx(blocks["total"])
    saved = sum(ref - 1 for ref in blocks["refs"] if ref > 1)
    expect(scene.page.locator("[data-figure=saved]")).to_have_text(f"{saved} blocks, {saved * each / 2**20:.1f} MiB")


# -- the pure parts ----------------------------------------------------------------------------------------------


def pool(tables: dict[str, list[int]], hashes: list[str | None], computed: int = 999) -> str:
    """A state with these tables, in JavaScript."""
    requests = {
        name: {"block_table": blocks, "num_computed_tokens": min(computed, 4 * len(blocks)), "num_prompt_tokens": 8}
        for name, blocks in tables.items()
    }
    refs = [sum(block in blocks for blocks in tables.values()) for block in range(len(hashes))]
    blocks = {"total": len(hashes), "block_size": 4, "hashes": hashes, "refs": refs}
    return json.dumps({"queues": {"running": list(tables)}, "requests": requests, "blocks": blocks})


LINKS = {"a": [None, 0], "b": ["a", 1], "c": ["b", 2], "d": ["b", 2], "e": ["d", 3]}
CHAIN = f"new Map(Object.entries({json.dumps(LINKS)}).map(([hash, [parent, index]]) => [hash, {{ parent, index }}]))"
SHORT = "({ children, ...run }) => ({ ...run, below: children.length })"


def runs(page: Page, state: str, rows: int = 99) -> list[dict[str, Any]]:
    script = f"m.layOut(m.prefixTree({state}, {CHAIN}), {rows}).bars.map((bar) => ({SHORT})(bar.run))"
    found: list[dict[str, Any]] = call(page, "prefix_tree", script)
    return found


def test_what_is_shared_is_one_run_and_what_differs_branches_off(scene: Scene) -> None:
    state = pool({"R1": [0, 1, 2], "R2": [0, 1, 3, 4]}, ["a", "b", "c", "d", None])
    whole = {"loose": False, "below": 0, "prompt": 0}
    assert runs(scene.page, state) == [
        {**whole, "depth": 0, "blocks": [0, 1], "requests": ["R1", "R2"], "tokens": 8, "prompt": 8, "below": 2},
        {**whole, "depth": 2, "blocks": [2], "requests": ["R1"], "tokens": 4},
        {**whole, "depth": 2, "blocks": [3, 4], "requests": ["R2"], "tokens": 8},
    ]


def test_a_cached_block_hangs_on_the_nearest_one_before_it_that_is_left(scene: Scene) -> None:
    state = pool({"R1": [0, 1]}, ["a", "b", "e", "c", "?"])  # d is gone, and nobody knows ?
    found = [(run["depth"], run["blocks"], run["requests"], run["loose"]) for run in runs(scene.page, state)]
    assert found == [(0, [0, 1], ["R1"], False), (2, [3], [], False), (3, [2], [], True)]
    assert call(scene.page, "prefix_tree", f"m.prefixTree({state}, {CHAIN}).unknown") == [4]


def test_branches_that_do_not_fit_are_counted(scene: Scene) -> None:
    state = pool({f"R{i}": [i, 5 + i] for i in range(5)}, [None] * 10)
    script = f"(({{ bars, more }}) => [bars.length, more])(m.layOut(m.prefixTree({state}, new Map()), 2))"
    assert call(scene.page, "prefix_tree", script) == [2, {"branches": 3, "blocks": 6}]


def test_a_chain_is_learned_from_prompts_and_from_what_steps_fill(scene: Scene) -> None:
    state = pool({"R1": [3, 1, 0]}, ["c", "b", None, "a"])
    script = f"""(() => {{
      const chain = m.createChain();
      m.learnPrompt(chain, ["a", "b"]);
      m.learnStep(chain, {{ rows: [{{ request: "R1", scheduled: 1, computed: 12 }}] }}, {state});
      return [...chain];
    }})()"""
    learned = [[name, {"parent": parent, "index": index}] for name, (parent, index) in LINKS.items() if name in "abc"]
    assert call(scene.page, "chain", script) == learned


def test_a_prompt_that_comes_again_and_again_leaves_the_chain_what_else_it_knows(scene: Scene) -> None:
    script = """(() => {
      const chain = m.createChain();
      const hashes = (name, n) => Array.from({ length: n }, (_, i) => name + i);
      m.learnPrompt(chain, hashes("once", 300));
      for (let i = 0; i < 700; i += 1) m.learnPrompt(chain, hashes("shared", 120));
      return [chain.size, hashes("once", 300).every((hash) => chain.has(hash)), 700 * 120 > 2 * m.LINKS_KEPT];
    })()"""
    assert call(scene.page, "chain", script) == [420, True, True]


def test_a_step_that_claims_more_than_its_table_teaches_only_the_table(scene: Scene) -> None:
    state = pool({"R1": [3, 1, 0]}, ["c", "b", None, "a"])
    script = f"""(() => {{
      const chain = m.createChain();
      const many = 2 ** 53 - 1;
      m.learnStep(chain, {{ rows: [{{ request: "R1", scheduled: many, computed: many }}] }}, {state});
      return chain.size;
    }})()"""
    assert call(scene.page, "chain", script) == 3


def test_an_answer_is_taken_apart_by_what_its_tokens_wrote(scene: Scene) -> None:
    script = """(() => {
      const texts = m.createTexts();
      texts.put("R1", 0, "a🤖", [], [1, 0, 1]);
      texts.put("R1", 2, "bcd", [], [1, 2]);
      const whole = [texts.tokens("R1", 1, 3), texts.tokens("R1", 3, 9), texts.tokens("R2", 0, 1)];
      texts.put("R1", 2, "x", [], [1]);
      return [...whole, texts.tokens("R1", 0, 9)];
    })()"""
    assert call(scene.page, "texts", script) == [["", "🤖"], ["b", "cd"], None, ["a", "", "🤖", "x"]]


def test_shares_add_up_to_the_whole(scene: Scene) -> None:
    assert call(scene.page, "kv_words", "m.shareWords([1, 1, 1])") == ["33.4 %", "33.3 %", "33.3 %"]
    assert call(scene.page, "kv_words", "m.shareWords([0, 0, 8])") == ["0 %", "0 %", "100 %"]
