"""The supervisor when the machine gives it no process; what it does with one is in test_lifetime."""

from __future__ import annotations

import asyncio
import sys

import pytest

from app.engines import NAME, Supervisor
from app.hub import Hub
from app.record import Status
from app.settings import Settings
from engine.config import EngineConfig


def test_an_engine_that_cannot_be_started_is_gone_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    hub = Hub(Settings())
    asyncio.run(Supervisor(hub, EngineConfig(model="scripted"), app_url="ws://127.0.0.1:1/ws/engine").start())
    record = hub.engine(NAME)
    assert hub.status(record) is Status.GONE
    assert record.gone == "Its process could not be started: No such file or directory."
    assert record.restartable
