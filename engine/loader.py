"""From `--model` to a model ready to run: fetch, convert, read weights, read the tokenizer.

Contract. `load` reports what it does through `progress(phase, done, total, unit)`, phases "download", "convert" and
"read"; it raises LoadError with one sentence. A second start of the same model only reads. transformers is
never imported: its import alone takes longer than a whole warm start may.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from engine import tokenizer as tokenizer_files
from engine.config import EngineConfig
from engine.device import resolve_device, resolve_dtype
from engine.errors import LoadError, brief
from engine.events import ModelFacts
from engine.gguf_file import read_gguf
from engine.model_cache import Progress, complete, converted_dir, embedded_file, fetch_embedded, publish
from engine.model_source import (
    ModelSource,
    SourceKind,
    check_folder,
    check_gguf,
    find_source,
    naming_the_file,
    read_model_config,
    weight_files,
)
from engine.models.config import ModelConfig, expected_tensors
from engine.models.llama import Llama
from engine.models.ops import choose_ops

DUMMY_STD = 0.02  # of random weights; keeps activations of the size that trained ones have


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model and what is needed to talk to it."""

    model: Llama
    tokenizer: Tokenizer
    chat_template: str | None
    special_tokens: dict[str, str]  # bos_token, eos_token …: the names a chat template uses
    eos_token_ids: frozenset[int]  # any of them ends an answer
    facts: ModelFacts
    folder: Path  # config.json, tokenizer.json and, unless dummy, the weights


def load(config: EngineConfig, progress: Progress) -> Loaded:
    """Load `config.model`. Raises LoadError or ConfigError."""
    with naming_the_file(config.model):
        return _load(config, progress)


def _load(config: EngineConfig, progress: Progress) -> Loaded:
    source = find_source(config)
    device = resolve_device(config)
    dtype = resolve_dtype(config, device)
    folder = _local_folder(source, progress)
    model_config = read_model_config(folder)
    dummy = source.kind is SourceKind.DUMMY
    if dummy and not (folder / "tokenizer.json").exists():
        tokenizer = tokenizer_files.byte_tokenizer(model_config)
        specials = {"eos_token": tokenizer_files.BYTE_EOS}
        template = None
    else:
        tokenizer = tokenizer_files.read_tokenizer(folder, model_config)
        settings = tokenizer_files.read_settings(folder)
        specials = tokenizer_files.special_tokens(settings)
        template = tokenizer_files.read_chat_template(folder, settings)
    opened = _dummy_weights(model_config, config.seed) if dummy else _stored_weights(folder)
    with opened as read:
        weights = _reporting(read, model_config, device, dtype, progress)
        model = Llama(model_config, weights, choose_ops(device, dtype))
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        chat_template=template,
        special_tokens=specials,
        eos_token_ids=tokenizer_files.stop_token_ids(folder, model_config, tokenizer, specials),
        facts=model_facts(source.name, model_config, dtype, has_chat_template=template is not None),
        folder=folder,
    )


def model_facts(name: str, config: ModelConfig, dtype: torch.dtype, *, has_chat_template: bool) -> ModelFacts:
    """What `hello` says about the model. A tied embedding is counted once."""
    num_parameters = sum(_num_elements(shape) for shape in expected_tensors(config).values())
    return ModelFacts(
        name=name,
        architecture=config.architecture,
        num_layers=config.num_layers,
        num_attention_heads=config.num_attention_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        num_parameters=num_parameters,
        weight_bytes=num_parameters * dtype.itemsize,
        dtype=str(dtype).removeprefix("torch."),
        max_position_embeddings=config.max_position_embeddings,
        has_chat_template=has_chat_template,
        tie_word_embeddings=config.tie_word_embeddings,
    )


def _num_elements(shape: tuple[int, ...]) -> int:
    return shape[0] * shape[1] if len(shape) == 2 else shape[0]


# -- where the files come from -----------------------------------------------------------------------------------


def _local_folder(source: ModelSource, progress: Progress) -> Path:
    """The folder to read from, after any download or conversion."""
    match source.kind:
        case SourceKind.EMBEDDED:
            return _converted(embedded_file(), progress, embedded=True)
        case SourceKind.GGUF:
            assert source.path is not None
            return _converted(source.path, progress, embedded=False)
        case SourceKind.HUB:
            folder = _fetch_from_hub(source.name, progress)
            check_folder(folder)
            return folder
        case SourceKind.FOLDER | SourceKind.DUMMY:
            assert source.path is not None
            return source.path
        case SourceKind.SCRIPTED:
            raise LoadError("The scripted model has nothing to load; it is served by engine/scripted.py.")


def _converted(file: Path, progress: Progress, *, embedded: bool) -> Path:
    """The converted form of a GGUF file, from the cache if it is there."""
    folder = converted_dir(file, embedded=embedded)
    if not complete(folder):
        from engine.gguf_convert import convert  # gguf and numpy tables: not needed on a warm start

        if embedded:
            file = fetch_embedded(progress)
        check_gguf(file)
        with publish(folder) as draft:
            convert(read_gguf(file), draft, lambda done, total: progress("convert", done, total, "tensors"))
    return folder


def _fetch_from_hub(hub_id: str, progress: Progress) -> Path:
    """A snapshot of a hub repository, from its own cache if it is there. Raises LoadError without a network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja"]
    progress("download", 0, 0, "bytes")
    try:
        return Path(snapshot_download(hub_id, allow_patterns=patterns))
    except RepositoryNotFoundError:
        raise LoadError(f"--model {hub_id}: no such folder here, and no such public repository on the hub.") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LoadError(
            f"--model {hub_id} is not in the local hub cache and could not be fetched ({reason}). "
            "Check the network, or give --model a folder or a .gguf file."
        ) from None


# -- weights -----------------------------------------------------------------------------------------------------


@contextmanager
def _stored_weights(folder: Path) -> Iterator[Callable[[str], Tensor]]:
    """Read weights by name from a folder's safetensors files; each comes as a view of the mapped file."""
    with ExitStack() as stack:
        where: dict[str, Any] = {}
        for file in weight_files(folder):
            try:
                opened = stack.enter_context(safe_open(str(file), framework="pt"))
            except (SafetensorError, OSError) as error:
                raise LoadError(f"{file} cannot be read: {brief(error)}. Fetch the file again.") from None
            where.update(dict.fromkeys(opened.keys(), opened))
        yield lambda name: where[name].get_tensor(name)


@contextmanager
def _dummy_weights(config: ModelConfig, seed: int) -> Iterator[Callable[[str], Tensor]]:
    """Random weights of the right shapes: the same for the same seed, whatever the order they are asked in."""
    shapes = expected_tensors(config)

    def read(name: str) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shapes[name])
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        return torch.randn(shapes[name], generator=generator) * DUMMY_STD

    yield read


def _reporting(
    read: Callable[[str], Tensor], config: ModelConfig, device: torch.device, dtype: torch.dtype, progress: Progress
) -> Callable[[str], Tensor]:
    """`read`, in the model's dtype on its device, with one progress report per tensor."""
    total = len(expected_tensors(config))
    done = 0

    def weights(name: str) -> Tensor:
        nonlocal done
        # A copy, so that no mapping outlives the load: a file that shrinks under a mapping kills the process.
        tensor = read(name).to(device=device, dtype=dtype, copy=True)
        done += 1
        progress("read", done, total, "tensors")
        return tensor

    return weights
