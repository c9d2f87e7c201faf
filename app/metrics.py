"""/metrics: Prometheus, prefix `stepscope:`, vLLM's suffixes where the meaning is equal.

Gauges and counters are read from the folded state when asked for, so they are true while idle and after an abort;
histograms take one sample per finished request, that of ITL one per gap between deliveries. An undefined duration
gives no sample, and neither does one that the gate held or in which events were lost. One series per engine; counters
go on across restarts. A request that was live when its engine died ended with an error, as its caller was told: it is
counted then, and not taken back should the engine be heard of again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response

from app.hub import Hub
from app.record import EngineRecord, Status
from app.state import empty_totals
from app.tally import BUCKETS, Tally
from app.wire import Json

PREFIX = "stepscope:"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HISTOGRAMS = (
    ("ttft_us", "time_to_first_token_seconds", "First output token minus arrival, queueing included."),
    (
        "tpot_us",
        "request_time_per_output_token_seconds",
        "Decode time over output tokens minus one, per request (TPOT).",
    ),
    ("e2e_us", "e2e_request_latency_seconds", "Last output token, or end, minus arrival."),
    ("queue_us", "request_queue_time_seconds", "First scheduled minus arrival."),
    ("prefill_us", "request_prefill_time_seconds", "First output token minus first scheduled."),
    ("decode_us", "request_decode_time_seconds", "Last output token minus first output token."),
    (
        "tpot_us",
        "time_per_output_token_seconds",
        "The same as request_time_per_output_token_seconds, vLLM's name.",
    ),
)
_COUNTERS = {
    "output_tokens": ("generation_tokens", "Output tokens accepted."),
    "preemptions": ("num_preemptions", "Preemptions by recompute."),
    "prefix_queried_tokens": ("prefix_cache_queries", "Prompt tokens looked up at first admission."),
    "prefix_hit_tokens": ("prefix_cache_hits", "Prompt tokens found in the prefix cache at first admission."),
    "reread_tokens": ("prefix_cache_reread_tokens", "Tokens found in the prefix cache after a preemption."),
    "lost_tokens": ("preemption_lost_tokens", "Computed tokens that preemptions threw away."),
    "steps": ("engine_steps", "Engine steps."),
    "decode_tokens": ("decode_tokens", "Tokens computed in decode rows, guesses included."),
    "prefill_tokens": ("prefill_tokens", "Tokens computed in prefill rows, recomputation included."),
    "evictions": ("block_evictions", "Cached idle blocks whose hash was dropped."),
    "rejected": ("request_rejected", "Requests refused at the door."),
}

_GUESSES = (
    ("spec_decode_num_draft_tokens", "Tokens guessed ahead"),
    ("spec_decode_num_accepted_tokens", "Guesses that were right"),
)


@dataclass(slots=True)
class _Epoch:
    """An engine's epoch when last looked at."""

    name: str | None
    state: Json
    over: bool = False  # its end has been seen, and its live requests counted

    def num_live(self) -> int:
        return sum(map(len, self.state["queues"].values()))


