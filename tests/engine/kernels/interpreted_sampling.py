"""Run by test_kernels.py under TRITON_INTERPRET=1: drawing tokens as engine.sampler does, with other noise."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.kernel_noise import BLOCK, device_noise
from engine import sampler
from engine.kernels import sampling
from engine.kernels.sampling import sample
from engine.request import SamplingParams
from engine.sampler import Draw

VOCAB = 50


def noise(seed: int, output_index: int, vocab_size: int) -> torch.Tensor:
    return device_noise([Draw(SamplingParams(), seed, output_index)], vocab_size, torch.device("cpu"))[0]


def row_of(vocab_size: int, seed: int = 0) -> torch.Tensor:
    return 4 * torch.randn(vocab_size, generator=torch.Generator().manual_seed(seed))


def logits_of(probabilities: list[float]) -> torch.Tensor:
    row = torch.full((VOCAB,), -50.0)
    row[: len(probabilities)] = torch.tensor(probabilities).log()
    return row


def picked(row: torch.Tensor, draws: int = 8, **params: object) -> set[int]:
    """The tokens that were drawn under so many seeds."""
    batch = [Draw(SamplingParams(**params), seed, 0) for seed in range(draws)]
    return set(sample(row.expand(draws, -1).contiguous(), batch).tolist())


def check(logits: torch.Tensor, draws: list[Draw]) -> None:
    """What is picked is what torch's sampler picks under the same noise."""
    before = logits.clone()
    expected = sampler.sample(logits, draws, lambda chosen, size: device_noise(chosen, size, logits.device))
    found = sample(logits, draws)
    assert found.dtype == torch.int64
    assert found.tolist() == expected.tolist()
    assert torch.equal(logits, before)


LIMITS = [
    {},
    {"temperature": 0.3},
    {"temperature": 3.0},
    {"top_k": 2},
    {"top_k": 20},
    {"top_p": 0.3},
    {"top_p": 0.95},
    {"top_p": 1e-9},
    {"temperature": 2.5, "top_k": 30, "top_p": 0.8},
    {"top_k": 10**9},
    {"top_k": 5, "top_p": 0.999999},
    {"temperature": 1e-45},
    {"temperature": 2.0, "min_p": 0.05},
    {"min_p": 1.0},
    {"temperature": 3.0, "min_p": 0.3, "top_k": 3},
    {"temperature": 3.0, "min_p": 0.02, "top_k": 40},
    {"temperature": 3.0, "min_p": 0.2, "top_p": 0.6},
    {"temperature": 2.0, "min_p": 0.1, "top_k": 7, "top_p": 0.9},
    {"min_p": 1e-300, "top_k": 4},
]


@pytest.mark.parametrize("vocab_size", [VOCAB, 2 * 64 + 17], ids=["one block", "several"])
def test_a_draw_is_the_best_of_what_the_oracle_keeps_under_this_noise(monkeypatch: pytest.MonkeyPatch, vocab_size: int):
    """All kinds of limits in one batch, greedy rows among them."""
    monkeypatch.setattr(sampling, "MAX_BLOCK", 64)
    params = [
        *(SamplingParams(**limits) for limits in LIMITS),
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=1),
    ]
    logits = torch.stack([row_of(vocab_size, i) for i in range(len(params))])
    check(logits, [Draw(p, seed=2**53 - i, output_index=i) for i, p in enumerate(params)])
    best = [frozenset(row.topk(2).indices.tolist()) for row in logits]
    check(logits[::5], [Draw(params[i], seed=i, output_index=3, forbidden=best[i]) for i in range(0, len(params), 5)])


def test_noise_is_exponential():
    drawn = noise(7, 3, 8 * BLOCK).double()
    assert drawn.mean() == pytest.approx(1.0, abs=0.05)
    shares = (1 - (-drawn.sort().values).exp()) - torch.linspace(0, 1, len(drawn))
    assert shares.abs().max() < 0.018  # Kolmogorov and Smirnov, 1 in 100 at 8,192 values


def test_noise_of_another_seed_index_or_token_is_other_noise():
    rows = [noise(seed, index, 2 * BLOCK) for seed in (0, 1, 2**32, -1) for index in (0, 1)]
    together = torch.cat(rows)
    assert len(together.unique()) > 0.99 * len(together)  # fp32 has few enough numbers for some to meet


def test_small_noise_is_fine_grained():
    """It decides: in steps of 2^-24 a vocabulary of 150,000 words would have ties."""
    small = torch.cat([noise(seed, 0, 8 * BLOCK) for seed in range(4)]).sort().values[:200]
    assert len(small.unique()) == len(small)
    assert small[0] > 0


def test_a_draw_depends_on_seed_and_index_only():
    row = row_of(VOCAB) / 4
    draws = [Draw(SamplingParams(), seed, index) for seed in (5, 6) for index in range(4)]
    alone = [int(sample(row[None], [draw])[0]) for draw in draws]
    assert sample(row.expand(8, -1).flip(0).contiguous(), draws[::-1]).tolist() == alone[::-1]
    assert len(set(alone)) > 1


