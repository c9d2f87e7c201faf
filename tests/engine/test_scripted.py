"""The scripted model: bytes in, bytes out, the same under any schedule."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.scripted import EOS, VOCAB_SIZE, ScriptedRunner, byte_tokenizer, echo_script, scripted_facts
from tests.engine.harness import Harness, letters

TOKENIZER = byte_tokenizer()


@given(st.text())
def test_a_token_is_a_byte(text):
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    assert ids == list(text.encode())
    assert TOKENIZER.decode(ids) == text


def test_the_end_token_is_the_last_of_the_vocabulary():
    assert TOKENIZER.token_to_id("<|end|>") == EOS == VOCAB_SIZE - 1
    assert TOKENIZER.get_vocab_size() == VOCAB_SIZE


def test_the_end_token_has_no_text():
    assert TOKENIZER.decode([97, EOS, 98]) == "ab"


def test_it_repeats_what_was_said_and_ends_by_itself():
    engine = Harness(echo_script)
    request = engine.add("<system>Be brief.\n<user>Hello there\n<assistant>", max_tokens=400)
    engine.run()
    assert engine.text(request).startswith("You said: Hello there. A step hands")
    assert request.finish_reason.value == "stop"


def test_it_repeats_only_the_last_turn():
    engine = Harness(echo_script)
    request = engine.add("<user>first\n<assistant>x\n<user>second\n<assistant>", max_tokens=18)
    engine.run()
    assert engine.text(request) == "You said: second. "


@pytest.mark.parametrize("neighbours", [0, 1, 3, 7])
@pytest.mark.parametrize("budget", [16, 200])
@pytest.mark.parametrize("caching", [True, False])
def test_neighbours_chunks_and_cache_change_no_token(neighbours, budget, caching):
    """A43."""
    engine = Harness(num_blocks=20, max_num_seqs=8, max_num_batched_tokens=budget, enable_prefix_caching=caching)
    request = engine.add("x" * 50, max_tokens=20)
    for i in range(neighbours):
        engine.add("x" * 50 + "y" * i, max_tokens=30)
    engine.run()
    assert request.output_token_ids == [letters(request, i) for i in range(20)]


def test_equal_seeds_give_equal_answers_whatever_their_slots():
    """A45 for the scripted model; tests/engine/test_model_runner.py has it for a real one."""
    engine = Harness()
    first, second = engine.add("same", max_tokens=9), engine.add("same", max_tokens=9)
    engine.run()
    assert first.output_token_ids == second.output_token_ids


def test_a_row_that_has_not_reached_its_last_token_yields_nothing():
    engine = Harness(max_num_batched_tokens=8)
    engine.add("x" * 20)
    engine.step()
    output = engine.runner.outputs[-1]
    assert engine.runner.sample(output, output) == [[]]


def test_its_pace_is_that_of_the_config():
    runner = ScriptedRunner(step_ms=5.0)
    engine = Harness()
    engine.add("x")
    output = engine.scheduler.schedule(0)
    start = time.monotonic()
    runner.forward(output)
    assert time.monotonic() - start >= 0.005


def test_what_is_open_is_settled():
    config = scripted_facts(EngineConfig(model="scripted")).config
    assert config.max_model_len is not None
    assert config.num_blocks is not None


def test_what_is_given_is_kept():
    facts = scripted_facts(EngineConfig(model="scripted", num_blocks=10, max_model_len=99, block_size=8))
    assert (facts.config.num_blocks, facts.config.max_model_len) == (10, 99)
    assert facts.memory.kv_pool == facts.memory.bytes_per_block * 10
    assert facts.memory.bytes_per_block == facts.memory.bytes_per_token * 8
