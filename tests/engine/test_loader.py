"""From a folder, a GGUF or a bare config to something that runs, and what a second start may not do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.loader import Loaded, load
from tests.engine.tiny import random_weights, tiny_config, write_folder, write_gguf

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def load_quietly(path: Path, **flags: Any) -> Loaded:
    return load(EngineConfig(model=str(path), **flags), lambda *report: None)


def phases(path: Path, **flags: Any) -> list[str]:
    """The phases that a load reports, each once, in order."""
    seen: list[str] = []
    load(EngineConfig(model=str(path), **flags), lambda phase, *counts: seen.append(phase))
    return list(dict.fromkeys(seen))


def change_json(file: Path, **changes: Any) -> None:
    value = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(value | changes))


# -- weights -----------------------------------------------------------------------------------------------------


def test_facts_of_a_folder(tmp_path: Path):
    facts = load_quietly(write_folder(tmp_path / "tiny")).facts
    parameters = sum(w.numel() for w in random_weights(load_quietly(tmp_path / "tiny").model.config).values())
    assert (facts.name, facts.architecture, facts.dtype) == ("tiny", "LlamaForCausalLM", "float32")
    assert (facts.num_layers, facts.num_attention_heads, facts.num_kv_heads, facts.head_dim) == (2, 4, 2, 16)
    assert (facts.num_parameters, facts.weight_bytes) == (parameters, 4 * parameters)


def test_a_tied_embedding_is_counted_once(tmp_path: Path):
    untied = load_quietly(write_folder(tmp_path / "a")).facts
    tied = load_quietly(write_folder(tmp_path / "b", tie_word_embeddings=True)).facts
    assert untied.num_parameters - tied.num_parameters == tied.vocab_size * tied.hidden_size


def test_shards_are_read_together(tmp_path: Path):
    whole = load_quietly(write_folder(tmp_path / "whole"))
    shards = load_quietly(write_folder(tmp_path / "shards", shards=3))
    assert torch.equal(whole.model.embed_tokens, shards.model.embed_tokens)
    assert torch.equal(whole.model.norm.weight, shards.model.norm.weight)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list its mappings")
@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}], ids=["untied", "tied"])
def test_no_file_stays_mapped(tmp_path: Path, changes: dict[str, Any]):
    loaded = load_quietly(write_folder(tmp_path / "tiny", **changes))
    assert str(loaded.folder) not in Path("/proc/self/maps").read_text()


def test_dtype_halves_the_weights(tmp_path: Path):
    loaded = load_quietly(write_folder(tmp_path / "tiny"), dtype="bfloat16")
    assert loaded.model.embed_tokens.dtype == torch.bfloat16
    assert loaded.facts.weight_bytes == 2 * loaded.facts.num_parameters


def test_progress_reaches_its_total(tmp_path: Path):
    reports: list[tuple[str, int, int, str]] = []
    load(EngineConfig(model=str(write_folder(tmp_path / "tiny"))), lambda *report: reports.append(report))
    assert {report[0] for report in reports} == {"read"}
    assert reports[-1][1] == reports[-1][2] == len(reports)


# -- conversion of a GGUF ----------------------------------------------------------------------------------------


def test_a_gguf_is_converted_once(tmp_path: Path):
    file = write_gguf(tmp_path / "tiny.gguf")
    assert phases(file) == ["convert", "read"]
    assert phases(file) == ["read"]


def test_a_changed_gguf_is_converted_again(tmp_path: Path):
    file = write_gguf(tmp_path / "tiny.gguf")
    load_quietly(file)
    os.utime(file, ns=(1, 1))
    assert phases(file) == ["convert", "read"]


def test_a_damaged_conversion_is_made_again(tmp_path: Path, cache: Path):
    file = write_gguf(tmp_path / "tiny.gguf")
    load_quietly(file)
    weights = next(cache.glob("converted/*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-10])
    assert phases(file) == ["convert", "read"]


def test_a_gguf_equals_its_safetensors_twin(tmp_path: Path):
    folder, file = write_folder(tmp_path / "twin"), write_gguf(tmp_path / "tiny.gguf")
    assert torch.equal(load_quietly(folder).model.embed_tokens, load_quietly(file).model.embed_tokens)


def test_what_a_gguf_says_about_stops_and_chat(tmp_path: Path):
    loaded = load_quietly(write_gguf(tmp_path / "tiny.gguf"))
    assert loaded.eos_token_ids == {258, 259}
    assert loaded.special_tokens["eos_token"] == "<|stop|>"
    assert loaded.chat_template is not None
    assert loaded.facts.has_chat_template


# -- tokenizer, template, stops ----------------------------------------------------------------------------------


def test_the_stop_set_is_a_union(tmp_path: Path):
    """A9: of what the tokenizer, config.json and generation_config.json say; none of them replaces another."""
    folder = write_folder(tmp_path / "tiny", eos_token_id=5)
    change_json(folder / "generation_config.json", eos_token_id=[7, 9])
    change_json(folder / "tokenizer_config.json", eos_token={"content": "<|end|>"})
    assert load_quietly(folder).eos_token_ids == {5, 7, 9, 256}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("one", "one"),
        ([{"name": "tool", "template": "x"}, {"name": "default", "template": "two"}], "two"),
        (None, None),
    ],
)
def test_the_chat_template_of_the_settings(tmp_path: Path, template: Any, expected: str | None):
    folder = write_folder(tmp_path / "tiny")
    change_json(folder / "tokenizer_config.json", chat_template=template)
    assert load_quietly(folder).chat_template == expected


def test_a_template_file_comes_first(tmp_path: Path):
    folder = write_folder(tmp_path / "tiny")
    change_json(folder / "tokenizer_config.json", chat_template="settings")
    (folder / "chat_template.jinja").write_text("file")
    assert load_quietly(folder).chat_template == "file"


def test_a_tokenizer_that_does_not_give_text_back_is_refused(tmp_path: Path):
    folder = write_folder(tmp_path / "tiny")
    change_json(folder / "tokenizer.json", decoder=None)
    with pytest.raises(LoadError, match="does not give text back unchanged"):
        load_quietly(folder)


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path):
    folder = write_folder(tmp_path / "tiny")
    large = write_folder(tmp_path / "large", vocab_size=300)
    tokenizer = json.loads((large / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += [{**tokenizer["added_tokens"][0], "id": 290, "content": "<|extra|>"}]
    tokenizer["model"]["vocab"]["<|extra|>"] = 290
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(LoadError, match="token id 290, outside the model's vocabulary of 272"):
        load_quietly(folder)


def test_a_tokenizer_that_is_no_tokenizer(tmp_path: Path):
    folder = write_folder(tmp_path / "tiny")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(LoadError, match="is not a readable tokenizer"):
        load_quietly(folder)


# -- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight_map", [None, [], 3, {"a": 7}, {"a": ["x" * 9999]}])
def test_an_index_that_names_no_files(tmp_path: Path, weight_map: Any):
    folder = write_folder(tmp_path / "tiny", shards=2)
    change_json(folder / "model.safetensors.index.json", weight_map=weight_map)
    with pytest.raises(LoadError, match=r"index\.json is damaged: its weight_map holds .{0,90}, no file\. Fetch"):
        load_quietly(folder)


def test_a_chat_template_that_is_no_text(tmp_path: Path):
    folder = write_folder(tmp_path / "tiny")
    (folder / "chat_template.jinja").write_bytes(b"\xff{{ messages }}")
    with pytest.raises(LoadError, match=r"chat_template\.jinja is damaged: it is not UTF-8 text\. Fetch"):
        load_quietly(folder)


def test_weights_that_only_the_reader_finds_damaged(tmp_path: Path):
    file = write_folder(tmp_path / "tiny") / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"data_offsets":[0,', b'"data_offsets":[4,', 1))
    with pytest.raises(LoadError, match=r"model\.safetensors cannot be read: .*\. Fetch the file again\."):
        load_quietly(tmp_path / "tiny")


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_folder(tmp_path / "tiny")

    def locked(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder / "config.json"))

    monkeypatch.setattr(Path, "read_text", locked)
    with pytest.raises(LoadError, match=r"cannot be read: .*config\.json: Permission denied\. Check that") as caught:
        load_quietly(folder)
    assert str(caught.value).startswith(f"--model {folder} ")


# -- dummy -------------------------------------------------------------------------------------------------------


def load_dummy(folder: Path, **flags: Any) -> Loaded:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    return load_quietly(folder, load_format="dummy", **flags)


def test_dummy_weights_depend_on_the_seed_only(tmp_path: Path):
    first = load_dummy(tmp_path / "dummy", seed=1).model.embed_tokens
    assert torch.equal(load_dummy(tmp_path / "dummy", seed=1).model.embed_tokens, first)
    assert not torch.equal(load_dummy(tmp_path / "dummy", seed=2).model.embed_tokens, first)
    assert 0.01 < first.std() < 0.03


def test_dummy_without_a_tokenizer_speaks_bytes(tmp_path: Path):
    loaded = load_dummy(tmp_path / "dummy")
    text = "h\u00e9, \U0001f642"
    ids = loaded.tokenizer.encode(text).ids
    assert len(ids) == len(text.encode())
    assert loaded.tokenizer.decode(ids) == text
    assert loaded.eos_token_ids == {256}


# -- a warm start ------------------------------------------------------------------------------------------------

REPORT_MODULES = """
import json, sys
from engine.config import EngineConfig
from engine.loader import load
load(EngineConfig(model=sys.argv[1]), lambda *report: None)
print(json.dumps(sorted(sys.modules)))
"""


def test_a_warm_start_imports_neither_transformers_nor_gguf(tmp_path: Path):
    folder = write_folder(tmp_path / "tiny")
    done = subprocess.run([sys.executable, "-c", REPORT_MODULES, folder], capture_output=True, text=True, check=True)
    modules = set(json.loads(done.stdout))
    assert "torch" in modules
    assert not modules & {"transformers", "gguf", "huggingface_hub", "starlette", "uvicorn", "msgspec", "websockets"}


# -- the hub -----------------------------------------------------------------------------------------------------

LOAD_FROM_HUB = """
import sys
from engine.config import EngineConfig
from engine.errors import LoadError
from engine.loader import load
try:
    print(load(EngineConfig(model="someone/tiny"), lambda *report: None).facts.name)
