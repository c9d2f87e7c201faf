"""Everything that `--model` may point at, and one readable sentence for each way it can be wrong."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.config import DEFAULT_MODEL, EngineConfig
from engine.errors import ConfigError, LoadError
from engine.gguf_file import read_gguf
from engine.model_source import ModelSource, SourceKind, check_models, find_source
from engine.models.config import parse_model_config
from tests.engine.tiny import tiny_config, write_folder, write_gguf

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 1000\n"


EVEN = {"low_freq_factor": 1, "high_freq_factor": 1, "original_max_position_embeddings": 8192}


def find(path: Path | str, **flags: Any) -> ModelSource:
    return find_source(EngineConfig(model=str(path), **flags))


def refusal(path: Path | str, **flags: Any) -> str:
    """The sentence with which `path` is refused."""
    with pytest.raises(LoadError) as caught:
        find(path, **flags)
    message = str(caught.value)
    assert "\n" not in message
    return message


def cut(file: Path, *, keep: float) -> Path:
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tiny")


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


# -- what can be given -------------------------------------------------------------------------------------------


def test_the_default_is_the_embedded_model():
    source = find_source(EngineConfig())
    assert (source.kind, source.name) == (SourceKind.EMBEDDED, DEFAULT_MODEL)


def test_a_folder_is_served_under_its_name(folder: Path):
    assert find(folder) == ModelSource(SourceKind.FOLDER, "tiny", folder)


def test_a_sharded_folder(tmp_path: Path):
    assert find(write_folder(tmp_path / "sharded", shards=3)).kind is SourceKind.FOLDER


def test_a_tied_head_may_be_missing(tmp_path: Path):
    assert find(write_folder(tmp_path / "tied", tie_word_embeddings=True)).kind is SourceKind.FOLDER


def test_a_gguf_is_served_under_its_stem(gguf_file: Path):
    assert find(gguf_file) == ModelSource(SourceKind.GGUF, "tiny", gguf_file)


def test_a_folder_that_holds_only_a_gguf_means_that_file(gguf_file: Path):
    assert find(gguf_file.parent) == ModelSource(SourceKind.GGUF, "tiny", gguf_file)


def test_owner_slash_name_is_a_hub_id():
    assert find("someone/some-model") == ModelSource(SourceKind.HUB, "someone/some-model")


def test_dummy_needs_nothing_but_a_config(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(tiny_config()))
    for path in (tmp_path, tmp_path / "config.json"):
        assert find(path, load_format="dummy").kind is SourceKind.DUMMY


def test_the_scripted_model_is_not_looked_for_on_disk():
    assert find("scripted").kind is SourceKind.SCRIPTED


def test_a_simulation_needs_no_model(tmp_path: Path):
    assert find(tmp_path / "nothing here", simulate=True).kind is SourceKind.SCRIPTED


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/no/such/model", "./no-such", "no-such.gguf", "~/no-such-model"])
def test_a_wrong_path(path: str):
    assert refusal(path).startswith(f"--model {path}: there is no such file or folder")


def test_a_wrong_name_in_an_existing_folder_is_no_hub_id(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder.parent)
    assert "no such file or folder" in refusal("tiny/missing")


def test_an_empty_folder(tmp_path: Path):
    assert "is an empty folder" in refusal(tmp_path)


@pytest.mark.parametrize("keep", [0.0, 0.0001, 0.01, 0.5, 0.9999])
def test_a_cut_off_safetensors_file(folder: Path, keep: float):
    cut(folder / "model.safetensors", keep=keep)
    assert "model.safetensors is cut off" in refusal(folder)


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.02, 0.5, 0.9999])
def test_a_cut_off_gguf(gguf_file: Path, keep: float):
    assert "tiny.gguf is cut off" in refusal(cut(gguf_file, keep=keep))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_git_lfs_pointer_in_a_folder(folder: Path, name: str):
    (folder / name).write_bytes(LFS_POINTER)
    assert f"{name} is a Git-LFS pointer, not the file itself. Run `git lfs pull`" in refusal(folder)


def test_a_git_lfs_pointer_for_a_gguf(gguf_file: Path):
    gguf_file.write_bytes(LFS_POINTER)
    assert "is a Git-LFS pointer" in refusal(gguf_file)


def test_a_file_that_only_calls_itself_gguf(tmp_path: Path):
    (tmp_path / "fake.gguf").write_bytes(b"PK\x03\x04" + bytes(100))
    assert "is not a GGUF file" in refusal(tmp_path / "fake.gguf")


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        ("general.alignment", 4, struct.pack("<I", 0)),
        ("general.alignment", 8, struct.pack("<Q", 1) + b"x"),
        ("deep", 9, struct.pack("<IQ", 9, 1) * 2000),
    ],
)
def test_a_gguf_whose_header_makes_no_sense(tmp_path: Path, key: str, kind: int, value: bytes):
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key.encode()
    file = tmp_path / "odd.gguf"
    file.write_bytes(header + struct.pack("<I", kind) + value + bytes(64))
    with pytest.raises(LoadError, match="is damaged"):
        read_gguf(file)


def test_a_file_that_is_no_gguf(folder: Path):
    assert "give the folder that holds them" in refusal(folder / "model.safetensors")


@pytest.mark.parametrize("header", [b"]]]]", b"[" * 100_000], ids=["no JSON", "too deep"])
def test_damaged_safetensors(folder: Path, header: bytes):
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(64))
    assert "header is not readable" in refusal(folder)


@pytest.mark.parametrize("text", ["{", "[" * 100_000], ids=["no JSON", "too deep"])
def test_damaged_json(folder: Path, text: str):
    (folder / "config.json").write_text(text)
    assert "config.json is damaged" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", "has no *.safetensors"),
        ("tokenizer.json", "has no tokenizer.json"),
    ],
)
def test_a_missing_file(folder: Path, name: str, expected: str):
    (folder / name).unlink()
    assert expected in refusal(folder)


def test_a_missing_shard(tmp_path: Path):
    folder = write_folder(tmp_path / "sharded", shards=3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert "names model-00002-of-00003.safetensors, which is missing" in refusal(folder)


def test_an_untied_head_must_be_there(tmp_path: Path):
    folder = write_folder(tmp_path / "tiny", tie_word_embeddings=True)
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    assert "lacks the weight lm_head.weight" in refusal(folder)


def test_weights_that_do_not_fit_the_config(folder: Path):
    (folder / "config.json").write_text(json.dumps(tiny_config(intermediate_size=128)))
    assert "of shape [96, 64]; its config asks for [128, 64]" in refusal(folder)


def test_an_unsupported_architecture(folder: Path):
    (folder / "config.json").write_text(json.dumps(tiny_config(architectures=["GPT2LMHeadModel"])))
    assert "is of architecture GPT2LMHeadModel; supported: LlamaForCausalLM, MistralForCausalLM, " in refusal(folder)


def test_an_unsupported_architecture_in_a_gguf(tmp_path: Path):
    assert "architecture 'gpt2'; supported: llama" in refusal(write_gguf(tmp_path / "x.gguf", architecture="gpt2"))


def test_scaled_rope_in_a_gguf_is_refused_by_name(tmp_path: Path):
    file = write_gguf(tmp_path / "x.gguf", llama__rope__scaling__type="yarn")
    assert "scaled rotary embedding (yarn)" in refusal(file)


def test_experts_are_refused(tmp_path: Path):
    assert "mixture of 8 experts" in refusal(write_gguf(tmp_path / "x.gguf", llama__expert_count=8))


def test_two_ggufs_in_a_folder(gguf_file: Path):
    write_gguf(gguf_file.with_name("other.gguf"))
    assert "holds 2 .gguf files" in refusal(gguf_file.parent)


def test_dummy_of_something_without_a_config(tmp_path: Path):
    assert "needs --model to be a config.json or its folder" in refusal(tmp_path, load_format="dummy")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("load_format", "onnx", "--load-format is 'onnx'; it must be one of auto, safetensors"),
        ("dtype", "int4", "--dtype is 'int4'; it must be one of auto, float32"),
        ("device", "tpu", "--device is 'tpu'; it must be one of auto, cpu"),
    ],
)
def test_a_choice_that_is_not_one(name: str, value: str, expected: str):
    with pytest.raises(ConfigError, match=expected):
        find_source(EngineConfig(**{name: value}))


def test_the_load_format_must_fit_the_file(gguf_file: Path):
    assert "--load-format is safetensors" in refusal(gguf_file, load_format="safetensors")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden_act": "gelu"}, "only silu"),
        ({"num_key_value_heads": 3}, "not a multiple of num_key_value_heads 3"),
        ({"vocab_size": 0}, "no usable vocab_size"),
        ({"hidden_size": None}, "no usable hidden_size"),
        ({"head_dim": 15}, "needs an even number"),
        ({"num_key_value_heads": [2, 1]}, "no usable num_key_value_heads"),  # one per layer, as some GGUFs have it
        ({"max_position_embeddings": "2048"}, "no usable max_position_embeddings"),
        ({"rope_scaling": "linear"}, "no usable rope_scaling"),
        ({"num_key_value_heads": -2}, "no usable num_key_value_heads: it is -2"),
        ({"num_key_value_heads": True}, "no usable num_key_value_heads: it is True"),
        ({"head_dim": -16}, "no usable head_dim: it is -16"),
        ({"head_dim": None, "hidden_size": 2}, "hidden_size 2, below num_attention_heads 4"),
        ({"max_position_embeddings": -1}, "no usable max_position_embeddings: it is -1"),
        ({"sliding_window": -1}, "no usable sliding_window: it is -1"),
        ({"num_hidden_layers": 10**9}, "no usable num_hidden_layers: it is 1000000000, .* from 1 to 4096"),
        ({"vocab_size": 10**12}, "no usable vocab_size"),
        ({"rms_norm_eps": float("nan")}, "no usable rms_norm_eps: it is nan"),
        ({"rms_norm_eps": -1}, "no usable rms_norm_eps: it is -1"),
        ({"rope_theta": -5}, "no usable rope_theta: it is -5"),
        ({"rope_theta": float("inf")}, "no usable rope_theta: it is inf"),
        ({"rope_parameters": {"rope_theta": "1e4"}}, "no usable rope_theta: it is '1e4'"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "per kind of layer"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "x"}}, "no usable factor: it is 'x'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "no usable factor: it is 0"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8, **EVEN}}, "must be below high_freq_factor"),
        ({"tie_word_embeddings": "false"}, "no usable tie_word_embeddings: it is 'false'"),
        ({"attention_bias": "no"}, "no usable attention_bias"),
        ({"layer_types": ["linear_attention"]}, "supported: full_attention, sliding_attention"),
        ({"architectures": 3}, "architectures 3; it must be a list of names"),
        ({"architectures": [["a"]]}, "it must be a list of names"),
        ({"eos_token_id": "</s>"}, "eos_token_id '</s>'; it must be a token id"),
        ({"eos_token_id": [[1]]}, "it must be a token id or a list of them"),
        ({"eos_token_id": True}, "it must be a token id or a list of them"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "rotary embedding of type 'yarn'"),
        ({"rope_scaling": {"type": "linear"}}, "leaves out factor"),
        ({"partial_rotary_factor": 0.5}, "only part of each head"),
    ],
)
def test_a_config_that_cannot_be_computed(changes: dict[str, Any], expected: str):
    with pytest.raises(LoadError, match=expected):
        parse_model_config(tiny_config(**changes), "config.json")


def test_a_draft_model_of_its_own_is_checked_too(tmp_path: Path):
    """So that neither a start nor a restart begins with one that cannot be loaded."""
    folder = write_folder(tmp_path / "tiny")
    check_models(EngineConfig(model=str(folder), speculative=f"draft:{folder}:2"))
    check_models(EngineConfig(model=str(folder), speculative="draft:first-1-layers:2"))
    with pytest.raises(LoadError, match=r"The draft model of --speculative cannot be loaded: .*no such file"):
        check_models(EngineConfig(model=str(folder), speculative=f"draft:{tmp_path / 'none'}:2"))


@pytest.mark.parametrize(
    "name",
    [
        "hidden_act",
        "head_dim",
        "num_key_value_heads",
        "rope_scaling",
        "rms_norm_eps",
        "tie_word_embeddings",
        "eos_token_id",
    ],
)
def test_null_in_a_config_equals_absent(name: str):
    without = {key: value for key, value in tiny_config().items() if key != name}
    assert parse_model_config({**without, name: None}, "a") == parse_model_config(without, "a")


@pytest.mark.parametrize("name", ["a" * 5000, "/" + "a" * 5000, "~no-such-user-here/model"])
def test_a_name_that_the_system_refuses_is_one_sentence(name: str):
    said = refusal(name)
    assert said.startswith("--model ")
    assert len(said) < 300


# -- before anything is served, or ended for it --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ("/no/such/draft", "The draft model of --speculative cannot be loaded: .*/no/such/draft"),
        ("first-2-layers", "the first 2 layers, and tiny has 2; a draft model needs fewer: 1 to 1"),
        ("first-9-layers", "the first 9 layers, and tiny has 2"),
        ("{other}", "other has a vocabulary of 300 tokens and tiny one of 272"),
        ("{empty}", "empty folder"),
        ("a" * 5000, "cannot be read"),
    ],
)
def test_a_draft_model_that_cannot_guess_is_found_out_before_the_start(
    folder: Path, tmp_path: Path, draft: str, said: str
):
    other = write_folder(tmp_path / "other", vocab_size=300)
    (tmp_path / "empty").mkdir()
    name = draft.format(other=other, empty=tmp_path / "empty")
    with pytest.raises((LoadError, ConfigError), match=said) as caught:
        check_models(EngineConfig(model=str(folder), speculative=f"draft:{name}:3"))
    assert "--speculative" in str(caught.value)


def test_a_draft_model_that_can_guess_passes(folder: Path):
    check_models(EngineConfig(model=str(folder), speculative="draft:first-1-layers:3"))
    check_models(EngineConfig(model=str(folder), speculative=f"draft:{folder}:3"))


def test_a_cost_model_that_is_not_there_is_found_out_before_the_start():
    with pytest.raises(ConfigError, match="--cost-model /no/such cannot be used"):
        check_models(EngineConfig(simulate=True, cost_model="/no/such"))
