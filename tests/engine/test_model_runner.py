"""The batch a step becomes, and what one step gives back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.device_clock import EventClock
from engine.kv_cache import size_pool
from engine.loader import load
from engine.model_runner import ModelRunner
from engine.request import Request, SamplingParams
from engine.runner import ScheduledRow, SchedulerOutput
from tests.engine.real import RealEngine
from tests.engine.test_timing import FakeEvents
from tests.engine.tiny import write_folder


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> ModelRunner:
    folder = write_folder(tmp_path_factory.mktemp("model") / "tiny")
    config = EngineConfig(model=str(folder), num_blocks=32, block_size=4)
    loaded = load(config, lambda *report: None)
    return ModelRunner(loaded, size_pool(config, loaded)[0])


def request(tokens: list[int], blocks: list[int], *, prompt: int | None = None, **params: Any) -> Request:
    """A request with `tokens` so far, the first `prompt` of them its prompt."""
    return Request(
        request_id="r",
        prompt_token_ids=tokens[:prompt],
        sampling_params=SamplingParams(**{"temperature": 0.0, **params}),
        max_tokens=99,
        seed=7,
        stop_token_ids=frozenset(),
        arrival_us=0,
        token_ids=list(tokens),
        block_table=blocks,
    )


def output(*rows: tuple[Request, int, int]) -> SchedulerOutput:
    return SchedulerOutput(rows=[ScheduledRow(request, computed, count, []) for request, computed, count in rows])


def run(runner: ModelRunner, *rows: tuple[Request, int, int]) -> list[list[int]]:
    batch = runner.prepare(output(*rows))
    return runner.sample(batch, runner.forward(batch))


def test_a_device_is_waited_for_in_the_sampling_lap_even_if_no_token_is_drawn(tmp_path: Path):
    config = EngineConfig(model=str(write_folder(tmp_path / "tiny")), num_blocks=32, block_size=4)
    loaded = load(config, lambda *report: None)
    timed = ModelRunner(loaded, size_pool(config, loaded)[0], clock=EventClock(FakeEvents()))
    assert run(timed, (request(list(range(10, 22)), [5, 0, 7]), 0, 4)) == [[]]
    assert timed.device_us() == {"forward": 2000, "sample": 0}


def test_the_flat_batch(runner: ModelRunner):
    decode = request([1, 2, 3, 4, 5, 6], [9, 2], prompt=3)
    chunk = request(list(range(10, 22)), [5, 0, 7])
    batch = runner.prepare(output((decode, 5, 1), (chunk, 3, 6)))
    assert batch.flat.token_ids.tolist() == [6, 13, 14, 15, 16, 17, 18]
    assert batch.flat.positions.tolist() == [5, 3, 4, 5, 6, 7, 8]
    assert batch.flat.meta.query_start_loc.tolist() == [0, 1, 7]
    assert batch.flat.meta.seq_lens.tolist() == [6, 9]
    assert batch.flat.meta.slot_mapping.tolist() == [2 * 4 + 1, 5 * 4 + 3, 0, 1, 2, 3, 7 * 4]
    assert batch.flat.meta.block_tables[0, :2].tolist() == [9, 2]
    assert batch.flat.logits_indices.tolist() == [0]
    assert batch.flat.meta.single_rows.tolist() == [0]
    assert [(c.start, c.end, c.seq_len, c.blocks.tolist()) for c in batch.flat.meta.chunks] == [(1, 7, 9, [5, 0, 7])]


def test_only_rows_that_reach_their_last_token_sample(runner: ModelRunner):
    whole, part = request([1, 2, 3, 4], [0]), request([1, 2, 3, 4], [1])
    sampled = run(runner, (part, 0, 3), (whole, 0, 4))
    assert [len(tokens) for tokens in sampled] == [0, 1]


def test_a_step_without_sampling_rows(runner: ModelRunner):
    assert run(runner, (request([1, 2, 3, 4], [0]), 0, 3)) == [[]]


def test_a_step_without_rows(runner: ModelRunner):
    assert run(runner) == []


def test_a_mixed_step_gives_what_each_row_gives_alone(runner: ModelRunner):
    prompts = [list(range(20, 20 + n)) for n in (3, 4, 9)]
    alone = [run(runner, (request(p, [0, 1, 2]), 0, len(p)))[0] for p in prompts]
    running = request(prompts[0], [3, 4, 5])
    run(runner, (running, 0, 2))
    together = run(
        runner,
        (running, 2, 1),
        (request(prompts[1], [6]), 0, 4),
        (request(prompts[2], [7, 8, 9]), 0, 9),
    )
    assert together == alone


def test_recomputing_output_tokens_gives_the_same_next_one(runner: ModelRunner):
    live = request(list(range(30, 40)), [0, 1, 2, 3, 4])
    live.token_ids += run(runner, (live, 0, 10))[0]
    for _ in range(5):
        live.token_ids += run(runner, (live, live.num_tokens - 1, 1))[0]
    again = request(live.token_ids[:-1], [10, 11, 12, 13], prompt=10)
    assert run(runner, (again, 0, again.num_tokens)) == [live.token_ids[-1:]]


def test_a_seeded_draw_does_not_depend_on_the_batch(runner: ModelRunner):
    """A45."""
    asked = request(list(range(20, 27)), [0, 1], temperature=1.0)
    alone = run(runner, (asked, 0, 7))
    mates = [(request([i] * 5, [4 + 2 * i, 5 + 2 * i], temperature=1.0, top_k=3), 0, 5) for i in range(4)]
    assert run(runner, *mates, (asked, 0, 7))[-1:] == alone


def test_requests_with_one_seed_answer_alike_whatever_their_slots(tmp_path: Path):
    """A45: the same prompt, parameters and seed at once in four slots, and again alone."""
    loaded = load(EngineConfig(model=str(write_folder(tmp_path / "tiny"))), lambda *report: None)
    engine = RealEngine(loaded, max_num_seqs=4, num_blocks=64)
    prompt = list(range(10, 30))
    together = engine.run([prompt] * 4, 24, temperature=1.0, seed=3)
    (alone,) = engine.run([prompt], 24, temperature=1.0, seed=3)
    (other,) = engine.run([prompt], 24, temperature=1.0, seed=4)
    assert [request.output_token_ids for request in together] == [alone.output_token_ids] * 4
    assert other.output_token_ids != alone.output_token_ids


@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_an_answer_with_top_k_of_one_is_the_greedy_answer(tmp_path: Path, temperature: float):
    """A44."""
    loaded = load(EngineConfig(model=str(write_folder(tmp_path / "tiny"))), lambda *report: None)
    engine = RealEngine(loaded, max_num_seqs=2, num_blocks=64)
    prompt = list(range(10, 30))
    (greedy,) = engine.run([prompt], 40)
    (one,) = engine.run([prompt], 40, temperature=temperature, top_k=1, seed=5)
    assert one.output_token_ids == greedy.output_token_ids


def test_a_seeded_answer_survives_preemption(tmp_path: Path):
    """A39: with a temperature too, the answer is the one that nobody interrupted."""
    config = EngineConfig(model=str(write_folder(tmp_path / "tiny")))
    loaded = load(config, lambda *report: None)
    prompts = [list(range(10 + i, 30 + i)) for i in range(4)]
    roomy = RealEngine(loaded, max_num_seqs=4, block_size=4, num_blocks=64)
    tight = RealEngine(loaded, max_num_seqs=4, block_size=4, num_blocks=20, enable_prefix_caching=False)
    alone = [roomy.run([prompt], 24, temperature=1.0, seed=3)[0] for prompt in prompts]
    together = tight.run(prompts, 24, temperature=1.0, seed=3)
    assert sum(request.num_preemptions for request in together) > 0
    assert [r.output_token_ids for r in together] == [r.output_token_ids for r in alone]


def test_the_runner_changes_no_request(runner: ModelRunner):
    asked = request([1, 2, 3, 4], [0])
    run(runner, (asked, 0, 4))
    assert (asked.token_ids, asked.num_computed_tokens, asked.block_table) == ([1, 2, 3, 4], 0, [0])


def test_warm_up_reports_and_leaves_the_answers_alone(runner: ModelRunner):
    asked = request(list(range(20, 29)), [0, 1, 2])
    before = run(runner, (asked, 0, 9))
    reports: list[tuple[str, int, int, str]] = []
    runner.warm_up(lambda *report: reports.append(report))
    assert {report[0] for report in reports} == {"warm up"}
    assert reports[-1][1] == reports[-1][2]
    assert run(runner, (asked, 0, 9)) == before


def test_warm_up_fits_the_smallest_pool(tmp_path: Path):
    config = EngineConfig(model=str(write_folder(tmp_path / "tiny")), num_blocks=1, block_size=2)
    loaded = load(config, lambda *report: None)
    ModelRunner(loaded, size_pool(config, loaded)[0]).warm_up(lambda *report: None)