def test_greedy_picks_the_first_of_the_best_beside_drawn_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "MAX_BLOCK", 64)
    row = torch.zeros(100)
    row[[7, 9, 70]] = 3.0
    draws = [Draw(SamplingParams(temperature=0.0), 0, 0), Draw(SamplingParams(), 0, 0)]
    assert int(sample(torch.stack([row, row]), draws)[0]) == 7
    assert sample(torch.stack([row, row]), draws[:1] * 2).tolist() == [7, 7]


def test_top_k_keeps_k_of_equal_tokens():
    assert picked(torch.zeros(VOCAB), draws=12, top_k=4) == {0, 1, 2, 3}


def test_top_k_counts_what_is_above_the_tie_and_ties_over_all_blocks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sampling, "MAX_BLOCK", 32)
    row = torch.full((40,), -1.0)
    row[[3, 14, 20, 33, 39]] = 0.0
    row[30] = 1.0
    assert picked(row, draws=9, top_k=4) == {3, 14, 20, 30}


def test_top_p_includes_the_token_that_crosses_the_line():
    assert picked(logits_of([0.4, 0.3, 0.2, 0.1]), top_p=0.6) == {0, 1}


def test_top_p_is_reached_by_the_very_sum():
    assert picked(logits_of([0.5, 0.25, 0.25]), top_p=0.5) == {0}


def test_top_p_is_taken_of_what_top_k_left():
    row = logits_of([0.4, 0.3, 0.2, 0.1])
    assert picked(row, top_k=2, top_p=0.55) == {0}  # 4/7 = 0.571 already reaches it
    assert picked(row, top_k=2, top_p=0.6) == {0, 1}


def test_top_p_of_equal_tokens_keeps_as_many_as_it_takes():
    row = logits_of([0.25] * 4)
    assert picked(row, top_p=0.6) == {0, 1, 2}
    assert picked(row, top_k=2, top_p=0.9) == {0, 1}
    assert picked(row, top_k=3, top_p=0.5) == {0, 1}


def test_min_p_ends_at_the_very_number_where_torch_ends():
    """Neighbouring floats about its edge, all as likely as each other: the last one kept is drawn often."""
    draws, rows = [], []
    for temperature, min_p in ((0.7, 0.3), (1.9, 0.011)):
        edge = torch.tensor(2.0 + temperature * math.log(min_p), dtype=torch.float32)
        steps = edge.view(torch.int32) + torch.arange(-7, 8, dtype=torch.int32)
        rows += 24 * [torch.cat([torch.tensor([2.0]), steps.view(torch.float32), torch.full((5,), -20.0)])]
        for top_k in (0, 18):  # of the last five two are left, and then ruled out
            params = SamplingParams(temperature=temperature, min_p=min_p, top_k=top_k)
            draws += [Draw(params, seed, 0) for seed in range(12)]
    check(torch.stack(rows), draws)


def test_min_p_keeps_what_is_just_as_likely_as_it_says():
    row = torch.full((VOCAB,), -50.0)
    row[0], row[7] = 0.0, math.log(0.25)
    assert picked(row, draws=32, min_p=0.25) == {0, 7}


def test_min_p_of_one_keeps_all_that_are_as_likely_as_the_best():
    row = torch.zeros(VOCAB)
    row[[3, 40]] = 1e-6
    assert picked(row, min_p=1.0) == {3, 40}


def test_min_p_before_top_k_before_top_p():
    row = logits_of([0.4, 0.3, 0.2, 0.1])
    assert picked(row, draws=16, min_p=0.45) == {0, 1, 2}  # 0.2 is half of 0.4
    assert picked(row, min_p=0.45, top_k=2) == picked(row, min_p=0.6, top_k=3) == {0, 1}
    assert picked(row, min_p=0.6, top_p=0.55) == {0}  # of 0.7 only are left


def test_a_forbidden_token_is_never_picked_greedy_or_drawn():
    row = logits_of([0.1, 0.8, 0.1])
    draws = [
        *(Draw(SamplingParams(), seed, 0, frozenset({1})) for seed in range(6)),
        Draw(SamplingParams(temperature=0.0), 0, 0, frozenset({0, 1})),
        Draw(SamplingParams(temperature=0.0), 0, 0),
    ]
    found = sample(row.expand(8, -1), draws).tolist()
    assert set(found[:6]) == {0, 2}
    assert found[6:] == [2, 1]
    assert sample(row.expand(2, -1), draws[6:]).tolist() == [2, 1]


def test_a_token_that_is_ruled_out_is_never_drawn():
    row = torch.full((VOCAB,), -torch.inf)
    row[[3, 40]] = 0.0
    assert picked(row) == picked(row, top_k=10) == picked(row, top_p=0.9) == picked(row, min_p=0.1) == {3, 40}
