"""What every duration means, by a clock that the test moves."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import events
from engine.device_clock import EventClock
from engine.events import Timings
from engine.request import Request
from engine.runner import SchedulerOutput
from engine.timing import StepTimer, monotonic_clock, timings
from tests.engine.harness import FakeClock, Harness, RecordingRunner, letters, scripted


class SlowRunner(RecordingRunner):
    """Its forward takes `us` microseconds of the fake clock."""

    def __init__(self, clock: FakeClock, us: int) -> None:
        super().__init__(letters)
        self._clock, self._us = clock, us

    def forward(self, batch: SchedulerOutput) -> SchedulerOutput:
        self._clock.advance(self._us)
        return super().forward(batch)


def slow_engine(us: int = 1, **config) -> Harness:
    engine = Harness(**config)
    engine.runner = engine.core.runner = SlowRunner(engine.clock, us)
    return engine


def told(engine: Harness) -> Timings:
    (finished,) = engine.of(events.Finished)
    return finished.timings


# -- one request -------------------------------------------------------------------------------------------------


def test_the_golden_values_of_the_fake_clock():
    """A49: arrive 0, scheduled 2, first token 3, more at 4, 5, 6."""
    engine = slow_engine()
    engine.add("abc", max_tokens=4)
    engine.clock.advance(2)
    engine.run()
    assert told(engine) == Timings(
        queue_us=2, prefill_us=1, ttft_us=3, decode_us=3, tpot_us=1.0, e2e_us=6, preempted_us=0, gated_us=0
    )


def test_ttft_is_queue_and_prefill():
    engine = slow_engine(us=7)
    engine.add("abc", max_tokens=3)
    engine.clock.advance(100)
    engine.run()
    found = told(engine)
    assert found.ttft_us == found.queue_us + found.prefill_us == 107


def test_the_first_token_of_a_chunked_prompt_comes_with_its_last_chunk():
    """A50, A52: one first token, one record, however many chunks."""
    engine = slow_engine(max_num_batched_tokens=16)
    engine.add("x" * 60, max_tokens=2)
    engine.run()
    assert told(engine).prefill_us == 4
    for kind in (events.Arrived, events.Admitted, events.FirstToken, events.Finished):
        assert len(engine.of(kind)) == 1


def test_a_queue_of_others_counts_as_queue_time():
    engine = slow_engine(max_num_seqs=1)
    engine.add("a", max_tokens=5)
    engine.add("b", max_tokens=1)
    engine.run()
    first, second = engine.of(events.Finished)
    assert (first.timings.queue_us, second.timings.queue_us) == (0, 5)


def test_one_token_has_no_time_per_output_token():
    engine = slow_engine()
    engine.add("abc", max_tokens=1)
    engine.run()
    found = told(engine)
    assert (found.decode_us, found.tpot_us) == (0, None)


def test_a_stop_token_is_an_output_token():
    engine = Harness(scripted([97, 98]))
    engine.add("abc")
    engine.run()
    (finished,) = engine.of(events.Finished)
    assert finished.num_output_tokens == 3


def test_a_request_that_was_never_scheduled_has_no_times_but_its_life():
    """Undefined is None, never 0."""
    engine = Harness(start_paused=True)
    request = engine.add("abc")
    engine.clock.advance(9)
    engine.core.abort(request.request_id)
    assert told(engine) == Timings(
        queue_us=None,
        prefill_us=None,
        ttft_us=None,
        decode_us=None,
        tpot_us=None,
        e2e_us=9,
        preempted_us=0,
        gated_us=9,
    )


def test_a_request_aborted_within_its_prompt_has_a_queue_time_and_no_first_token():
    engine = slow_engine(max_num_batched_tokens=16)
    request = engine.add("x" * 60)
    engine.clock.advance(2)
    engine.step()
    engine.core.abort(request.request_id)
    found = told(engine)
    assert (found.queue_us, found.prefill_us, found.ttft_us, found.e2e_us) == (2, None, None, 3)


def test_the_end_is_the_last_token_where_there_is_one():
    engine = slow_engine()
    request = engine.add("abc", max_tokens=9)
    engine.step()
    engine.clock.advance(50)
    engine.core.abort(request.request_id)
    assert told(engine).e2e_us == 1


def test_the_ttft_of_a_batch_is_not_divided_among_its_members():
    """A49: openvinotoolkit/openvino.genai#1414."""
    engine = slow_engine(us=40)
    for letter in "abcd":
        engine.add(letter, max_tokens=1)
    engine.run()
    assert [event.timings.ttft_us for event in engine.of(events.Finished)] == [40] * 4


