"""A draft model changes how many tokens a step gives, never which; and its cache holds what the target's holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import events
from engine.attention.cache import gather_kv
from engine.config import EngineConfig
from engine.draft_model import first_layers, load_draft
from engine.errors import ConfigError, LoadError
from engine.kv_cache import size_pool, size_pool_for
from engine.loader import Loaded, load
from engine.model_runner import ModelRunner
from engine.request import Request
from engine.roofline import draft_cost, step_cost
from engine.runner import ScheduledRow
from tests.engine.real import RealEngine
from tests.engine.tiny import write_folder

PROMPTS = [[(7 * i + n) % 250 for i in range(length)] for n, length in enumerate((40, 12, 33, 21, 40))]
SAMPLED = {"temperature": 1.0, "seed": 11}
NEAR = {
    "auto": {"atol": 1e-5, "rtol": 1e-4},
    "int8": {"atol": 2e-2, "rtol": 1e-4},
    "fp8": {"atol": 2e-2, "rtol": 1 / 8},
}
SMALL = {"block_size": 4, "num_blocks": 64, "max_num_seqs": 4, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was never told what the tiny one says."""
    return write_folder(tmp_path_factory.mktemp("models") / "other", num_hidden_layers=1, hidden_size=32)


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Loaded:
    return load(EngineConfig(model=str(folder)), lambda *report: None)


def tokens(requests: list[Request]) -> list[list[int]]:
    return [request.output_token_ids for request in requests]


def guesses(engine: RealEngine) -> tuple[int, int]:
    """Drafted and accepted so far."""
    rows = [row for event in engine.sink if isinstance(event, events.Step) for row in event.rows]
    return sum(row.drafted for row in rows), sum(row.accepted for row in rows)


