"""Who was given which block: the newest first, in bounded memory."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser


def tenants(page: Page, script: str) -> Any:
    return call(page, "tenants", f"(() => {{ const all = m.createTenants(); {script} }})()")


def test_the_owners_of_a_block_come_newest_first(still: Page) -> None:
    said = """all.put(7, "R1", 0, 3); all.put(8, "R1", 1, 3); all.put(7, "R2", 4, 9);
      return [all.of(7), all.of(8), all.of(9)];"""
    assert tenants(still, said) == [
        [{"id": "R2", "index": 4, "at": 9}, {"id": "R1", "index": 0, "at": 3}],
        [{"id": "R1", "index": 1, "at": 3}],
        [],
    ]


def test_a_block_has_so_many_at_most(still: Page) -> None:
    said = """for (let i = 0; i < 40; i += 1) all.put(7, `R${i}`, 0, i);
      return [all.of(7).length === m.OF_ONE, all.of(7)[0].id, all.of(7).at(-1).at === 40 - m.OF_ONE];"""
    assert tenants(still, said) == [True, "R39", True]


def test_what_is_older_than_all_that_is_kept_is_forgotten(still: Page) -> None:
    said = """all.put(7, "R1", 0, 1); all.put(8, "R1", 1, 1);
      for (let i = 0; i < m.MOST - 1; i += 1) all.put(100 + (i % 50), "R2", 0, 2);
      return [all.of(7).length, all.of(8).length, all.of(100).length === m.OF_ONE];"""
    assert tenants(still, said) == [0, 1, True]


def test_a_block_that_was_found_and_one_that_is_new_have_their_places(still: Page) -> None:
    """A request that finds blocks is given two lists in one step."""
    script = """(() => {
      const facts = { id: "R1", status: "running", slot: 0, num_preemptions: 0, block_table: [5, 6, 9],
        first_token_us: null };
      const state = { step: 1, num_resets: 0, config: { max_num_seqs: 1 }, requests: { R1: facts }, finished: [],
        queues: { running: ["R1"], waiting: [] }, blocks: { block_size: 16, hashes: [] } };
      const row = { request: "R1", slot: 0, phase: "prefill", scheduled: 1, drafted: 0, accepted: 0, computed: 33,
        out: 1 };
      const step = { kind: "step", step: 1, rows: [row], tables: [["R1", [5, 6]], ["R1", [9]]], hashed: [] };
      const history = m.createHistory();
      m.remember(history, step, state);
      return [5, 6, 9].map((block) => history.tenants.of(block)[0].index);
    })()"""
    assert call(still, "history", script) == [0, 1, 2]
