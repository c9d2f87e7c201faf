"""Command-line flags and EngineConfig: the same thing, there and back."""

import argparse
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig, flag
from engine.errors import ConfigError
from engine.flags import add_config_flags, config_from_args, config_to_argv


def parse(*argv: str) -> EngineConfig:
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    return config_from_args(parser.parse_args(argv))


def test_no_flags_give_the_defaults():
    assert parse() == EngineConfig()


def test_every_field_has_a_flag_of_its_name():
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    assert {flag(field.name) for field in dataclasses.fields(EngineConfig)} <= options


def test_every_flag_has_a_help_text():
    parser = argparse.ArgumentParser()
    add_config_flags(parser)
    assert all(action.help for action in parser._actions)
    assert parser.format_help()


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--model", "dir"], "model", "dir"),
        (["--max-num-seqs", "3"], "max_num_seqs", 3),
        (["--watermark=0.2"], "watermark", 0.2),
        (["--no-enable-prefix-caching"], "enable_prefix_caching", False),
        (["--enable-chunked-prefill"], "enable_chunked_prefill", True),
        (["--enforce-eager"], "enforce_eager", True),
        (["--start-paused"], "start_paused", True),
        (["--num-blocks", "9"], "num_blocks", 9),
        (["--scripted-step-ms", "1.5"], "scripted_step_ms", 1.5),
        (["--dtype", "bfloat16"], "dtype", "bfloat16"),
    ],
)
def test_a_flag_sets_its_field(argv, field, value):
    assert getattr(parse(*argv), field) == value


@pytest.mark.parametrize("argv", [["--dtype", "int4"], ["--max-num-seqs", "many"], ["--unknown"], ["--device", "tpu"]])
def test_a_flag_that_cannot_be_read_ends_the_program_with_its_name(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*argv)
    assert ended.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_a_value_that_cannot_work_is_a_config_error():
    with pytest.raises(ConfigError, match="--max-num-seqs is 0"):
        parse("--max-num-seqs", "0")


def test_only_what_differs_from_the_defaults_is_written_down():
    assert config_to_argv(EngineConfig()) == []
    assert config_to_argv(EngineConfig(max_num_seqs=3)) == ["--max-num-seqs=3"]


configs = st.builds(
    EngineConfig,
    model=st.sampled_from(["scripted", "a b", "-odd", "--worse", "x=y"]),
    load_format=st.sampled_from(["auto", "gguf"]),
    device=st.sampled_from(["auto", "cpu"]),
    dtype=st.sampled_from(["auto", "float32"]),
    max_model_len=st.none() | st.integers(1, 256),
    block_size=st.integers(1, 256),
    num_blocks=st.none() | st.integers(1, 10_000),
    kv_cache_memory_bytes=st.none() | st.integers(1, 2**40),
    gpu_memory_utilization=st.floats(0.01, 1.0),
    max_num_seqs=st.integers(1, 64),
    max_num_batched_tokens=st.integers(256, 4096),
    max_queue=st.integers(1, 1000),
    enable_prefix_caching=st.booleans(),
    enable_chunked_prefill=st.booleans(),
    enforce_eager=st.booleans(),
    watermark=st.floats(0.0, 0.49),
    seed=st.integers(-(2**40), 2**40),
    start_paused=st.booleans(),
    scripted_step_ms=st.floats(0.0, 60_000.0),
)


@given(configs)
def test_a_config_survives_the_command_line(config):
    """The app starts its engine with these flags."""
    assert parse(*config_to_argv(config)) == config
