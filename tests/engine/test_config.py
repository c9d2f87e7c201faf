"""EngineConfig: valid once made; what cannot work is said in a sentence that names the flag."""

import dataclasses

import pytest

from engine.config import MAX_BLOCK_SIZE, MOST, EngineConfig, flag
from engine.errors import ConfigError

NAN = float("nan")


def test_the_defaults_are_valid():
    assert EngineConfig().model == "smollm2-135m-instruct"


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EngineConfig().seed = 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_model_len", 0),
        ("num_blocks", 0),
        ("kv_cache_memory_bytes", -1),
        ("max_num_seqs", 0),
        ("max_num_batched_tokens", 0),
        ("max_queue", 0),
        ("block_size", 0),
        ("block_size", MAX_BLOCK_SIZE + 1),
        ("watermark", -0.1),
        ("watermark", 0.5),
        ("watermark", NAN),
        ("gpu_memory_utilization", 0.0),
        ("gpu_memory_utilization", 1.1),
        ("gpu_memory_utilization", NAN),
        ("scripted_step_ms", -1.0),
        ("scripted_step_ms", NAN),
        ("scripted_step_ms", float("inf")),
    ],
)
def test_a_value_beyond_its_limits_is_refused_by_the_flags_name(field, value):
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**{field: value})
    assert flag(field) in str(caught.value)
    assert str(value) in str(caught.value)


@pytest.mark.parametrize("field", MOST)
def test_a_value_that_would_eat_the_machine_is_refused(field):
    with pytest.raises(ConfigError, match=f"{flag(field)} is .* at most {MOST[field]}"):
        EngineConfig(**{field: 10**400})


@pytest.mark.parametrize("field", ["model", "speculative", "cost_model"])
@pytest.mark.parametrize("name", ["a\0b", "\udcff"])
def test_a_name_that_is_not_text_is_refused(field, name):
    with pytest.raises(ConfigError, match=f"{flag(field)} is not text"):
        EngineConfig(**{field: name})


@pytest.mark.parametrize("model", ["", "  "])
def test_an_empty_model_is_refused(model):
    """It would be the folder we happen to stand in."""
    with pytest.raises(ConfigError, match="--model is empty"):
        EngineConfig(model=model)


@pytest.mark.parametrize("field", ["max_model_len", "num_blocks", "kv_cache_memory_bytes"])
def test_none_leaves_the_choice_to_the_start(field):
    assert getattr(EngineConfig(), field) is None


def test_a_budget_below_the_slots_is_refused_with_both_flags():
    with pytest.raises(ConfigError, match=r"--max-num-batched-tokens is 7, below --max-num-seqs 8"):
        EngineConfig(max_num_batched_tokens=7, max_num_seqs=8)


def test_without_chunking_the_budget_must_hold_the_whole_context():
    with pytest.raises(ConfigError, match=r"--no-enable-chunked-prefill needs --max-num-batched-tokens \(256\)"):
        EngineConfig(enable_chunked_prefill=False, max_model_len=257)
    EngineConfig(enable_chunked_prefill=False, max_model_len=256)


def test_a_context_that_only_the_model_settles_is_checked_then():
    config = EngineConfig(enable_chunked_prefill=False)
    with pytest.raises(ConfigError, match="--max-model-len"):
        config.resolve(max_model_len=8192, num_blocks=100)


def test_resolving_settles_the_two_open_values_and_no_other():
    config = EngineConfig(max_num_seqs=3)
    resolved = config.resolve(max_model_len=100, num_blocks=10)
    assert (resolved.max_model_len, resolved.num_blocks) == (100, 10)
    assert dataclasses.replace(resolved, max_model_len=None, num_blocks=None) == config


def test_a_flag_is_spelled_with_dashes():
    assert flag("max_num_seqs") == "--max-num-seqs"
