"""A model folder's tokenizer, chat template and stop tokens. No torch, no transformers.

Contract. The tokenizer read here has given one text back unchanged and has no id outside the model's vocabulary, so
that neither a wrong vocabulary nor a wrong merge rule goes unnoticed until somebody reads an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from engine.errors import LoadError, brief, shown
from engine.model_source import read_json
from engine.models.config import ModelConfig, token_id_set

ROUND_TRIP: Final = "Hello, world! 1234 — naïve café,\n\tdef f(x): return x²  # 日本語 🙂"
BYTE_EOS: Final = "<|end|>"
_SPECIAL_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token")


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer:
    """The folder's tokenizer.json, checked. Raises LoadError."""
    file = folder / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the tokenizers package raises bare Exception
        raise LoadError(f"{file} is not a readable tokenizer: {brief(error)}. Fetch the file again.") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    check_tokenizer(tokenizer, config, str(file))
    return tokenizer


def check_tokenizer(tokenizer: Tokenizer, config: ModelConfig, where: str) -> None:
    """Refuse a tokenizer that does not give a text back, or has ids the model's embedding does not have."""
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= config.vocab_size:
        raise LoadError(f"{where} has token id {highest}, outside the model's vocabulary of {config.vocab_size}.")
    ids = tokenizer.encode(ROUND_TRIP, add_special_tokens=False).ids
    back = tokenizer.decode(ids, skip_special_tokens=False)
    if back != ROUND_TRIP:
        raise LoadError(f"{where} does not give text back unchanged: {ROUND_TRIP!r} became {shown(back)}.")


def byte_tokenizer(config: ModelConfig) -> Tokenizer:
    """One token per byte: for a model with random weights and no tokenizer of its own."""
    if config.vocab_size < 257:
        raise LoadError(f"A vocabulary of {config.vocab_size} is too small for bytes and an end token; it must be 257.")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(BYTE_EOS, special=True)])
    return tokenizer


def read_settings(folder: Path) -> dict[str, Any]:
    """The folder's tokenizer_config.json, or nothing."""
    file = folder / "tokenizer_config.json"
    return read_json(file) if file.is_file() else {}


def special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """bos_token, eos_token … as texts, as a chat template expects them; each may be a text or an object."""
    found: dict[str, str] = {}
    for name in _SPECIAL_NAMES:
        value = settings.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if isinstance(value, str):
            found[name] = value
    return found


def read_chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """chat_template.jinja if there is one, else tokenizer_config.json's field (the one named default of several)."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise LoadError(f"{file} is damaged: it is not UTF-8 text. Fetch the file again.") from None
    value = settings.get("chat_template")
    if isinstance(value, list):
        named = {entry.get("name"): entry.get("template") for entry in value if isinstance(entry, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def stop_token_ids(
    folder: Path, config: ModelConfig, tokenizer: Tokenizer, specials: Mapping[str, str]
) -> frozenset[int]:
    """Every token that ends an answer: the union of the tokenizer's eos, config.json's and generation_config.json's.

    A union, since each of the three files has been seen to lack one that another has.
    """
    file = folder / "generation_config.json"
    generation = token_id_set(read_json(file).get("eos_token_id"), str(file)) if file.is_file() else frozenset()
    eos = specials.get("eos_token")
    own = token_id_set(tokenizer.token_to_id(eos), eos) if eos is not None else frozenset()
    return frozenset(i for i in own | generation | config.eos_token_ids if 0 <= i < config.vocab_size)
