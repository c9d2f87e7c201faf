"""A GGUF becomes the folder that its safetensors twin would have been, tokenizer and stop tokens included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import load_file
from tokenizers import Tokenizer

from engine.errors import LoadError
from engine.gguf_convert import convert
from engine.gguf_file import GGUFFile, read_gguf
from engine.gguf_tokenizer import build_tokenizer
from engine.models.config import parse_model_config
from tests.engine.tiny import random_weights, tiny_config, write_gguf


def converted(file: Path, folder: Path) -> Path:
    folder.mkdir()
    convert(read_gguf(file), folder, lambda done, total: None)
    return folder


def test_the_header_agrees_with_the_gguf_package(tmp_path: Path):
    path = write_gguf(tmp_path / "tiny.gguf", matrices=GGMLQuantizationType.Q8_0)
    found, reader = read_gguf(path), gguf.GGUFReader(path)
    assert found.metadata["llama.rope.freq_base"] == 10000.0
    assert found.metadata["tokenizer.ggml.merges"] == ["h e"]
    assert set(found.tensors) == {tensor.name for tensor in reader.tensors}
    for tensor in reader.tensors:
        mine = found.tensors[tensor.name]
        assert (mine.offset, mine.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert mine.shape == tuple(int(n) for n in reversed(tensor.shape))


def test_converted_weights_are_those_of_the_twin(tmp_path: Path):
    folder = converted(write_gguf(tmp_path / "tiny.gguf"), tmp_path / "out")
    expected = random_weights(parse_model_config(tiny_config(), "tiny"))
    found = load_file(folder / "model.safetensors")
    assert set(found) == set(expected)
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


def test_quantised_weights_come_close(tmp_path: Path):
    folder = converted(write_gguf(tmp_path / "tiny.gguf", matrices=GGMLQuantizationType.Q8_0), tmp_path / "out")
    found = load_file(folder / "model.safetensors")
    for name, weight in random_weights(parse_model_config(tiny_config(), "tiny")).items():
        torch.testing.assert_close(found[name], weight, atol=0.01, rtol=0.0)


@pytest.mark.parametrize("kind", [GGMLQuantizationType.F16, GGMLQuantizationType.BF16], ids=["F16", "BF16"])
def test_half_precision_stays_as_it_is(tmp_path: Path, kind: GGMLQuantizationType):
    folder = converted(write_gguf(tmp_path / "tiny.gguf", matrices=kind), tmp_path / "out")
    dtype = torch.float16 if kind is GGMLQuantizationType.F16 else torch.bfloat16
    found = load_file(folder / "model.safetensors")
    for name, weight in random_weights(parse_model_config(tiny_config(), "tiny")).items():
        assert torch.equal(found[name], weight.to(dtype) if weight.ndim == 2 else weight), name


def test_the_converted_config_says_the_same(tmp_path: Path):
    folder = converted(write_gguf(tmp_path / "tiny.gguf"), tmp_path / "out")
    found = parse_model_config(json.loads((folder / "config.json").read_text()), "converted")
    expected = parse_model_config(tiny_config(eos_token_id=[258, 259]), "tiny")
    assert found.rms_norm_eps == pytest.approx(expected.rms_norm_eps)
    assert parse_model_config(tiny_config(eos_token_id=[258, 259], rms_norm_eps=found.rms_norm_eps), "") == found


def test_bytes_outside_every_merge_survive(tmp_path: Path):
    tokenizer = build_tokenizer(read_gguf(write_gguf(tmp_path / "tiny.gguf")))
    text = "he said: 12\u00e9 \u65e5\u672c \U0001f642\n"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == text
    assert ids[0] == 256  # the merge h e


def test_digits_are_cut_one_by_one_for_smollm(tmp_path: Path):
    tokenizer = build_tokenizer(read_gguf(write_gguf(tmp_path / "tiny.gguf")))
    words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str("a 123")]
    assert words == ["a", "\u0120", "1", "2", "3"]


def test_control_tokens_are_matched_whole_and_skipped_in_answers(tmp_path: Path):
    tokenizer = build_tokenizer(read_gguf(write_gguf(tmp_path / "tiny.gguf")))
    ids = tokenizer.encode("he<|stop|>", add_special_tokens=False).ids
    assert ids == [256, 258]
    assert tokenizer.decode(ids) == "he"


def test_a_bos_token_is_added_where_the_file_says_so(tmp_path: Path):
    file = write_gguf(tmp_path / "tiny.gguf", tokenizer__ggml__add_bos_token=True)
    tokenizer = build_tokenizer(read_gguf(file))
    assert tokenizer.encode("he").ids == [257, 256]
    assert tokenizer.encode("he", add_special_tokens=False).ids == [256]


def test_an_unknown_word_rule_is_refused_by_name(tmp_path: Path):
    gguf_file = read_gguf(write_gguf(tmp_path / "tiny.gguf"))
    gguf_file.metadata["tokenizer.ggml.pre"] = "martian"
    with pytest.raises(LoadError, match="by the rule 'martian'"):
        build_tokenizer(gguf_file)


def sentencepiece(**changes: Any) -> Tokenizer:
    """Llama 2's kind of vocabulary, in small: bytes, then pieces with scores."""
    pieces = ["\u2581", "h", "e", "l", "o", "he", "ll", "hell", "hello", "\u2581hello"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *pieces]
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(len(pieces))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(pieces),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0,
        **changes,
    }
    return build_tokenizer(GGUFFile(Path("small.gguf"), metadata, {}))


def test_sentencepiece_merges_come_from_the_scores():
    encoding = sentencepiece().encode("hello", add_special_tokens=False)
    assert encoding.tokens == ["\u2581hello"]


def test_sentencepiece_spells_the_unknown_in_bytes():
    tokenizer = sentencepiece()
    text = "hello \u65e5 \U0001f642"
    encoding = tokenizer.encode(text, add_special_tokens=False)
    assert "<0xE6>" in encoding.tokens
    assert tokenizer.decode(encoding.ids) == text


def test_sentencepiece_begins_with_bos_unless_told_otherwise():
    assert sentencepiece().encode("hello").ids[0] == 1
    told = sentencepiece(**{"tokenizer.ggml.add_bos_token": False})
    assert told.encode("hello").ids[0] != 1
