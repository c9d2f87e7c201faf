"""The reducer: fold(state, event) -> state. One definition of what the events mean.

static/js/state.js is the same reducer in JavaScript; both are held to `fold(key, deltas) == next key` on every
recording that the tests make. Events and state are plain JSON values, so that a recording, a frame and a key are
one thing. `fold` changes the state it is given and returns it; take `copy.deepcopy` to keep an old one.

    {
      "step": 41,                                   last step's number, 0 before the first
      "config": {…},                                EngineConfig as in hello
      "gate": {"state": "running", "steps_left": 0, "per_second": null, "breaks": [], "hit": null},
      "queues": {"waiting": [ids, head first], "running": [ids, in batch order]},
      "requests": {id: {…}},                        live ones and the last FINISHED_KEPT finished; see `arrived`
      "finished": [ids, oldest first],
      "blocks": {"block_size", "total", "hashes": [hex | null per block], "refs": [int per block],
                 "victims": [ids],
                 "counts": {"free", "cached_idle", "referenced", "total"}},
      "totals": {…},                                counters since the epoch began; see `empty_totals`
      "last_step": the last step event without its header | null
      "marks": [{"step", "text"}, oldest first],    somebody's notes, the last MARKS_KEPT
      "num_resets": how often the stage was reset in this epoch
    }

A block's ref count is the number of block tables that hold it; how full it is follows from `num_computed_tokens`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.events import FINISHED_KEPT, MARKS_KEPT

State = dict[str, Any]
Json = dict[str, Any]

HEADER = ("kind", "engine", "epoch", "seq", "t")


def empty_totals() -> Json:
    """The counters of a fresh epoch."""
    return {
        "steps": 0,
        "prefill_tokens": 0,  # tokens computed in prefill rows, recomputation included
        "decode_tokens": 0,
        "output_tokens": 0,
        "arrived": 0,
        "rejected": 0,
        "finished": {"stop": 0, "length": 0, "abort": 0, "error": 0},
        "preemptions": 0,
        "lost_tokens": 0,
        "evictions": 0,
        "prefix_queried_tokens": 0,  # prompt tokens of first admissions
        "prefix_hit_tokens": 0,
        "reread_tokens": 0,  # cache hits after a preemption, counted apart
    }


def empty_state(config: Json) -> State:
    """The state of an engine that has done nothing yet."""
    total = config["num_blocks"]
    return {
        "step": 0,
        "config": dict(config),
        "gate": _gate_facts({"state": "paused" if config.get("start_paused") else "running", "steps_left": 0}),
        "queues": {"waiting": [], "running": []},
        "requests": {},
        "finished": [],
        "blocks": {
            "block_size": config["block_size"],
            "total": total,
            "hashes": [None] * total,
            "refs": [0] * total,
            "victims": [],
            "counts": {"free": total, "cached_idle": 0, "referenced": 0, "total": total},
        },
        "totals": empty_totals(),
        "last_step": None,
        "marks": [],
        "num_resets": 0,
    }


def fold(state: State | None, event: Json) -> State | None:
    """Apply one event. None is "nothing known yet": only `hello` and `key` lead out of it."""
    kind = event["kind"]
    if kind == "hello":
        return empty_state(event["config"])
    if kind == "key":
        new: State = event["state"]
        return new
    if state is None:
        return None
    name = kind if kind != "request" else event["event"]
    apply = _APPLY.get(name)
    if apply is not None:
        apply(state, event)
    return state


# -- life of a request -------------------------------------------------------------------------------------------


def _arrived(state: State, e: Json) -> None:
    state["requests"][e["request"]] = {
        "id": e["request"],
        "label": e["label"],
        "parent": e["parent"],
        "owner": e["owner"],
        "status": "waiting",
        "slot": None,
        "num_prompt_tokens": e["num_prompt_tokens"],
        "num_output_tokens": 0,
        "num_computed_tokens": 0,
        "num_cached_tokens": 0,
        "max_tokens": e["max_tokens"],
        "sampling": e["sampling"],
        "priority": e["priority"],
        "request_class": e["request_class"],
        "block_table": [],
        "num_preemptions": 0,
        "num_lost_tokens": 0,
        "preempted_us": 0,
        "last_preempted_us": None,
        "arrival_us": e["arrival_us"],
        "scheduled_us": None,
        "first_token_us": None,
        "last_token_us": None,
        "finished_us": None,
        "reason": _reason(e["request"], "gate_held") if e["gate_held"] else None,
        "finish_reason": None,
        "finish_detail": None,
        "timings": None,
    }
    waiting = state["queues"]["waiting"]
    waiting.insert(e.get("queue_index", len(waiting)), e["request"])
    state["totals"]["arrived"] += 1


def _reason(request: str, code: str) -> Json:
    return {"request": request, "code": code, "needs": None, "free": None, "limit": None, "by": None, "source": None}


def _start(state: State, e: Json) -> Json:
    request: Json = state["requests"][e["request"]]
    request["status"] = "running"
    request["slot"] = e["slot"]
    request["num_computed_tokens"] = e["cached"]
    request["reason"] = None
    state["queues"]["waiting"].remove(e["request"])
    state["queues"]["running"].append(e["request"])
    return request


def _admitted(state: State, e: Json) -> None:
    request = _start(state, e)
    request["scheduled_us"] = e["scheduled_us"]
    request["num_cached_tokens"] = e["cached"]
    state["totals"]["prefix_queried_tokens"] += request["num_prompt_tokens"]
    state["totals"]["prefix_hit_tokens"] += e["cached"]


def _resumed(state: State, e: Json) -> None:
    request = _start(state, e)
    request["preempted_us"] = e["preempted_us"]
    request["last_preempted_us"] = None
    state["totals"]["reread_tokens"] += e["cached"]


def _first_token(state: State, e: Json) -> None:
    state["requests"][e["request"]]["first_token_us"] = e["first_token_us"]


def _preempted(state: State, e: Json) -> None:
    request = state["requests"][e["request"]]
    request["status"] = "waiting"
    request["slot"] = None
    request["num_computed_tokens"] = 0
    _drop_table(state, request)
    request["num_preemptions"] = e["num_preemptions"]
    request["num_lost_tokens"] += e["num_lost_tokens"]
    request["last_preempted_us"] = e["at_us"]
    state["queues"]["running"].remove(e["request"])
    state["queues"]["waiting"].insert(e.get("queue_index", 0), e["request"])
    state["totals"]["preemptions"] += 1
    state["totals"]["lost_tokens"] += e["num_lost_tokens"]


def _finished(state: State, e: Json) -> None:
    request = state["requests"][e["request"]]
    for queue in state["queues"].values():
        if e["request"] in queue:
            queue.remove(e["request"])
    request["status"] = "finished"
    request["slot"] = None
    request["reason"] = None
    _drop_table(state, request)
    request["finished_us"] = e["finished_us"]
    request["finish_reason"] = e["reason"]
    request["finish_detail"] = e["detail"]
    request["timings"] = e["timings"]
    state["totals"]["finished"][e["reason"]] += 1
    state["finished"].append(e["request"])
    while len(state["finished"]) > FINISHED_KEPT:
        del state["requests"][state["finished"].pop(0)]


def _rejected(state: State, e: Json) -> None:
    state["totals"]["rejected"] += 1


# -- one step ----------------------------------------------------------------------------------------------------


def _step(state: State, e: Json) -> None:
    requests, blocks, totals = state["requests"], state["blocks"], state["totals"]
    for block in e["evicted"]:
        _forget(blocks, block)
    for request_id, appended in e["tables"]:
        requests[request_id]["block_table"].extend(appended)
        for block in appended:
            _hold(blocks, block)
    accepted_us = e["accepted_us"]
    for row in e["rows"]:
        request = requests[row["request"]]
        request["num_computed_tokens"] = row["computed"]
        if out := row["out"]:
            request["num_output_tokens"] += out
            request["last_token_us"] = accepted_us
            totals["output_tokens"] += out
    for block, block_hash in e["hashed"]:
        blocks["hashes"][block] = block_hash
    for reason in e["waiting"]:
        requests[reason["request"]]["reason"] = reason
    blocks["victims"] = e["victims"]
    totals["steps"] += 1
    totals["prefill_tokens"] += e["num_prefill_tokens"]
    totals["decode_tokens"] += e["num_decode_tokens"]
    totals["evictions"] += len(e["evicted"])
    state["step"] = e["step"]
    state["last_step"] = {name: value for name, value in e.items() if name not in HEADER}


# -- blocks ------------------------------------------------------------------------------------------------------


def _hold(blocks: Json, block: int) -> None:
    counts, cached = blocks["counts"], blocks["hashes"][block] is not None
    if blocks["refs"][block] == 0:
        counts["referenced"] += 1
        counts["cached_idle" if cached else "free"] -= 1
    blocks["refs"][block] += 1


def _drop_table(state: State, request: Json) -> None:
    blocks = state["blocks"]
    counts = blocks["counts"]
    for block in request["block_table"]:
        blocks["refs"][block] -= 1
        if blocks["refs"][block] == 0:
            counts["referenced"] -= 1
            counts["cached_idle" if blocks["hashes"][block] is not None else "free"] += 1
    request["block_table"] = []


def _forget(blocks: Json, block: int) -> None:
    """Drop a block's hash."""
    blocks["hashes"][block] = None
    if blocks["refs"][block] == 0:
        blocks["counts"]["cached_idle"] -= 1
        blocks["counts"]["free"] += 1


