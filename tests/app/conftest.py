"""A running server, an engine that said hello, an HTTP client.

Clients here say `verify=False` because there is no TLS, and loading certificates takes longer than most tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from app.settings import Settings
from tests.app.fakes import FakeEngine, Running, running, until
from tests.app.processes import Served, serving


@pytest.fixture
def settings() -> Settings:
    """Override it by `indirect` parameters or in a module of its own."""
    return Settings()


@pytest.fixture
def server(settings: Settings) -> Iterator[Running]:
    with running(settings) as server:
        yield server


@pytest.fixture
def engine(server: Running) -> Iterator[FakeEngine]:
    engine = FakeEngine(server).dial().greet()
    until(lambda: (record := server.hub.engines.get("main")) and record.epoch == engine.epoch and record.state)
    yield engine
    engine.hang_up()


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=10, verify=False) as client:
        yield client


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """A served scripted model for all tests of a module: they leave it as they found it."""
    with serving("--scripted-step-ms", "5") as served:
        yield served


@pytest.fixture
def served() -> Iterator[Served]:
    """A served scripted model for one test, which may break it."""
    with serving("--scripted-step-ms", "5") as served:
        yield served
