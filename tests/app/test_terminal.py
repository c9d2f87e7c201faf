"""What the terminal is told."""

from __future__ import annotations

import pytest

from app.hub import Hub
from app.settings import Settings
from app.terminal import Terminal
from tests.app.fakes import LocalEngine, hello_body


@pytest.fixture
def hub() -> Hub:
    hub = Hub(Settings())
    Terminal(hub)
    return hub


def test_each_phase_of_loading_is_said_and_not_each_event(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    engine = LocalEngine(hub)
    for done in range(5):
        engine.say("load", phase="download", done=done, total=4, unit="bytes")
    engine.say("load", phase="warm up", done=0, total=0, unit="steps")
    assert capsys.readouterr().out.splitlines() == ["download 0 %", "warm up …"]


def test_ready_comes_with_the_memory_sum(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    LocalEngine(hub).greet()
    out = capsys.readouterr().out
    assert out.startswith("ready in ")
    assert "KV blocks" in out


def test_what_the_engine_switched_off_is_said_at_its_start(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    engine = LocalEngine(hub)
    off = [{"feature": "cuda_graphs", "reason": "--enforce-eager"}]
    engine.say("hello", **hello_body(engine.config) | {"disabled": off})
    assert capsys.readouterr().out.splitlines()[-1] == "off: cuda_graphs (--enforce-eager)"


def test_a_lost_engine_is_said_unless_the_app_is_closing(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    LocalEngine(hub).greet()
    hub.engine_gone("main", "It broke.")
    assert "It broke." in capsys.readouterr().err
    LocalEngine(hub).greet()
    hub.close("bye")
    hub.engine_gone("main", "It was told to stop.")
    assert capsys.readouterr().err == ""
