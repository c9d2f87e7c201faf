"""What the app remembers is bounded, however many requests come by."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from app.frames import RING_FRAMES
from app.hub import Hub
from app.ledger import KEPT
from app.metrics import Metrics
from app.record import NOTES_KEPT, STEPS_KEPT
from app.settings import Settings
from tests.app.fakes import LocalEngine, row
from tests.app.processes import serving


def serve_many(hub: Hub, engine: LocalEngine, first: int, count: int) -> None:
    for number in range(first, first + count):
        request = f"R{number}"
        engine.arrived(request)
        engine.admitted(request)
        engine.text(request, 0, "some words " * 20, done=True)
        engine.step(number + 1, row(request, scheduled=8, computed=8), tables=[[request, [0]]])
        engine.finished(request)
        if number % 8 == 0:
            hub._tick(time.monotonic())


def test_everything_that_is_kept_is_bounded() -> None:
    hub = Hub(Settings())
    metrics = Metrics(hub)
    engine = LocalEngine(hub).greet()
    serve_many(hub, engine, 0, 2500)
    record = hub.engines["main"]
    assert len(hub.ledger.entries) == KEPT
    assert len(record.steps) == STEPS_KEPT
    assert len(record.notes) == NOTES_KEPT
    assert len(hub.frames._frames) <= RING_FRAMES
    assert len(record.state["requests"]) <= 32 if record.state else False
    assert metrics._accepted_us == {"main": {}}
    size = len("".join(record.history.lines()))
    serve_many(hub, engine, 2500, 2500)
    assert len("".join(record.history.lines())) < 1.5 * max(size, 24 * 2**20)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_thousands_of_requests_leave_the_memory_flat() -> None:
    with serving("--scripted-step-ms", "0") as served:
        app = psutil.Process(served.process.pid)

        def serve(count: int) -> int:
            def post(number: int) -> None:
                served.client.post("/v1/completions", json={"prompt": f"prompt {number}", "max_tokens": 4})

            with ThreadPoolExecutor(8) as clients:
                list(clients.map(post, range(count)))
            return int(app.memory_info().rss)

        settled = serve(2_000)
        assert serve(6_000) < 1.1 * settled