@settings(max_examples=settings.default.max_examples // 2)
@given(
    gaps=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    us=st.integers(0, 3),
    num_blocks=st.integers(6, 20),
)
def test_the_moments_of_a_life_come_in_order(gaps, us, num_blocks):
    """A49: arrival <= scheduled <= first <= last, preemptions or not."""
    engine = slow_engine(us, num_blocks=num_blocks, watermark=0.0, max_num_batched_tokens=24)
    requests = []
    for gap in gaps:
        requests.append(engine.add("x" * (10 + 10 * gap), max_tokens=30))
        for _ in range(gap):
            engine.step(us=gap)
    engine.run()
    for request in requests:
        moments = [request.arrival_us, request.scheduled_us, request.first_token_us, request.last_token_us]
        assert moments == sorted(moments)
        assert request.last_token_us <= request.finished_us
        found = timings(request)
        assert found.ttft_us == found.queue_us + found.prefill_us
        assert found.e2e_us == found.ttft_us + found.decode_us
        assert 0 <= found.preempted_us <= found.e2e_us


def test_timings_of_a_fresh_request_are_all_undefined():
    request: Request = Harness().request("abc")
    found = timings(request)
    assert [found.queue_us, found.prefill_us, found.ttft_us, found.decode_us, found.tpot_us, found.e2e_us] == [None] * 6


# -- the clock ---------------------------------------------------------------------------------------------------


def test_the_clock_does_not_know_what_the_wall_says(monkeypatch):
    """A51: the wall clock set back an hour changes no duration."""
    clock = monotonic_clock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert 0 <= before <= clock() < 3_600_000_000


# -- one step ----------------------------------------------------------------------------------------------------


def steps_of(engine: Harness) -> list[events.Step]:
    return engine.of(events.Step)


def test_phases_are_laps_of_the_step():
    engine = slow_engine(us=40)
    engine.add("abc", max_tokens=1)
    engine.step()
    (step,) = steps_of(engine)
    assert step.phases_us == {"publish": 0, "schedule": 0, "prepare": 0, "forward": 40, "sample": 0, "update": 0}
    assert set(step.scopes) == set(step.phases_us)
    assert step.wall_us == 40


def test_tokens_are_accepted_when_the_sample_is_there():
    engine = slow_engine(us=40)
    engine.add("abc", max_tokens=1)
    engine.step()
    (step,) = steps_of(engine)
    (first,) = engine.of(events.FirstToken)
    assert step.accepted_us == first.first_token_us == 40


def test_consecutive_steps_tile_the_time():
    """What a step cannot time of itself, handing over its event, is the next one's publish; nothing is lost."""
    clock = FakeClock()
    timer = StepTimer(clock)
    spans = []
    for _ in range(3):
        timer.begin()
        clock.advance(10)
        timer.lap("forward")
        spans.append((timer.start_us, timer.end_us, dict(timer.phases_us), timer.wall_us))
        clock.advance(2)
        timer.published()
        clock.advance(1)  # commands
    assert [(start, end) for start, end, _, _ in spans] == [(0, 10), (10, 23), (23, 36)]
    assert [phases["publish"] for _, _, phases, _ in spans] == [0, 2, 2]
    assert spans[1][3] - sum(spans[1][2].values()) == 1  # other


def test_after_idling_a_step_begins_by_itself():
    clock = FakeClock()
    timer = StepTimer(clock)
    timer.begin()
    timer.lap("forward")
    timer.published()
    timer.idle()
    clock.advance(1000)
    timer.begin()
    assert (timer.start_us, timer.phases_us) == (1000, {"publish": 0})


class DeviceRunner(SlowRunner):
    """Launches for 5 µs, then waits `us` for a device that works `device_us` on it."""

    def __init__(self, clock: FakeClock, us: int, device_us: dict[str, int]) -> None:
        super().__init__(clock, us=5)
        self._wait_us, self._device_us = us, device_us

    def sample(self, batch: SchedulerOutput, logits: SchedulerOutput) -> list[list[int]]:
        self._clock.advance(self._wait_us)
        return super().sample(batch, logits)

    def device_us(self) -> dict[str, int]:
        return self._device_us


def device_step(us: int, **device_us: int) -> events.Step:
    engine = Harness()
    engine.runner = engine.core.runner = DeviceRunner(engine.clock, us, device_us)
    engine.add("abc", max_tokens=1)
    engine.step()
    engine.check()
    return engine.of(events.Step)[-1]


def test_a_phase_on_a_device_takes_what_the_device_took():
    """The host launched for 5 µs and waited for 95; the device worked for 80 of them."""
    step = device_step(95, forward=72, sample=8)
    assert step.phases_us == {"publish": 0, "schedule": 0, "prepare": 0, "forward": 72, "sample": 8, "update": 0}
    assert (step.wall_us, step.device_us) == (100, 80)
    assert step.wall_us - sum(step.phases_us.values()) == 20  # other: the device stood still
    assert {phase for phase, scope in step.scopes.items() if scope == "device"} == {"forward", "sample"}


def test_a_chunk_that_draws_no_token_takes_what_the_device_took_all_the_same():
    step = device_step(95, forward=72, sample=0)
    assert (step.phases_us["forward"], step.phases_us["sample"], step.device_us) == (72, 0, 72)


def test_two_clocks_never_make_the_parts_more_than_the_whole():
    step = device_step(95, forward=99, sample=9)
    assert (step.phases_us["forward"], step.phases_us["sample"], step.device_us) == (99, 1, 100)


def test_without_a_device_nothing_is_said_of_one():
    engine = slow_engine()
    engine.add("abc", max_tokens=1)
    engine.step()
    (step,) = steps_of(engine)
    assert step.device_us is None
    assert set(step.scopes.values()) == {"host"}


class FakeEvents:
    """Events of a device that takes 2 ms from any one to the next, and is `done` or has to be waited for."""

    def __init__(self) -> None:
        self.made = self.recorded = self.waits = 0
        self.done = True

    def __call__(self) -> FakeEvents.Event:
        self.made += 1
        return FakeEvents.Event(self)

    class Event:
        def __init__(self, device: FakeEvents) -> None:
            self._device = device

        def record(self) -> None:
            self._device.recorded += 1
            self.at_ms = 2.0 * self._device.recorded

        def query(self) -> bool:
            return self._device.done

        def synchronize(self) -> None:
            self._device.waits += 1

        def elapsed_time(self, end: FakeEvents.Event) -> float:
            return end.at_ms - self.at_ms


def test_spans_of_a_phase_add_up_and_events_are_used_again():
    device = FakeEvents()
    clock = EventClock(device)
    for _ in range(3):
        for phase in ("draft", "draft", "forward"):
            with clock.span(phase):
                pass
        assert clock.read() == {"draft": 4000, "forward": 2000}
    assert (device.made, device.waits) == (6, 0)
    assert clock.read() == {}


def test_work_that_nobody_waited_for_is_waited_for_once():
    device = FakeEvents()
    device.done = False
    clock = EventClock(device)
    for _ in range(2):
        with clock.span("forward"):
            pass
    assert clock.read() == {"forward": 4000}
    assert device.waits == 1


@pytest.mark.parametrize("us", [0, 25])
def test_the_phases_never_add_up_to_more_than_the_wall(us):
    engine = slow_engine(us)
    engine.add("abc", max_tokens=5)
    while engine.core.has_work:
        engine.step(us=3)
    for step in steps_of(engine):
        assert sum(step.phases_us.values()) <= step.wall_us
