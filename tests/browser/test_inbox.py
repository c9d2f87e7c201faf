"""The inbox: which messages are taken when. Frames come when the test says so."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.test_reducer import call

pytestmark = pytest.mark.browser

# `frame()` plays an animation frame; a message of "slow" takes longer than a frame's budget, of "bad" cannot be taken.
INBOX = """(() => {
  const taken = [];
  const asked = [];
  const frame = () => {
    for (const does of asked.splice(0)) {
      try { does(); } catch { taken.push("failed"); }
    }
    return taken.splice(0);
  };
  const inbox = m.createInbox((message) => {
    if (message === "bad") throw new Error(message);
    taken.push(message);
    if (message === "slow") for (const from = performance.now(); performance.now() < from + 5; );
  }, (does) => asked.push(does));
  %s
})()"""


def run(page: Page, script: str) -> Any:
    return call(page, "inbox", INBOX % script)


def test_messages_wait_for_the_frame_and_are_taken_together_in_order(still: Page) -> None:
    script = (
        'for (const each of ["a", "b", "c"]) inbox.put(each); return [taken.splice(0), asked.length, frame(), frame()];'
    )
    assert run(still, script) == [[], 1, ["a", "b", "c"], []]


def test_what_does_not_fit_a_frame_is_taken_in_the_next(still: Page) -> None:
    script = 'for (const each of ["a", "slow", "b"]) inbox.put(each); return [frame(), frame(), frame()];'
    assert run(still, script) == [["a", "slow"], ["b"], []]


def test_where_no_frames_come_who_falls_behind_takes_them_without(still: Page) -> None:
    script = "for (let i = 0; i < 100; i += 1) inbox.put(i); return taken;"
    taken = run(still, script)
    assert taken == list(range(len(taken)))
    assert len(taken) >= 75


def test_a_hidden_page_takes_each_at_once(still: Page) -> None:
    script = """
      Object.defineProperty(document, "hidden", { value: true, configurable: true });
      try { inbox.put("a"); } finally { delete document.hidden; }
      return taken;"""
    assert run(still, script) == ["a"]


def test_one_that_cannot_be_taken_does_not_hold_up_those_after_it(still: Page) -> None:
    script = 'for (const each of ["a", "bad", "b"]) inbox.put(each); return [frame(), frame()];'
    assert run(still, script) == [["a", "failed"], ["b"]]


def test_what_waited_for_a_connection_that_is_over_is_not_taken(still: Page) -> None:
    assert run(still, 'inbox.put("a"); inbox.clear(); inbox.put("b"); return frame();') == ["b"]


FAULT = """(() => {
  const made = [];
  const theirs = window.WebSocket;
  window.WebSocket = class {
    static OPEN = 1;
    constructor() {
      this.on = {};
      this.sent = [];
      this.readyState = 1;
      made.push(this);
    }
    addEventListener(kind, does) { this.on[kind] = does; }
    send(text) { this.sent.push(JSON.parse(text)); }
    close() { this.closed = true; }
  };
  const frame = (message) => {
    if (message.bad) throw new Error("it cannot be folded");
    return true;
  };
  m.connect({ frame, text() {}, took() {}, phase() {}, first: (does) => does() });
  const tell = (message) => made[0].on.message({ data: JSON.stringify({ hub: "h", events: [], ...message }) });
  made[0].on.open();
  tell({ n: 1, key: true });
  try { tell({ n: 2, bad: true }); } catch {}
  return new Promise((done) => setTimeout(() => {
    made[1].on.open();
    window.WebSocket = theirs;
    done([made[0].closed, made[1].sent[0]]);
  }, 2000));
})()"""


def test_after_a_fault_in_folding_the_page_begins_anew_from_a_key(still: Page) -> None:
    assert call(still, "socket", "await " + FAULT) == [True, {"rows": "columns"}]