@pytest.mark.parametrize("params", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_a_model_that_drafts_for_itself_is_always_right(tiny: Loaded, folder: Path, params: dict[str, Any]):
    engine = RealEngine(tiny, speculative=f"draft:{folder}:3")
    answer = engine.run(PROMPTS[:1], 41, **params)
    assert tokens(answer) == tokens(RealEngine(tiny).run(PROMPTS[:1], 41, **params))
    drafted, accepted = guesses(engine)
    assert drafted == accepted == 30  # one token from the prompt, then ten steps of four


@pytest.mark.parametrize("params", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("drafter", ["other", "first-1-layers"])
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"enable_prefix_caching": False},
        {"max_num_batched_tokens": 7},  # chunks, and guesses cut short
        {"num_blocks": 30, "watermark": 0.0},  # preemptions
        {"kv_cache_dtype": "int8"},
        {"kv_cache_dtype": "fp8"},
        {"batching": "static"},
    ],
    ids=lambda flags: " ".join(f"{name}={value}" for name, value in flags.items()) or "plain",
)
def test_the_answer_is_the_one_without_guesses(
    tiny: Loaded, other: Path, params: dict[str, Any], drafter: str, flags: dict[str, Any]
):
    config = SMALL | flags
    engine = RealEngine(tiny, **config, speculative=f"draft:{other if drafter == 'other' else drafter}:4")
    found = engine.run(PROMPTS, 24, **params)
    assert tokens(found) == tokens(RealEngine(tiny, **config).run(PROMPTS, 24, **params))
    drafted, accepted = guesses(engine)
    assert drafted > accepted
    assert accepted > 0 or drafter == "other"
    if "num_blocks" in flags:
        assert sum(request.num_preemptions for request in found) > 0


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8", "fp8"])
def test_the_draft_cache_holds_what_the_target_cache_holds(tiny: Loaded, other: Path, kv_cache_dtype: str):
    """Whatever was accepted, rejected, chunked or hit: every computed token has its draft keys and values."""
    engine = RealEngine(tiny, **SMALL, kv_cache_dtype=kv_cache_dtype, speculative=f"draft:{other}:3")
    (first,) = engine.run(PROMPTS[:1], 13, **SAMPLED)
    # The next turn meets cached blocks, of the prompt and of the answer.
    again = engine.request([*first.token_ids, 9, 8, 7], 20, temperature=1.0, seed=5)
    engine.core.add(again)
    while not (again.num_output_tokens > 12):
        engine.core.step()
    assert again.num_cached_tokens > first.num_prompt_tokens
    alone = RealEngine(
        load(EngineConfig(model=str(other)), lambda *report: None), **SMALL, kv_cache_dtype=kv_cache_dtype
    )
    twin = alone.request(again.token_ids, 1)
    alone.core.add(twin)
    drafter = engine.core.runner.drafter  # type: ignore[attr-defined]
    computed = again.num_computed_tokens
    while twin.num_computed_tokens < computed:
        alone.core.step()
    for found, expected in zip(drafter._caches, alone.core.runner.caches, strict=True):  # type: ignore[attr-defined]
        pairs = zip(
            gather_kv(found, torch.tensor(again.block_table), computed),
            gather_kv(expected, torch.arange(-(-computed // 4)), computed),
            strict=True,
        )
        for one, two in pairs:
            torch.testing.assert_close(one, two, **NEAR[kv_cache_dtype])


def test_an_abort_in_the_middle_leaves_nothing_wrong_behind(tiny: Loaded, other: Path):
    """The blocks of an aborted request are handed out again, and what they held of the draft model is written over."""
    engine = RealEngine(tiny, **SMALL | {"num_blocks": 24}, speculative=f"draft:{other}:3")
    first = [engine.request(prompt, 30) for prompt in PROMPTS[:2]]
    for request in first:
        engine.core.add(request)
    while any(request.num_output_tokens < 4 for request in first):
        engine.core.step()
    for request in first:
        assert engine.core.abort(request.request_id)
    engine.core.reset_prefix_cache()
    found = engine.run(PROMPTS[2:], 20)
    assert tokens(found) == tokens(RealEngine(tiny, **SMALL).run(PROMPTS[2:], 20))
    assert engine.core.scheduler.problems() == []


# -- what it costs -------------------------------------------------------------------------------------------------


def test_the_memory_sum_counts_the_draft_cache_and_weights(tiny: Loaded, folder: Path):
    draft = load(EngineConfig(model=str(folder)), lambda *report: None)
    config = EngineConfig(num_blocks=8, speculative=f"draft:{folder}:2")
    alone = size_pool_for(EngineConfig(num_blocks=8), tiny.facts, None)[1]
    both = size_pool_for(config, tiny.facts, None, draft.facts)[1]
    assert both.bytes_per_token == 2 * alone.bytes_per_token
    assert both.weights == 2 * alone.weights
    assert f"{alone.bytes_per_token:,} B of them the draft model's" in both.sum_text


def test_the_targets_own_layers_cost_cache_but_no_weights(tiny: Loaded):
    config = EngineConfig(num_blocks=8, speculative="draft:first-1-layers:2")
    memory = size_pool_for(config, tiny.facts, None, first_layers(tiny, 1).facts)[1]
    assert memory.weights == tiny.facts.weight_bytes
    assert memory.bytes_per_token == 2 * 2 * 2 * 16 * 4 * 3 // 2


def test_a_step_pays_for_one_draft_pass_more_than_there_are_guesses(tiny: Loaded):
    asked = RealEngine(tiny).request([1, 2, 3, 4], 9)
    row = ScheduledRow(asked, 3, 3, [], draft_token_ids=[0, 0])
    passes = [ScheduledRow(asked, 3, 1, []), ScheduledRow(asked, 4, 1, []), ScheduledRow(asked, 5, 1, [])]
    body = [step_cost(tiny.facts, [part], 100)[0] for part in passes]
    embedding = 2 * tiny.facts.vocab_size * tiny.facts.hidden_size
    assert draft_cost(tiny.facts, [row], 100)[0] == sum(body) + embedding  # the second pass wants logits, too


def test_the_time_of_the_draft_model_is_a_phase_of_its_own(tiny: Loaded):
    engine = RealEngine(tiny, speculative="draft:first-1-layers:2")
    engine.run(PROMPTS[:1], 4)
    steps = [event for event in engine.sink if isinstance(event, events.Step)]
    assert all(step.phases_us["draft"] > 0 for step in steps)


def test_warm_up_runs_the_draft_model_too(tiny: Loaded):
    config = EngineConfig(num_blocks=2, block_size=2, speculative="draft:first-1-layers:16")
    draft = load_draft(config, tiny, lambda *report: None)
    runner = ModelRunner(tiny, size_pool(config, tiny, draft)[0], draft)
    assert runner.drafter is not None
    fill, filled = runner.drafter.fill, []

    def noting(rows: Sequence[ScheduledRow]) -> None:
        fill(rows)
        filled.append([len(row.draft_token_ids) for row in rows])

    runner.drafter.fill = noting
    runner.warm_up(lambda *report: None)
    assert filled == [[0], [0], [0] * config.max_num_seqs, [3]]  # a pool of four tokens has room for three guesses


# -- what does not combine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"speculative": "draft:x:2", "model": "scripted"}, "the scripted model is guessed by draft:scripted:K"),
        ({"speculative": "draft:scripted:2"}, "guesses for no other"),
        ({"speculative": "draft:x:2", "simulate": True}, "does not combine with --simulate"),
        ({"speculative": "draft:x"}, "must be none, ngram:K or draft:MODEL:K"),
        ({"speculative": "draft::3"}, "must be none, ngram:K or draft:MODEL:K"),
        ({"speculative": "draft:x:17"}, "K from 1 to 16"),
        ({"speculative": "ngram:x:3"}, "must be none, ngram:K or draft:MODEL:K"),
        ({"speculative": "draft:x:²"}, "must be none, ngram:K or draft:MODEL:K"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(flags: dict[str, Any], expected: str):
    with pytest.raises(ConfigError, match=expected):
        EngineConfig(**flags)


def test_a_model_name_may_hold_colons():
    EngineConfig(speculative="draft:C:/models/tiny:4")


def test_a_draft_needs_fewer_layers_than_the_target(tiny: Loaded):
    with pytest.raises(ConfigError, match=r"first 2 layers, and .* has 2"):
        load_draft(EngineConfig(speculative="draft:first-2-layers:2"), tiny, lambda *report: None)


def test_a_draft_model_that_is_not_there_is_not_taken_for_the_model(tiny: Loaded, tmp_path: Path):
    with pytest.raises(LoadError, match=r"The draft model of --speculative cannot be loaded: .*no such file"):
        load_draft(EngineConfig(speculative=f"draft:{tmp_path / 'none'}:2"), tiny, lambda *report: None)


def test_another_vocabulary_size_is_refused(tiny: Loaded, tmp_path: Path):
    wide = write_folder(tmp_path / "wide", vocab_size=300)
    with pytest.raises(ConfigError, match=r"a vocabulary of 300 tokens and .* one of 272"):
        load_draft(EngineConfig(speculative=f"draft:{wide}:2"), tiny, lambda *report: None)


def test_another_tokenizer_is_refused(tiny: Loaded, tmp_path: Path):
    twin = write_folder(tmp_path / "twin")
    text = (twin / "tokenizer.json").read_text()
    assert '"a":' in text
    assert '"b":' in text
    (twin / "tokenizer.json").write_text(
        text.replace('"a":', '"tmp":').replace('"b":', '"a":').replace('"tmp":', '"b":')
    )
    with pytest.raises(ConfigError, match="mean other text"):
        load_draft(EngineConfig(speculative=f"draft:{twin}:2"), tiny, lambda *report: None)


def test_a_draft_model_of_shorter_context_limits_the_requests(tiny: Loaded, tmp_path: Path):
    short = write_folder(tmp_path / "short", max_position_embeddings=64)
    config = EngineConfig(speculative=f"draft:{short}:2")
    draft = load_draft(config, tiny, lambda *report: None)
    assert size_pool(config, tiny, draft)[0].max_model_len == 64
