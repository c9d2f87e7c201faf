"""Replayed decode steps give what eager ones give: the control flow, with a capture that does the work anew."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from engine import events
from engine.batch import FlatBatch, Layout, Share, flat_batch
from engine.config import EngineConfig
from engine.graphs import DecodeGraphs, graph_sizes, repeat
from engine.kv_cache import size_pool
from engine.loader import Loaded, load
from engine.model_runner import ModelRunner
from tests.engine.real import RealEngine
from tests.engine.tiny import write_folder

BLOCK_SIZE = 4
LENGTHS = [5, 1, 12, 7, 4, 9]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(EngineConfig(model=str(write_folder(tmp_path_factory.mktemp("models") / "tiny"))), lambda *_: None)


class Setup:
    """A runner whose cache holds prompts of LENGTHS, and graphs over it."""

    def __init__(self, loaded: Loaded, sizes: list[int]) -> None:
        config, _ = size_pool(EngineConfig(num_blocks=64, block_size=BLOCK_SIZE), loaded)
        self.runner = ModelRunner(loaded, config)
        self.tables = [[10 * row + block for block in range(4)] for row in range(len(LENGTHS))]
        prompts = [
            Share(table, 0, list(range(20, 20 + length)), 0) for table, length in zip(self.tables, LENGTHS, strict=True)
        ]
        self.eager(flat_batch(prompts, BLOCK_SIZE))
        self.graphs = DecodeGraphs(self.eager, sizes, 5, BLOCK_SIZE, torch.device("cpu"), repeat)

    @torch.inference_mode()
    def eager(self, batch: FlatBatch) -> torch.Tensor:
        model = self.runner.model
        return model.forward(batch.token_ids, batch.positions, self.runner.caches, batch.meta, batch.logits_indices)

    def decode(self, rows: range) -> list[Share]:
        """One more token of each of these rows."""
        return [Share(self.tables[row], LENGTHS[row], [3 + row], 1) for row in rows]

    @torch.inference_mode()
    def replay(self, shares: list[Share]) -> torch.Tensor:
        return self.graphs.load(shares).run(shares).clone()


@pytest.mark.parametrize("rows", [range(1), range(1, 3), range(3), range(2, 6), range(6)])
def test_a_replay_equals_the_eager_step(loaded: Loaded, rows: range):
    setup = Setup(loaded, [1, 2, 4, 8])
    shares = setup.decode(rows)
    assert setup.graphs.fits(shares)
    torch.testing.assert_close(setup.replay(shares), setup.eager(flat_batch(shares, BLOCK_SIZE)))


def test_rows_of_the_step_before_leave_nothing_behind(loaded: Loaded):
    setup = Setup(loaded, [8])
    setup.replay(setup.decode(range(6)))
    before = [(cache.keys.clone(), cache.values.clone()) for cache in setup.runner.caches]
    shares = setup.decode(range(2))
    torch.testing.assert_close(setup.replay(shares), setup.eager(flat_batch(shares, BLOCK_SIZE)))
    for cache, (keys, values) in zip(setup.runner.caches, before, strict=True):
        assert torch.equal(cache.keys.nan_to_num(), keys.nan_to_num())  # the same tokens at the same places
        assert torch.equal(cache.values.nan_to_num(), values.nan_to_num())


def test_what_was_not_captured_does_not_fit(loaded: Loaded):
    setup = Setup(loaded, [1, 2])
    assert not setup.graphs.fits(setup.decode(range(3)))  # too many rows
    assert not setup.graphs.fits([Share(setup.tables[0], 5, [3, 4], 1)])  # a chunk
    assert not setup.graphs.fits([Share(list(range(6)), 20, [3], 1)])  # too wide a table
    assert not setup.graphs.fits([])


@pytest.mark.parametrize("wanted", [[0, 0, 0], [1, 0, 1]])
def test_rows_that_want_no_logits_get_none(loaded: Loaded, wanted: list[int]):
    setup = Setup(loaded, [4])
    shares = [dataclasses.replace(share, num_logits=n) for share, n in zip(setup.decode(range(3)), wanted, strict=True)]
    torch.testing.assert_close(setup.replay(shares), setup.eager(flat_batch(shares, BLOCK_SIZE)))


def test_the_largest_size_is_captured_first(loaded: Loaded):
    captured: list[int] = []

    def capture(work):
        replay, result = repeat(work)
        captured.append(len(result))
        return replay, result

    setup = Setup(loaded, [1])
    DecodeGraphs(setup.eager, [1, 4, 2], 5, BLOCK_SIZE, torch.device("cpu"), capture)
    assert captured == [4, 2, 1]


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 2, 1, 5), (17, 4, 0, 3), (0, 0, 0, 0)])
def test_the_inputs_of_a_pass_lie_apart_and_aligned(sizes: tuple[int, int, int, int]):
    """A kernel is compiled anew for a pointer of another alignment."""
    layout = Layout(*sizes)
    buffer = torch.zeros(layout.num_words, dtype=torch.int64)
    parts = layout.split(buffer, torch.int32)
    for part in parts:
        assert part.is_contiguous()
        assert not part.any()
        part.fill_(1)
    assert all((part.data_ptr() - buffer.data_ptr()) % 16 == 0 for part in parts if part.numel())


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 4}], ids=["greedy", "sampled"])
def test_an_engine_that_replays_gives_the_same_answers(loaded: Loaded, params: dict[str, Any]):
    """Chunks and mixed steps run eagerly in between; rows come and go, so that sizes change and padding with them."""
    prompts = [[(7 * i + n) % 250 for i in range(length)] for n, length in enumerate((40, 12, 33, 21, 40))]
    config = {"block_size": 4, "num_blocks": 64, "max_num_seqs": 4, "max_num_batched_tokens": 24}
    eager, replaying = RealEngine(loaded, **config), RealEngine(loaded, **config)
    runner = replaying.core.runner
    assert isinstance(runner, ModelRunner)
    runner.capture(repeat)
    expected = [request.output_token_ids for request in eager.run(prompts, 24, **params)]
    assert [request.output_token_ids for request in replaying.run(prompts, 24, **params)] == expected


def test_a_draft_model_that_replays_makes_the_same_guesses(loaded: Loaded):
    """K is cut short where an answer is about to end, so that rows want unequally many."""
    config = {"num_blocks": 64, "max_num_seqs": 4, "speculative": "draft:first-1-layers:3"}
    prompts = [list(range(20 + n, 32 + 3 * n)) for n in range(3)]
    steps = []
    for capture in (None, repeat):
        engine = RealEngine(loaded, **config)
        runner = engine.core.runner
        assert isinstance(runner, ModelRunner)
        if capture is not None:
            runner.capture(capture)
        engine.run(prompts, 17)
        steps.append([event.rows for event in engine.sink if isinstance(event, events.Step)])
    assert steps[0] == steps[1]
    assert any(row.accepted for rows in steps[0] for row in rows)


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (8, [1, 2, 4, 8]),
        (20, [1, 2, 4, 8, 16, 20]),
        (100, [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 100]),
    ],
)
def test_sizes(most: int, expected: list[int]):
    assert graph_sizes(most) == expected