# -- the rest ----------------------------------------------------------------------------------------------------


def _gate(state: State, e: Json) -> None:
    state["gate"] = _gate_facts(e)


def _gate_facts(e: Json) -> Json:
    """The gate as the state keeps it."""
    return {
        "state": e["state"],
        "steps_left": e["steps_left"],
        "per_second": e.get("per_second"),
        "breaks": e.get("breaks", []),
        "hit": e.get("hit"),
    }


def _config(state: State, e: Json) -> None:
    state["config"].update(e["changed"])
    state["queues"]["waiting"] = list(e["waiting"])


def _cache_reset(state: State, e: Json) -> None:
    blocks = state["blocks"]
    for block, block_hash in enumerate(blocks["hashes"]):
        if block_hash is not None:
            _forget(blocks, block)
    blocks["victims"] = e["victims"]


def _reset(state: State, e: Json) -> None:
    _cache_reset(state, e)
    state.update(requests={}, finished=[], marks=[], last_step=None, num_resets=state["num_resets"] + 1)


def _mark(state: State, e: Json) -> None:
    state["marks"] = [*state["marks"], {"step": state["step"], "text": e["text"]}][-MARKS_KEPT:]


_APPLY: dict[str, Callable[[State, Json], None]] = {
    "arrived": _arrived,
    "admitted": _admitted,
    "resumed": _resumed,
    "first_token": _first_token,
    "preempted": _preempted,
    "finished": _finished,
    "rejected": _rejected,
    "step": _step,
    "gate": _gate,
    "config": _config,
    "cache_reset": _cache_reset,
    "reset": _reset,
    "mark": _mark,
}
