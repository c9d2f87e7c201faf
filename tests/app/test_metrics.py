"""/metrics: true while idle, whole across restarts, and no sample for what is undefined."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app.hub import Hub
from app.metrics import Metrics
from app.settings import Settings
from tests.app.fakes import LocalEngine, row

Read = Callable[..., float | None]


@pytest.fixture
def hub() -> Hub:
    return Hub(Settings())


@pytest.fixture
def read(hub: Hub) -> Read:
    """The value of one sample of the page, or None."""
    metrics = Metrics(hub)

    def value(name: str, **labels: str) -> float | None:
        page = generate_latest(metrics.registry).decode()
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
        found = [s.value for s in samples if s.name == f"stepscope:{name}" and labels.items() <= s.labels.items()]
        return found[0] if found else None

    return value


@pytest.fixture
def engine(hub: Hub, read: Read) -> LocalEngine:
    return LocalEngine(hub).greet()


def serve(engine: LocalEngine, request: str, reason: str = "stop", **known: object) -> None:
    engine.arrived(request, prompt_tokens=8)
    engine.admitted(request, cached=2)
    engine.step(1, row(request, scheduled=8, computed=8), tables=[[request, [0]]])
    engine.finished(request, reason, tokens=1, **known)


def test_a_fresh_engine_shows_zeros(engine: LocalEngine, read: Read) -> None:
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "generation_tokens_total"):
        assert read(name, engine="main") == 0
    assert read("time_to_first_token_seconds_count", engine="main") == 0


def test_gauges_follow_the_state(engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.arrived("R2")
    engine.admitted("R1")
    engine.step(1, row("R1", scheduled=8, computed=8), tables=[["R1", [0, 1]]])
    assert read("num_requests_running") == 1
    assert read("num_requests_waiting") == 1
    assert read("kv_cache_usage_perc") == 2 / 16


def test_gauges_are_zero_after_an_abort_without_a_step(engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    engine.finished("R1", "abort", tokens=0)
    assert read("num_requests_running") == 0
    assert read("request_success_total", finished_reason="abort") == 1


def test_counters_count(engine: LocalEngine, read: Read) -> None:
    serve(engine, "R1")
    assert read("prompt_tokens_total") == 8
    assert read("generation_tokens_total") == 1
    assert read("prefix_cache_queries_total") == 8
    assert read("prefix_cache_hits_total") == 2
    assert read("request_success_total", finished_reason="stop") == 1


def test_the_time_that_a_gpu_worked_is_counted_beside_the_time_of_steps(engine: LocalEngine, read: Read) -> None:
    engine.step(1, wall_us=1000)
    assert read("engine_step_seconds_total") == 0.001
    assert read("device_busy_seconds_total") is None
    engine.step(2, wall_us=1000, device_us=900)
    engine.step(3, wall_us=1000, device_us=900, gated=True)
    assert read("engine_step_seconds_total") == 0.002
    assert read("device_busy_seconds_total") == 0.0009


def test_counters_go_on_after_a_restart(hub: Hub, engine: LocalEngine, read: Read) -> None:
    serve(engine, "R1")
    again = LocalEngine(hub).greet()
    assert read("generation_tokens_total") == 1
    serve(again, "R2")
    assert read("generation_tokens_total") == 2
    assert read("prompt_tokens_total") == 16


def test_histograms_take_seconds(engine: LocalEngine, read: Read) -> None:
    serve(engine, "R1", ttft_us=3_000_000, queue_us=2_000_000, prefill_us=1_000_000, e2e_us=6_000_000)
    assert read("time_to_first_token_seconds_sum") == 3
    assert read("request_queue_time_seconds_sum") == 2
    assert read("e2e_request_latency_seconds_sum") == 6


def test_what_is_undefined_gives_no_sample(engine: LocalEngine, read: Read) -> None:
    serve(engine, "R1", ttft_us=3_000_000)
    assert read("request_time_per_output_token_seconds_count") == 0


def test_tpot_has_vllms_name_and_the_one_that_it_had(engine: LocalEngine, read: Read) -> None:
    serve(engine, "R1", tpot_us=300.0)
    for name in ("request_time_per_output_token_seconds", "time_per_output_token_seconds"):
        assert read(f"{name}_sum") == 0.0003
        assert (read(f"{name}_bucket", le="0.00025"), read(f"{name}_bucket", le="0.0005")) == (0, 1)


def test_guesses_are_counted_where_there_are_any(engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    engine.step(1, row("R1", scheduled=8, computed=8))
    assert read("spec_decode_num_draft_tokens_total") is None
    engine.step(2, {**row("R1", scheduled=4, computed=11, out=3), "drafted": 3, "accepted": 2})
    assert read("spec_decode_num_draft_tokens_total") == 3
    assert read("spec_decode_num_accepted_tokens_total") == 2


def test_what_preemptions_cost_is_counted(engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    engine.step(1, row("R1", scheduled=8, computed=8), num_decode_tokens=2)
    engine.preempted("R1", by="R2", num_lost_tokens=8)
    assert read("preemption_lost_tokens_total") == 8
    assert read("prefix_cache_reread_tokens_total") == 0
    assert read("decode_tokens_total") == 2


def test_a_request_that_the_gate_held_gives_no_sample(engine: LocalEngine, read: Read) -> None:
    serve(engine, "R1", ttft_us=3_000_000, gated_us=5)
    assert read("time_to_first_token_seconds_count") == 0


def test_inter_token_latency_is_the_gap_between_deliveries(engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    engine.step(1, row("R1", scheduled=8, computed=8), accepted_us=1_000_000)
    engine.step(2, row("R1", computed=9), accepted_us=1_500_000)
    engine.step(3, row("R1", computed=10), accepted_us=1_750_000)
    assert read("inter_token_latency_seconds_count") == 2
    assert read("inter_token_latency_seconds_sum") == 0.75


def deliver(engine: LocalEngine, number: int, accepted_us: int) -> None:
    """A step that gives R1 one token."""
    engine.step(number, row("R1", computed=7 + number), accepted_us=accepted_us)


def test_a_gap_that_the_gate_held_is_no_inter_token_latency(engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    deliver(engine, 1, 1_000_000)
    engine.say("gate", state="paused", steps_left=0)
    engine.say("gate", state="running", steps_left=0)
    deliver(engine, 2, 61_000_000)
    deliver(engine, 3, 61_250_000)
    assert read("inter_token_latency_seconds_count") == 1
    assert read("inter_token_latency_seconds_sum") == 0.25


def test_a_gap_in_which_deliveries_were_lost_is_no_inter_token_latency(engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    deliver(engine, 1, 1_000_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "send_raw", lambda text: None)
        deliver(engine, 2, 1_250_000)
    engine.beat()
    engine.key()
    deliver(engine, 3, 1_500_000)
    assert read("inter_token_latency_seconds_count") == 0


def test_an_engine_that_starts_disturbs_nobody_elses_inter_token_latency(
    hub: Hub, engine: LocalEngine, read: Read
) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    deliver(engine, 1, 1_000_000)
    LocalEngine(hub, "other").greet()
    deliver(engine, 2, 1_250_000)
    assert read("inter_token_latency_seconds_count", engine="main") == 1


def test_an_engine_that_is_gone_runs_nothing(hub: Hub, engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.admitted("R1")
    hub.engine_gone("main", "It broke.")
    assert read("num_requests_running") == 0
    assert read("engine_up") == 0


def test_requests_that_an_engine_took_with_it_ended_with_an_error(hub: Hub, engine: LocalEngine, read: Read) -> None:
    for request in ("R1", "R2", "R3"):
        engine.arrived(request)
    engine.admitted("R1")
    engine.finished("R3", "abort")
    hub.engine_gone("main", "It broke.")
    hub.engine_gone("main", "It broke, and is gone.")
    assert read("request_success_total", finished_reason="error") == 2
    LocalEngine(hub).greet()
    assert read("request_success_total", finished_reason="error") == 2
    assert read("request_success_total", finished_reason="abort") == 1


def test_requests_of_an_engine_that_came_back_as_another_ended_with_an_error(
    hub: Hub, engine: LocalEngine, read: Read
) -> None:
    engine.arrived("R1")
    LocalEngine(hub).greet()
    assert read("request_success_total", finished_reason="error") == 1


def test_requests_that_ended_before_their_engine_left_are_counted_once(engine: LocalEngine, read: Read) -> None:
    engine.arrived("R1")
    engine.finished("R1", "error", tokens=0)
    engine.say("bye", reason="It was told to stop.", origin="engine")
    assert read("request_success_total", finished_reason="error") == 1


def test_there_is_one_series_per_engine(hub: Hub, engine: LocalEngine, read: Read) -> None:
    LocalEngine(hub, "other").greet()
    assert read("num_requests_running", engine="main") == 0
    assert read("num_requests_running", engine="other") == 0
