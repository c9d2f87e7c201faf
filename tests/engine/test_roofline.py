"""Golden values of METRICS, and steps whose cost can be counted by hand."""

from __future__ import annotations

import dataclasses

import pytest

from engine.request import Request, SamplingParams
from engine.roofline import decode_intensity, prefill_intensity, step_cost
from engine.runner import ScheduledRow
from tests.engine.test_kv_cache import SMOLLM2

N, KV, B16 = 7_615_000_000, 57_344, 2
EMBEDDING = 49_152 * 576
BODY = SMOLLM2.num_parameters - EMBEDDING
PAIR = 4 * 30 * 9 * 64  # FLOPs of one query and one key in all layers
PER_TOKEN = 46_080


def row(computed: int, scheduled: int, *, total: int) -> ScheduledRow:
    request = Request(
        request_id="r",
        prompt_token_ids=[0] * total,
        sampling_params=SamplingParams(),
        max_tokens=1,
        seed=0,
        stop_token_ids=frozenset(),
        arrival_us=0,
    )
    return ScheduledRow(request, computed, scheduled, [])


def guessing(computed: int, *, guesses: int, total: int) -> ScheduledRow:
    return dataclasses.replace(row(computed, 1 + guesses, total=total), draft_token_ids=[0] * guesses)


@pytest.mark.parametrize(("num_tokens", "expected"), [(128, 127.9), (1024, 1020.1), (8192, 7946.9)])
def test_prefill_intensity(num_tokens: int, expected: float):
    assert prefill_intensity(N, B16, KV, num_tokens) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("num_tokens", "expected"), [(128, 1.00), (1024, 1.00), (8192, 0.97)])
def test_decode_intensity(num_tokens: int, expected: float):
    assert decode_intensity(N, B16, KV, num_tokens) == pytest.approx(expected, abs=0.005)


def test_the_cache_weighs_as_much_as_the_weights_near_265590_tokens():
    cache_bytes, weight_bytes = KV * 265_590, N * B16
    assert cache_bytes == pytest.approx(weight_bytes, rel=1e-5)


def test_a_decode_step():
    flops, moved = step_cost(SMOLLM2, [row(99, 1, total=100)] * 8, PER_TOKEN)
    assert flops == 8 * (2 * BODY + 2 * EMBEDDING + PAIR * 100)
    assert moved == SMOLLM2.weight_bytes + 8 * 576 * 4 + 8 * PER_TOKEN * (100 + 1)


def test_weights_are_read_once_whatever_the_batch():
    one = step_cost(SMOLLM2, [row(99, 1, total=100)], PER_TOKEN)[1]
    eight = step_cost(SMOLLM2, [row(99, 1, total=100)] * 8, PER_TOKEN)[1]
    assert eight - one == 7 * (576 * 4 + PER_TOKEN * 101)


def test_a_chunk_that_does_not_sample_pays_no_head():
    flops, moved = step_cost(SMOLLM2, [row(32, 16, total=100)], PER_TOKEN)
    pairs = sum(range(33, 49))
    assert flops == 16 * 2 * BODY + PAIR * pairs
    assert moved == 4 * BODY + 16 * 576 * 4 + PER_TOKEN * (48 + 16)


def test_the_head_runs_behind_every_guess():
    flops, moved = step_cost(SMOLLM2, [guessing(99, guesses=4, total=100)], PER_TOKEN)
    assert flops == 5 * (2 * BODY + 2 * EMBEDDING) + PAIR * sum(range(100, 105))
    assert moved == SMOLLM2.weight_bytes + 5 * 576 * 4 + PER_TOKEN * (104 + 5)


def test_an_untied_head_is_not_part_of_the_body():
    untied = dataclasses.replace(
        SMOLLM2,
        tie_word_embeddings=False,
        num_parameters=SMOLLM2.num_parameters + EMBEDDING,
        weight_bytes=4 * (SMOLLM2.num_parameters + EMBEDDING),
    )
    rows = [row(0, 10, total=10)]
    assert step_cost(untied, rows, PER_TOKEN) == step_cost(SMOLLM2, rows, PER_TOKEN)


def test_chunks_of_a_prompt_cost_what_the_whole_costs():
    whole = step_cost(SMOLLM2, [row(0, 64, total=64)], PER_TOKEN)[0]
    parts = [step_cost(SMOLLM2, [row(at, 16, total=64)], PER_TOKEN)[0] for at in range(0, 64, 16)]
    assert sum(parts) == whole


def test_an_empty_step_costs_nothing():
    assert step_cost(SMOLLM2, [], PER_TOKEN) == (0, 0)
