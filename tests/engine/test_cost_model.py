"""The cost model: what it counts, and that a fit finds the truth again."""

import dataclasses
import random
from pathlib import Path

import pytest

from engine.cost_model import BUILTIN, BUILTIN_MODEL, CostModel, StepShape, fit, load_cost_model
from engine.errors import ConfigError
from engine.events import Step
from tests.engine.harness import Harness, to_json

TRUTH = CostModel(step_us=20_000, prefill_token_us=700, decode_row_us=2_500, kv_token_us=3.0, prefill_pair_us=0.4)


def recorded_steps(noise=lambda us: us, truth=TRUTH, seed=1):
    """Steps of a scripted engine whose forward takes exactly what `truth` says, times some noise."""
    rng = random.Random(seed)
    harness = Harness(num_blocks=400, max_model_len=2048, max_num_seqs=8, max_num_batched_tokens=128)
    inner = harness.runner.forward

    def forward(output):
        harness.clock.advance(noise(truth.predict(StepShape.of_rows(output.rows))))
        return inner(output)

    harness.runner.forward = forward
    for _ in range(30):
        harness.add([rng.randrange(256) for _ in range(rng.randrange(8, 400))], rng.randrange(2, 40))
    harness.run()
    return [to_json(step) for step in harness.of(Step)]


def values(model):
    return pytest.approx(dataclasses.astuple(model), rel=0.05, abs=0.02)


def test_a_schedule_and_its_event_have_the_same_shape():
    harness = Harness(max_num_batched_tokens=24, speculative="ngram:3", script=lambda request, index: 97 + index % 2)
    for length in (5, 30, 60):
        harness.add("ab" * length, 12)
    harness.run()
    shapes = [StepShape.of_rows(output.rows) for output in harness.runner.outputs]
    assert [StepShape.of_event(to_json(step)) for step in harness.of(Step)] == shapes
    assert any(shape.decode_rows > 3 for shape in shapes)


def test_the_terms_of_a_mixed_step():
    harness = Harness(max_num_batched_tokens=20)
    harness.add("x" * 10, 4)
    harness.step()
    harness.add("y" * 30, 4)
    harness.step()
    assert StepShape.of_rows(harness.runner.outputs[0].rows) == StepShape(prefill_tokens=10, prefill_pairs=55)
    assert StepShape.of_rows(harness.runner.outputs[1].rows) == StepShape(19, 1, 11, 190)


def test_a_fit_recovers_a_known_cost():
    found = fit(recorded_steps())
    assert dataclasses.astuple(found.model) == values(TRUTH)
    assert found.r2 > 0.9999


def test_a_fit_shrugs_off_steps_that_something_else_slowed_down():
    rng = random.Random(2)
    found = fit(recorded_steps(lambda us: us * 7 if rng.random() < 0.1 else us))
    assert dataclasses.astuple(found.model) == values(TRUTH)
    assert found.num_outliers > 5


def test_slow_moments_can_be_part_of_what_is_foretold():
    rng = random.Random(2)
    steps = recorded_steps(lambda us: us * 7 if rng.random() < 0.1 else us)
    found = fit(steps, leave_out=False)
    foretold = sum(found.model.predict(StepShape.of_event(step)) for step in steps)
    assert found.num_outliers == 0
    assert foretold == pytest.approx(sum(step["wall_us"] for step in steps), rel=0.05)


def test_noisy_steps_are_foretold_right_on_the_whole():
    rng = random.Random(3)
    steps = recorded_steps(lambda us: round(us * rng.uniform(0.3, 1.7)))
    model = fit(steps).model
    foretold = sum(model.predict(StepShape.of_event(step)) for step in steps)
    assert foretold == pytest.approx(sum(step["wall_us"] for step in steps), rel=0.03)


def test_no_term_is_negative_even_where_the_best_line_would_be():
    steps = recorded_steps(truth=CostModel(step_us=10_000, decode_row_us=500))
    for step in steps:
        step["wall_us"] = max(100, step["wall_us"] - 5 * step["num_prefill_tokens"])
    assert min(dataclasses.astuple(fit(steps).model)) >= 0


def test_publishing_the_step_before_is_no_part_of_a_step():
    steps = recorded_steps()
    for step in steps:
        step["wall_us"] += 9_000
        step["phases_us"]["publish"] = 9_000
    assert dataclasses.astuple(fit(steps).model) == values(TRUTH)


def test_steps_gated_by_hand_are_no_measurements():
    steps = [{**step, "gated": True} for step in recorded_steps()]
    with pytest.raises(ConfigError, match="0 measured steps"):
        fit(steps)


def test_json_brings_a_model_back(tmp_path: Path):
    file = tmp_path / "cost.json"
    file.write_text(TRUTH.to_json())
    assert load_cost_model(str(file)) == TRUTH


def test_the_builtin_model_needs_no_file():
    assert load_cost_model(BUILTIN) == BUILTIN_MODEL


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"step_us": 1}', TRUTH.to_json().replace("20000", "NaN")])
def test_a_file_that_is_no_cost_model_is_refused_by_name(tmp_path: Path, text: str):
    file = tmp_path / "cost.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"cost\.json"):
        load_cost_model(str(file))


def test_a_missing_file_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        load_cost_model("nowhere.json")
