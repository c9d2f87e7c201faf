"""The numbers of a whole run, from its events, as METRICS defines them: the same for a measured and a simulated one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.recording import Json, Recording

PERCENTILES = (50, 95, 99)
HELD_US = 1000  # steps tile the time while there is work; where they do not by more than this, the gate was held


@dataclass(frozen=True, slots=True)
class Summary:
    """Times in microseconds. What is undefined is None, never 0.

    Requests that overlap a gated span have no times; gaps between deliveries only are left out if the gate had a part
    in that very gap, as static/js/itl.js has it.
    """

    makespan_us: int  # from the first arrival to the last token
    num_steps: int
    num_finished: int
    num_rejected: int
    prefill_tokens: int  # scheduled
    decode_tokens: int  # scheduled
    output_tokens: int
    output_tokens_per_s: float | None
    slot_occupancy: float | None  # slot-steps with work / (max_num_seqs × steps)
    preemptions: int
    lost_tokens: int
    most_preemptions: int  # of one request
    cached_tokens: int  # prompt tokens found in the prefix cache at first admission
    peak_blocks: int  # referenced
    max_step_tokens: int
    worst_gap_us: int | None  # longest time between two deliveries of one request
    ttft_us: dict[str, float | None]
    tpot_us: dict[str, float | None]


def summarize(recording: Recording) -> Summary:
    """Over all of a recording's events."""
    steps = recording.steps()
    requests = [event for event in recording.events if event["kind"] == "request"]
    arrived, finished, rejected, admitted, preempted = (
        [event for event in requests if event["event"] == name]
        for name in ("arrived", "finished", "rejected", "admitted", "preempted")
    )
    rows = [row for step in steps for row in step["rows"]]
    ends = [step["accepted_us"] for step in steps if step["rows"]]
    starts = [event["arrival_us"] for event in arrived] or [step["start_us"] for step in steps]
    makespan = max(0, max(ends) - min(starts)) if ends else 0
    output = sum(row["out"] for row in rows)
    timed = [event["timings"] for event in finished if not event["timings"]["gated_us"]]
    slots = _slot_steps(recording)
    return Summary(
        makespan_us=makespan,
        num_steps=len(steps),
        num_finished=len(finished),
        num_rejected=len(rejected),
        prefill_tokens=sum(step["num_prefill_tokens"] for step in steps),
        decode_tokens=sum(step["num_decode_tokens"] for step in steps),
        output_tokens=output,
        output_tokens_per_s=output / makespan * 1e6 if makespan else None,
        slot_occupancy=len(rows) / slots if slots else None,
        preemptions=len(preempted),
        lost_tokens=sum(event["num_lost_tokens"] for event in preempted),
        most_preemptions=max((event["num_preemptions"] for event in preempted), default=0),
        cached_tokens=sum(event["cached"] for event in admitted),
        peak_blocks=max((step["blocks"]["referenced"] for step in steps), default=0),
        max_step_tokens=max((step["num_scheduled_tokens"] for step in steps), default=0),
        worst_gap_us=max(gaps_us(steps), default=None),
        ttft_us=_percentiles([times["ttft_us"] for times in timed]),
        tpot_us=_percentiles([times["tpot_us"] for times in timed]),
    )


def _slot_steps(recording: Recording) -> int:
    """Slots over all steps; their number can be changed in between."""
    slots, total = recording.hello["config"]["max_num_seqs"], 0
    for event in recording.events:
        if event["kind"] == "step":
            total += slots
        elif event["kind"] == "config":
            slots = event["changed"].get("max_num_seqs", slots)
        elif event["kind"] == "key":
            slots = event["state"].get("config", {}).get("max_num_seqs", slots)
    return int(total)


def gaps_us(steps: Sequence[Json]) -> Iterator[int]:
    """ITL: every gap between two consecutive deliveries of a request in which no hand was on the gate and no step is
    missing."""
    last: dict[str, int] = {}
    before: Json | None = None
    for step in steps:
        if step["gated"] or (before is not None and _is_held(before, step)):
            last.clear()
        for row in step["rows"]:
            if row["out"]:
                if row["request"] in last:
                    yield step["accepted_us"] - last[row["request"]]
                last[row["request"]] = step["accepted_us"]
        before = step


def _is_held(before: Json, step: Json) -> bool:
    """Whether something other than the engine's work lies between two steps: the gate, idleness, or lost steps."""
    ended_us = before["start_us"] + before["wall_us"]
    return bool(step["step"] != before["step"] + 1 or step["start_us"] - ended_us > HELD_US)


def _percentiles(samples: Sequence[float | None]) -> dict[str, float | None]:
    known = [sample for sample in samples if sample is not None]
    return {f"p{p}": float(np.percentile(known, p, method="inverted_cdf")) if known else None for p in PERCENTILES}


def table(columns: dict[str, Summary]) -> str:
    """One line per number, one column per run."""
    lines = [("", *columns)]
    runs = list(columns.values())
    lines += [(name, *(_shown(show(run), unit) for run in runs)) for name, unit, show in _LINES]
    widths = [max(len(line[i]) for line in lines) for i in range(len(runs) + 1)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    )


def _shown(value: Any, unit: str) -> str:
    if value is None:
        return "–"
    match unit:
        case "s":
            return f"{value / 1e6:.2f} s"
        case "ms":
            return f"{value / 1e3:.1f} ms"
        case "%":
            return f"{value:.1%}"
        case "":
            return f"{value}"
    return f"{value:.1f} {unit}"


_LINES: list[tuple[str, str, Any]] = [
    ("makespan", "s", lambda run: run.makespan_us),
    ("steps", "", lambda run: run.num_steps),
    ("finished", "", lambda run: run.num_finished),
    ("rejected", "", lambda run: run.num_rejected),
    ("output", "tok/s", lambda run: run.output_tokens_per_s),
    ("prefill tokens", "", lambda run: run.prefill_tokens),
    ("decode tokens", "", lambda run: run.decode_tokens),
    ("slot occupancy", "%", lambda run: run.slot_occupancy),
    ("preemptions", "", lambda run: run.preemptions),
    ("tokens lost", "", lambda run: run.lost_tokens),
    ("prefix hits, tokens", "", lambda run: run.cached_tokens),
    ("longest gap between tokens", "ms", lambda run: run.worst_gap_us),
    *((f"TTFT {p}", "ms", lambda run, p=p: run.ttft_us[p]) for p in ("p50", "p95", "p99")),
    *((f"TPOT {p}", "ms", lambda run, p=p: run.tpot_us[p]) for p in ("p50", "p95", "p99")),
]