class Metrics:
    """The registry, fed by the hub's events."""

    def __init__(self, hub: Hub) -> None:
        self.registry = CollectorRegistry()
        self._hub = hub
        self._before: dict[str, Json] = {}  # totals of an engine's earlier epochs
        self._current: dict[str, _Epoch] = {}
        self._lost: dict[str, int] = {}  # requests that were live when their engine died
        self._prompt_tokens: dict[str, int] = {}
        self._step_us: dict[str, int] = {}  # wall time of steps
        self._device_us: dict[str, int] = {}  # of engines with a device that has a clock
        self._guesses: dict[str, list[int]] = {}  # drafted, accepted; engines that guess
        self._accepted_us: dict[str, dict[str, int]] = {}  # engine -> request -> when its last delivery was
        self._histograms = [
            (field, Histogram(PREFIX + name, text, ["engine"], buckets=BUCKETS, registry=self.registry))
            for field, name, text in _HISTOGRAMS
        ]
        self._itl: dict[str, Tally] = {}
        self.registry.register(self)
        hub.observers.append(self.observe)

    # -- events ----------------------------------------------------------------------------------------------

    def observe(self, record: EngineRecord, event: Json) -> None:
        """The hub's observer: takes samples, and keeps counters whole across epochs."""
        if event["kind"] == "step":
            self._observe_step(record.id, event)
        elif event["kind"] == "request":
            self._observe_request(record.id, event)
        elif event["kind"] in ("hello", "gate", "gap"):
            self._accepted_us.pop(record.id, None)  # what comes next is no gap between two deliveries
        if event["kind"] == "hello":
            self._show_series(record.id)
        if record.state is not None:
            self._note_totals(record)
        if event["kind"] == "bye":
            self._count_lost(record.id)

    def _show_series(self, engine: str) -> None:
        """An engine without samples yet has its series all the same, at 0."""
        for _, histogram in self._histograms:
            histogram.labels(engine)
        self._itl.setdefault(engine, Tally())

    def _observe_request(self, engine: str, event: Json) -> None:
        if event["event"] == "arrived":
            self._prompt_tokens[engine] = self._prompt_tokens.get(engine, 0) + event["num_prompt_tokens"]
        elif event["event"] == "finished":
            self._accepted_us.get(engine, {}).pop(event["request"], None)
            if event["timings"]["gated_us"]:
                return
            for field, histogram in self._histograms:
                value = event["timings"][field]
                if value is not None:
                    histogram.labels(engine).observe(value / 1e6)

    def _observe_step(self, engine: str, event: Json) -> None:
        if not event["gated"]:
            self._step_us[engine] = self._step_us.get(engine, 0) + event["wall_us"]
            if event.get("device_us") is not None:
                self._device_us[engine] = self._device_us.get(engine, 0) + event["device_us"]
        if drafted := sum(row["drafted"] for row in event["rows"]):
            guesses = self._guesses.setdefault(engine, [0, 0])
            guesses[0] += drafted
            guesses[1] += sum(row["accepted"] for row in event["rows"])
        last_us, now_us = self._accepted_us.setdefault(engine, {}), event["accepted_us"]
        delivered = [row["request"] for row in event["rows"] if row["out"]]
        if not event["gated"]:
            tally = self._itl.setdefault(engine, Tally())
            for before_us, times in Counter(map(last_us.get, delivered)).items():
                if before_us is not None:
                    tally.take((now_us - before_us) / 1e6, times)
        last_us.update(dict.fromkeys(delivered, now_us))

    def _note_totals(self, record: EngineRecord) -> None:
        assert record.state is not None
        current = self._current.get(record.id)
        if current is not None and current.name != record.epoch:
            self._count_lost(record.id)
            self._before[record.id] = _sum(self._before.get(record.id) or empty_totals(), current.state["totals"])
        over = current is not None and current.name == record.epoch and current.over and record.gone is not None
        self._current[record.id] = _Epoch(record.epoch, record.state, over)

    def _count_lost(self, engine: str) -> None:
        """The epoch is over: what was live in it ends with an error, once."""
        current = self._current.get(engine)
        if current is not None and not current.over:
            current.over = True
            self._lost[engine] = self._lost.get(engine, 0) + current.num_live()

    # -- scrapes ---------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's collector protocol."""
        engines = list(self._hub.engines.values())
        yield from self._gauges(engines)
        totals = {record.id: self._totals(record) for record in engines}
        for member, (name, text) in _COUNTERS.items():
            family = CounterMetricFamily(PREFIX + name, text, labels=["engine"])
            for engine, sums in totals.items():
                family.add_metric([engine], sums[member])
            yield family
        prompts = CounterMetricFamily(f"{PREFIX}prompt_tokens", "Prompt tokens of requests taken.", labels=["engine"])
        success = CounterMetricFamily(
            f"{PREFIX}request_success", "Requests that ended, by reason.", labels=["engine", "finished_reason"]
        )
        for engine, sums in totals.items():
            prompts.add_metric([engine], self._prompt_tokens.get(engine, 0))
            for reason, count in sums["finished"].items():
                success.add_metric([engine, reason], count + (self._lost.get(engine, 0) if reason == "error" else 0))
        yield prompts
        yield success
        gaps = HistogramMetricFamily(
            f"{PREFIX}inter_token_latency_seconds",
            "Gap between consecutive deliveries of one request (ITL).",
            labels=["engine"],
        )
        for engine, tally in self._itl.items():
            tally.add_to(gaps, engine)
        yield gaps
        yield from self._times(engines)
        yield from self._speculation()

    def _times(self, engines: list[EngineRecord]) -> Iterator[Metric]:
        steps = CounterMetricFamily(f"{PREFIX}engine_step_seconds", "Wall time of engine steps.", labels=["engine"])
        device = CounterMetricFamily(
            f"{PREFIX}device_busy_seconds", "Of that, while a GPU worked; no series without one.", labels=["engine"]
        )
        for record in engines:
            steps.add_metric([record.id], self._step_us.get(record.id, 0) / 1e6)
            if record.id in self._device_us:
                device.add_metric([record.id], self._device_us[record.id] / 1e6)
        yield from (steps, device)

    def _speculation(self) -> Iterator[Metric]:
        for index, (name, text) in enumerate(_GUESSES):
            family = CounterMetricFamily(PREFIX + name, f"{text}; no series without speculation.", labels=["engine"])
            for engine, counts in self._guesses.items():
                family.add_metric([engine], counts[index])
            yield family

    def _totals(self, record: EngineRecord) -> Json:
        before = self._before.get(record.id) or empty_totals()
        current = self._current.get(record.id)
        return _sum(before, current.state["totals"]) if current else before

    def _gauges(self, engines: list[EngineRecord]) -> Iterator[Metric]:
        running = GaugeMetricFamily(f"{PREFIX}num_requests_running", "Requests in the batch.", labels=["engine"])
        waiting = GaugeMetricFamily(f"{PREFIX}num_requests_waiting", "Requests in the queue.", labels=["engine"])
        usage = GaugeMetricFamily(
            f"{PREFIX}kv_cache_usage_perc", "Referenced / usable blocks, 0 to 1.", labels=["engine"]
        )
        for record in engines:
            alive = self._hub.status(record) in (Status.READY, Status.PAUSED, Status.SILENT)
            queues = record.state["queues"] if record.state and alive else {"running": [], "waiting": []}
            running.add_metric([record.id], len(queues["running"]))
            waiting.add_metric([record.id], len(queues["waiting"]))
            counts = record.state["blocks"]["counts"] if record.state and alive else {"referenced": 0, "total": 1}
            usage.add_metric([record.id], counts["referenced"] / max(1, counts["total"]))
        viewers = GaugeMetricFamily(f"{PREFIX}viewers", "Viewers connected.")
        viewers.add_metric([], len(self._hub.viewers))
        up = GaugeMetricFamily(f"{PREFIX}engine_up", "1 when the engine takes requests.", labels=["engine"])
        for record in engines:
            up.add_metric([record.id], self._hub.status(record) in (Status.READY, Status.PAUSED))
        yield from (running, waiting, usage, viewers, up)


def _sum(one: Json, other: Json) -> Json:
    """Two totals added member by member, the nested counts of `finished` included."""
    return {
        name: _sum(value, other.get(name) or {}) if isinstance(value, dict) else value + other.get(name, 0)
        for name, value in one.items()
    }


async def metrics(request: Request) -> Response:
    """GET /metrics"""
    page: Metrics = request.state.metrics
    return Response(generate_latest(page.registry), media_type=CONTENT_TYPE)
