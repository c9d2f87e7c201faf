"""What a draw depends on, and that it follows the distribution it should."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.request import SamplingParams
from engine.sampler import CANDIDATES, Draw, exponential_noise, sample

VOCAB = 50


def logits_of(probabilities: list[float]) -> torch.Tensor:
    """One row whose softmax at temperature 1 is `probabilities`, all other tokens practically impossible."""
    row = torch.full((VOCAB,), -50.0)
    row[: len(probabilities)] = torch.tensor(probabilities).log()
    return row


def frequencies(row: torch.Tensor, draws: int = 4000, **params: Any) -> list[float]:
    """How often each token is picked over `draws` output indices of one seed."""
    sampling = SamplingParams(**params)
    batch = [Draw(sampling, seed=11, output_index=i) for i in range(draws)]
    picked = sample(row.expand(draws, -1), batch)
    return (torch.bincount(picked, minlength=row.shape[0]) / draws).tolist()


def one(row: torch.Tensor, *, seed: int = 0, index: int = 0, **params: Any) -> int:
    return int(sample(row[None], [Draw(SamplingParams(**params), seed, index)])[0])


def test_greedy_picks_the_first_of_the_best():
    row = torch.zeros(VOCAB)
    row[[7, 9]] = 3.0
    assert one(row, temperature=0.0) == 7


def test_frequencies_follow_the_probabilities():
    assert frequencies(logits_of([0.5, 0.3, 0.2]))[:3] == pytest.approx([0.5, 0.3, 0.2], abs=0.03)


def test_temperature_sharpens():
    squared = torch.tensor([0.5, 0.3, 0.2]).square()
    expected = (squared / squared.sum()).tolist()
    assert frequencies(logits_of([0.5, 0.3, 0.2]), temperature=0.5)[:3] == pytest.approx(expected, abs=0.03)


def test_top_k_keeps_exactly_k_and_renormalises():
    found = frequencies(logits_of([0.4, 0.3, 0.2, 0.1]), top_k=2)
    assert found[:4] == pytest.approx([4 / 7, 3 / 7, 0.0, 0.0], abs=0.03)
    assert found[2:] == [0.0] * (VOCAB - 2)


def test_top_k_keeps_k_of_equal_tokens():
    assert sum(share > 0 for share in frequencies(torch.zeros(VOCAB), top_k=5)) == 5


def test_top_p_includes_the_token_that_crosses_the_line():
    found = frequencies(logits_of([0.4, 0.3, 0.2, 0.1]), top_p=0.6)
    assert found[:4] == pytest.approx([4 / 7, 3 / 7, 0.0, 0.0], abs=0.03)


def test_top_p_is_taken_of_what_top_k_left():
    found = frequencies(logits_of([0.4, 0.3, 0.2, 0.1]), top_k=2, top_p=0.55)  # 4/7 = 0.571 already reaches it
    assert found[0] == 1.0


def test_the_smallest_top_p_leaves_the_best_token():
    assert one(logits_of([0.4, 0.6]), top_p=1e-9) == 1


def test_min_p_is_a_share_of_the_likeliest_ones_probability():
    found = frequencies(logits_of([0.4, 0.3, 0.2, 0.1]), min_p=0.6)
    assert found[:4] == pytest.approx([4 / 7, 3 / 7, 0.0, 0.0], abs=0.03)


def test_top_p_is_taken_of_what_min_p_left():
    assert frequencies(logits_of([0.4, 0.3, 0.2, 0.1]), min_p=0.6, top_p=0.55)[0] == 1.0


def test_a_min_p_of_one_leaves_the_best_token():
    assert frequencies(logits_of([0.4, 0.6]), min_p=1.0)[1] == 1.0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_forbidden_token_is_not_picked_and_the_logits_stay(temperature: float):
    row = logits_of([0.1, 0.9])[None]
    before, params = row.clone(), SamplingParams(temperature=temperature)
    draws = [Draw(params, seed=i, output_index=0, forbidden=frozenset({1})) for i in range(50)]
    assert sample(row.expand(50, -1), draws).tolist() == [0] * 50
    assert torch.equal(row, before)


def test_top_p_beyond_the_first_candidates_looks_at_the_whole_vocabulary():
    row = torch.zeros(3 * CANDIDATES)  # flat: half the mass takes half the tokens
    kept = sum(share > 0 for share in frequencies(row, draws=30 * CANDIDATES // 10, top_p=0.5))
    assert CANDIDATES < kept <= 1.5 * CANDIDATES + 1


def test_top_k_beyond_the_first_candidates_looks_at_the_whole_vocabulary():
    row = torch.linspace(1.0, 0.0, 3 * CANDIDATES)
    found = frequencies(row, draws=2 * CANDIDATES, top_k=2 * CANDIDATES)
    assert sum(found[CANDIDATES : 2 * CANDIDATES]) > 0
    assert sum(found[2 * CANDIDATES :]) == 0


@pytest.mark.parametrize("top_k", [VOCAB - 1, VOCAB, VOCAB + 1, 2**53 - 1])
def test_a_top_k_about_the_vocabularys_size_is_of_its_row_only(top_k: int):
    """A16: greedy, limited and free rows share a batch, and each draws what it draws alone."""
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(5))
    mates = [SamplingParams(temperature=0.0), SamplingParams(temperature=0.0, top_k=top_k), SamplingParams(top_k=2)]
    params = [*mates, SamplingParams(top_k=top_k), SamplingParams()]
    picked = sample(row.expand(len(params), -1), [Draw(p, seed=3, output_index=4) for p in params]).tolist()
    assert picked == [int(sample(row[None], [Draw(p, seed=3, output_index=4)])[0]) for p in params]
    assert picked[0] == picked[1] == int(row.argmax())


def test_top_k_above_the_vocabulary_is_no_limit():
    """A16."""
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(1))
    assert [one(row, index=i, top_k=10**9) for i in range(50)] == [one(row, index=i) for i in range(50)]


def test_top_k_of_one_equals_greedy():
    """A44: whatever the temperature and the seed, ties included."""
    rows = torch.randn(200, VOCAB, generator=torch.Generator().manual_seed(2)).round(decimals=1)
    hot = [Draw(SamplingParams(temperature=2.0, top_k=1), seed=i, output_index=i) for i in range(200)]
    greedy = [Draw(SamplingParams(temperature=0.0), seed=0, output_index=0)] * 200
    assert torch.equal(sample(rows, hot), sample(rows, greedy))


def test_a_draw_depends_on_seed_and_index_only():
    """A45: not on the row that it has in the batch, nor on the others in it."""
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(3))
    alone = [one(row, seed=5, index=i) for i in range(20)]
    others = torch.randn(20, VOCAB)
    for index, expected in enumerate(alone):
        batch = torch.cat([others, row[None]])
        mates = [Draw(SamplingParams(top_k=index, top_p=0.5), seed=i, output_index=9) for i in range(20)]
        picked = sample(batch, [*mates, Draw(SamplingParams(), seed=5, output_index=index)])
        assert int(picked[-1]) == expected


def test_two_seeds_differ():
    row = torch.zeros(VOCAB)
    assert [one(row, seed=1, index=i) for i in range(20)] != [one(row, seed=2, index=i) for i in range(20)]


def test_noise_of_neighbouring_indices_shares_no_value():
    first, second = exponential_noise(1, 0, 5000), exponential_noise(1, 1, 5000)
    assert len(set(first.tolist()) & set(second.tolist())) < 5


@pytest.mark.parametrize("seed", [-(2**53), -1, 0, 2**53])
def test_any_seed_a_request_may_carry(seed: int):
    assert exponential_noise(seed, 3, 10).min() > 0


def test_greedy_and_drawn_rows_share_a_batch():
    """A16."""
    row = logits_of([0.5, 0.3, 0.2])
    draws = [Draw(SamplingParams(temperature=0.0), 1, 0), Draw(SamplingParams(), 1, 0)]
    greedy, drawn = sample(torch.stack([row, row]), draws).tolist()
    assert greedy == 0
    assert drawn == one(row, seed=1)


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1e-6])
def test_a_tiny_temperature_is_greedy_not_a_crash(temperature: float):
    row = torch.randn(VOCAB, generator=torch.Generator().manual_seed(4)) * 10
    assert one(row, temperature=temperature) == int(row.argmax())