except LoadError as error:
    print(error)
"""


def load_offline_from_hub(home: Path) -> str:
    environ = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD_FROM_HUB], env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_hub_id_comes_from_the_hub_cache(tmp_path: Path):
    repository = tmp_path / "hub" / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    write_folder(repository / "snapshots" / ("0" * 40))
    assert load_offline_from_hub(tmp_path) == "someone/tiny"


def test_a_hub_id_without_network_is_one_sentence(tmp_path: Path):
    message = load_offline_from_hub(tmp_path)
    assert message.startswith("--model someone/tiny is not in the local hub cache and could not be fetched")
    assert message.endswith("Check the network, or give --model a folder or a .gguf file.")
    assert "\n" not in message


# -- the embedded model ------------------------------------------------------------------------------------------


@pytest.mark.model
def test_the_embedded_model(embedded_model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STEPSCOPE_CACHE", str(embedded_model.parent.parent))
    loaded = load(EngineConfig(), lambda *report: None)
    facts = loaded.facts
    assert (facts.num_layers, facts.num_attention_heads, facts.num_kv_heads, facts.head_dim) == (30, 9, 3, 64)
    assert (facts.num_parameters, facts.tie_word_embeddings) == (134_515_008, True)
    assert loaded.eos_token_ids == {2}
    assert loaded.tokenizer.encode("Hello 2024", add_special_tokens=False).tokens == [
        "Hello", "\u0120", "2", "0", "2", "4",
    ]  # fmt: skip
