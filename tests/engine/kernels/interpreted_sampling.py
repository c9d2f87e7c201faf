"""Run by test_kernels.py under TRITON_INTERPRET=1: drawing tokens as engine.sampler does, with other noise."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from engine import sampler
from engine.kernels import sampling
from engine.kernels.sampling import exponential_noise, sample
from engine.request import SamplingParams
from engine.sampler import Draw

VOCAB = 50
BLOCK = 1024  # of the noise here


@triton.jit
def noise_kernel(out, seed, output_index, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    tl.store(out + start + tl.arange(0, BLOCK), exponential_noise(seed, output_index, start, BLOCK))


def noise(seed: int, output_index: int, vocab_size: int) -> torch.Tensor:
    blocks = triton.cdiv(vocab_size, BLOCK)
    out = torch.empty(blocks * BLOCK)
    noise_kernel[(blocks,)](out, sampling._signed(seed), output_index, BLOCK=BLOCK)
    return out[:vocab_size]


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
    draws = [Draw(p, seed=2**53 - i, output_index=i) for i, p in enumerate(params)]
    logits = torch.stack([row_of(vocab_size, i) for i in range(len(draws))])
    scaled = sampler._scaled(logits, [p.temperature for p in params])
    sampler._restrict(scaled, params)
    scores = scaled - torch.stack([noise(d.seed, d.output_index, vocab_size) for d in draws]).log()
    expected = torch.where(torch.tensor([d.greedy for d in draws]), logits.argmax(-1), scores.argmax(-1))
    found = sample(logits, draws)
    assert found.dtype == torch.int64
    assert found.tolist() == expected.tolist()


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


def test_top_p_is_taken_of_what_top_k_left():
    row = logits_of([0.4, 0.3, 0.2, 0.1])
    assert picked(row, top_k=2, top_p=0.55) == {0}  # 4/7 = 0.571 already reaches it
    assert picked(row, top_k=2, top_p=0.6) == {0, 1}


def test_top_p_of_equal_tokens_keeps_as_many_as_it_takes():
    row = logits_of([0.25] * 4)
    assert picked(row, top_p=0.6) == {0, 1, 2}
    assert picked(row, top_k=2, top_p=0.9) == {0, 1}
    assert picked(row, top_k=3, top_p=0.5) == {0, 1}


def test_a_token_that_is_ruled_out_is_never_drawn():
    row = torch.full((VOCAB,), -torch.inf)
    row[[3, 40]] = 0.0
    assert picked(row) == picked(row, top_k=10) == picked(row, top_p=0.9) == {3, 40}
