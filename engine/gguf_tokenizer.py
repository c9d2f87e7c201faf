"""A `tokenizers.Tokenizer` from a GGUF file's vocabulary. No torch, no transformers.

Contract. GGUF holds the vocabulary, the merges or scores, and the *name* of the rule that cuts text into words before
merging; the rule itself is not in the file. `build_tokenizer` knows the rules that Llama-architecture files
name, and refuses others by name: a wrong rule gives other token ids without any error to see.

Rules as in llama.cpp `src/llama-vocab.cpp` (llm_tokenizer_bpe) and the models' own tokenizer.json.
"""

from __future__ import annotations

from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from engine.errors import LoadError, shown
from engine.gguf_file import GGUFFile

_CONTROL: Final = 3  # token types of GGUF
_USER_DEFINED: Final = 4
_BYTE: Final = 6

_LLAMA3_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_NAMES: Final = ("llama3", "llama-v3", "llama-bpe", "falcon3", "smaug-bpe")
_SINGLE_DIGIT_NAMES: Final = ("smollm", "starcoder", "refact", "codeshell", "command-r", "exaone")
_GPT2_NAMES: Final = ("default", "gpt-2", "gpt2")


def build_tokenizer(gguf: GGUFFile) -> Tokenizer:
    """The tokenizer that `gguf` describes. Raises LoadError for a kind or a word rule that is not known."""
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    kind = gguf.metadata.get("tokenizer.ggml.model")
    if not tokens:
        raise LoadError(f"{gguf.path} holds no tokenizer (tokenizer.ggml.tokens is missing).")
    if kind == "gpt2":
        tokenizer = _byte_level(gguf, tokens)
    elif kind == "llama":
        tokenizer = _sentencepiece(gguf, tokens)
    else:
        raise LoadError(f"{gguf.path} has a tokenizer of kind {shown(kind)}; supported: gpt2 (byte-level BPE), llama.")
    _add_marked_tokens(tokenizer, gguf, tokens)
    _add_bos(tokenizer, gguf, tokens, default=kind == "llama")
    return tokenizer


def _byte_level(gguf: GGUFFile, tokens: list[str]) -> Tokenizer:
    """GPT-2's kind: BPE over bytes that are spelled as visible characters."""
    merges = [tuple(merge.split(" ", 1)) for merge in gguf.metadata.get("tokenizer.ggml.merges", [])]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    rule = gguf.metadata.get("tokenizer.ggml.pre", "default")
    first: pre_tokenizers.PreTokenizer | None = None
    if rule in _LLAMA3_NAMES:
        first = pre_tokenizers.Split(Regex(_LLAMA3_WORDS), behavior="isolated")
    elif rule in _SINGLE_DIGIT_NAMES:
        first = pre_tokenizers.Digits(individual_digits=True)
    elif rule not in _GPT2_NAMES:
        raise LoadError(
            f"{gguf.path} cuts text into words by the rule {shown(rule)} (tokenizer.ggml.pre), which is not known."
        )
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=rule not in _LLAMA3_NAMES)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([first, spell]) if first else spell
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(gguf: GGUFFile, tokens: list[str]) -> Tokenizer:
    """Llama 1 and 2's kind: BPE over characters, spaces spelled ▁, unknown characters as bytes <0xNN>."""
    unk = tokens[gguf.metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    scores = gguf.metadata.get("tokenizer.ggml.scores") or [-float(i) for i in range(len(tokens))]
    stored = gguf.metadata.get("tokenizer.ggml.merges")
    merges = [tuple(merge.split(" ", 1)) for merge in stored] if stored else _merges_of(tokens, scores)
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
    prefix = gguf.metadata.get("tokenizer.ggml.add_space_prefix", True)
    spaces = [normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), *spaces] if prefix else spaces)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return tokenizer


def _merges_of(tokens: list[str], scores: list[float]) -> list[tuple[str, str]]:
    """The merges that a scored vocabulary implies: every way to cut a token in two known ones, best score first."""
    ids = {token: i for i, token in enumerate(tokens)}
    found: list[tuple[float, int, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=True):
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ids and right in ids:
                found.append((-score, ids[left], ids[right], left, right))
    return [(left, right) for _, _, _, left, right in sorted(found)]


def _add_marked_tokens(tokenizer: Tokenizer, gguf: GGUFFile, tokens: list[str]) -> None:
    """Tokens that the file marks are matched whole in text; control tokens are special (skipped in answers)."""
    types = gguf.metadata.get("tokenizer.ggml.token_type") or []
    marked = list(zip(tokens, types, strict=False))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in marked if k == _CONTROL])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t, k in marked if k == _USER_DEFINED])


def _add_bos(tokenizer: Tokenizer, gguf: GGUFFile, tokens: list[str], *, default: bool) -> None:
    """A plain prompt begins with the bos token where the file says so; `add_special_tokens=False` leaves it out."""
    bos = gguf.metadata.get("tokenizer.ggml.bos_token_id")
    if bos is not None and gguf.metadata.get("tokenizer.ggml.add_bos_token", default):
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{tokens[bos]}:0 $A:0", special_tokens=[(tokens[bos], bos)]
        )


def special_tokens(gguf: GGUFFile) -> dict[str, Any]:
    """What tokenizer_config.json calls bos_token, eos_token, unk_token and pad_token, as texts."""
    tokens = gguf.metadata.get("tokenizer.ggml.tokens") or []
    names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    found = {name: gguf.metadata.get(f"tokenizer.ggml.{key}_token_id") for key, name in names.items()}
    return {name: tokens[i] for name, i in found.items() if i is not None and i < len(tokens)}
