"""Speculation and sampling: the same tokens as without guesses, and so the distribution that the model gives.

Seeded noise makes the first claim exact, and it is checked so with a real model. The second is checked by counting:
over many seeds the k-th token is distributed as the target's own softmax says, chi-square against the exact value.
There the model is a table of four tokens, so that the value is known; scheduler, proposer and sampler are real.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from engine import events
from engine.config import EngineConfig
from engine.loader import Loaded, load
from engine.request import Request
from engine.runner import ScheduledRow, SchedulerOutput, until_wrong
from engine.sampler import Draw, sample
from engine.scripted import ScriptedRunner
from tests.engine.harness import Harness
from tests.engine.real import RealEngine
from tests.engine.tiny import write_folder

# -- the same tokens ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder = write_folder(tmp_path_factory.mktemp("model") / "tiny")
    return load(EngineConfig(model=str(folder)), lambda *report: None)


def answers(
    loaded: Loaded, prompts: list[list[int]], speculative: str, **params: Any
) -> tuple[list[list[int]], int, int]:
    """(answers, guesses made, guesses right) of one engine that is given all prompts at once."""
    engine = RealEngine(loaded, max_num_seqs=4, num_blocks=64, speculative=speculative)
    tokens = [request.output_token_ids for request in engine.run(prompts, 60, **params)]
    rows = [row for event in engine.sink if isinstance(event, events.Step) for row in event.rows]
    return tokens, sum(row.drafted for row in rows), sum(row.accepted for row in rows)


PROMPTS = [[1, 1, 1], [1, 1, 1, 2, 1, 1, 1], [*range(20, 30)] * 3, [9]]


@pytest.mark.parametrize("speculative", ["ngram:1", "ngram:4", "ngram:16"])
def test_greedy_answers_are_those_of_an_engine_that_does_not_guess(loaded: Loaded, speculative: str):
    """A46: behind [1, 1, 1] the first guess is another 1, and it is checked like any other."""
    plain, guessed, _ = answers(loaded, PROMPTS, "none")
    assert guessed == 0
    found, guessed, right = answers(loaded, PROMPTS, speculative)
    assert found == plain
    assert 0 < right < guessed


@pytest.mark.parametrize("params", [{"temperature": 1.0, "top_k": 2}, {"temperature": 0.6, "top_p": 0.3}])
def test_sampled_answers_are_those_of_an_engine_that_does_not_guess(loaded: Loaded, params: dict[str, Any]):
    guessed = right = 0
    for seed in range(4):
        plain, _, _ = answers(loaded, PROMPTS, "none", seed=seed, **params)
        found, *counts = answers(loaded, PROMPTS, "ngram:4", seed=seed, **params)
        assert found == plain
        guessed, right = guessed + counts[0], right + counts[1]
    assert 0 < right < guessed


# -- the same distribution ---------------------------------------------------------------------------------------

TABLE = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.04, 0.6, 0.06, 0.3], [0.7, 0.08, 0.12, 0.1]])
EVERY_PAIR = [0, 0, 1, 0, 2, 0, 3, 1, 1, 2, 1, 3, 2, 2, 3, 3, 0]  # whatever comes, something has followed it before
SEEDS = 2000
CRITICAL = {3: 16.27, 15: 37.70}  # chi-square at 0.001, by degrees of freedom


class TableRunner(ScriptedRunner):
    """A model whose next token depends on the last one as TABLE says, sampled as the real runner samples."""

    def sample(self, batch: SchedulerOutput, logits: SchedulerOutput) -> list[list[int]]:
        rows = [row for row in batch.rows if row.samples]
        lasts = [last for row in rows for last in self._contexts(row)]
        draws = [
            Draw(row.request.sampling_params, row.request.seed, row.num_output_before + ahead)
            for row in rows
            for ahead in range(len(row.draft_token_ids) + 1)
        ]
        picked = iter(sample(TABLE[lasts].log(), draws).tolist())
        return [
            self._kept(row, [next(picked) for _ in self._contexts(row)]) if row.samples else [] for row in batch.rows
        ]

    def _contexts(self, row: ScheduledRow) -> list[int]:
        return [row.request.token_ids[-1], *row.draft_token_ids]

    def _kept(self, row: ScheduledRow, picked: list[int]) -> list[int]:
        return until_wrong(picked, row.draft_token_ids)


class GullibleRunner(TableRunner):
    """Believes every guess."""

    def _kept(self, row: ScheduledRow, picked: list[int]) -> list[int]:
        return [*row.draft_token_ids, picked[-1]]


def outputs(runner: ScriptedRunner, temperature: float, top_k: int) -> tuple[list[list[int]], int, int]:
    """(answers, guesses made, guesses right) of SEEDS requests that differ in nothing but their seeds."""
    engine = Harness(num_blocks=512, max_num_seqs=64, max_queue=SEEDS, speculative="ngram:3")
    engine.core.runner = runner
    requests: list[Request] = []
    for seed in range(SEEDS):
        request = engine.request(EVERY_PAIR, max_tokens=6)
        request.sampling_params = dataclasses.replace(request.sampling_params, temperature=temperature, top_k=top_k)
        request.seed = seed
        engine.core.add(request)
        requests.append(request)
    engine.run()
    rows = [row for step in engine.of(events.Step) for row in step.rows]
    guessed, right = (sum(getattr(row, name) for row in rows) for name in ("drafted", "accepted"))
    return [request.output_token_ids for request in requests], guessed, right


def target(temperature: float, top_k: int) -> torch.Tensor:
    """TABLE as temperature and top_k leave it: row by row the softmax that is sampled from."""
    scaled = TABLE.double().log() / temperature
    if top_k:
        scaled[scaled < scaled.topk(top_k).values[:, -1:]] = -torch.inf
    return scaled.softmax(-1)


def chi_square(found: list[int], expected: torch.Tensor) -> float:
    """How far the counts of `found` are from `expected`, a distribution over the numbers from 0 on."""
    counts = torch.bincount(torch.tensor(found), minlength=len(expected)).double()
    wanted = expected * len(found)
    assert (counts[wanted == 0] == 0).all(), "what cannot be was drawn"
    return float(((counts - wanted).square() / wanted)[wanted > 0].sum())


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.7, 3)])
def test_the_kth_token_follows_the_targets_softmax(temperature: float, top_k: int):
    found, guessed, right = outputs(TableRunner(), temperature, top_k)
    assert 0 < right < guessed
    step = target(temperature, top_k)
    before = torch.eye(4, dtype=torch.double)[EVERY_PAIR[-1]]
    for k in range(6):
        pairs = (before @ step)[:, None] * step  # of the tokens k and k + 1
        assert chi_square([tokens[k] for tokens in found], before @ step) < CRITICAL[3], k
        if k < 5:
            assert chi_square([4 * tokens[k] + tokens[k + 1] for tokens in found], pairs.flatten()) < CRITICAL[15], k
        before = before @ step


def test_an_engine_that_believed_its_guesses_would_be_noticed():
    found, *_ = outputs(GullibleRunner(), 1.0, 0)
    step = target(1.0, 0)
    second = torch.eye(4, dtype=torch.double)[EVERY_PAIR[-1]] @ step @ step
    assert chi_square([tokens[1] for tokens in found], second) > 10 * CRITICAL[3]
