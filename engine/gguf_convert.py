"""A GGUF file turned, once, into what every later start reads quickly: safetensors, tokenizer.json, config.json.

Contract. No torch. `convert` fills a folder that transformers' `from_pretrained` reads as well, so our reference in
tests is the very weights we run. Tensors in F16 or BF16 keep their bits; block formats are dequantised to F32 by
the `gguf` package. Nothing here is needed on a warm start.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from engine.errors import LoadError, brief, shown
from engine.gguf_file import GGUFFile, GGUFTensor
from engine.gguf_tokenizer import build_tokenizer, special_tokens
from engine.models.config import ModelConfig, expected_tensors, parse_model_config
from engine.safetensors_file import StoredTensor, write_safetensors

_STOP_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")
_KEPT: Final = {GGMLQuantizationType.F16: "F16", GGMLQuantizationType.BF16: "BF16"}
_NAMES: Final = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face weight: `model.layers.3.mlp.up_proj.weight` → `blk.3.ffn_up.weight`."""
    stem, _, leaf = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{_NAMES[part]}.{leaf}"
    return f"{_NAMES[stem]}.{leaf}"


def config_json(gguf: GGUFFile) -> dict[str, Any]:
    """The config.json of a Llama-architecture GGUF. Raises LoadError for another architecture or scaled RoPE."""
    if gguf.architecture != "llama":
        raise LoadError(f"{gguf.path} is of architecture {shown(gguf.architecture or 'unknown')}; supported: llama.")
    if gguf.value("expert_count"):
        raise LoadError(
            f"{gguf.path} is a mixture of {shown(gguf.value('expert_count'))} experts; that is not implemented."
        )
    scaling = gguf.value("rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in gguf.tensors:
        kind = scaling if scaling != "none" else "rope_freqs"
        raise LoadError(f"{gguf.path} uses scaled rotary embedding ({brief(kind)}), which is not implemented for GGUF.")
    tokens = gguf.metadata.get("tokenizer.ggml.tokens") or []
    heads = gguf.value("attention.head_count", 0)
    raw = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": gguf.value("embedding_length"),
        "intermediate_size": gguf.value("feed_forward_length"),
        "num_hidden_layers": gguf.value("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": gguf.value("attention.head_count_kv", heads),
        "vocab_size": gguf.value("vocab_size", len(tokens)),
        "max_position_embeddings": gguf.value("context_length", 2048),
        "rms_norm_eps": gguf.value("attention.layer_norm_rms_epsilon", 1e-5),
        "rope_theta": gguf.value("rope.freq_base", 10_000.0),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "attention_bias": "blk.0.attn_q.bias" in gguf.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in gguf.tensors,
        "dtype": "float32",
        "bos_token_id": gguf.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": stop_token_ids(gguf) or None,
        "pad_token_id": gguf.metadata.get("tokenizer.ggml.padding_token_id"),
    }
    if head_dim := gguf.value("attention.key_length"):
        raw["head_dim"] = head_dim
    return raw


def stop_token_ids(gguf: GGUFFile) -> list[int]:
    """Every token that ends an answer, by the file's own word: eos, and eot or eom where it has them."""
    found = {gguf.metadata.get(f"tokenizer.ggml.{key}") for key in _STOP_KEYS}
    return sorted(i for i in found if i is not None)


def convert(gguf: GGUFFile, folder: Path, wrote: Callable[[int, int], None]) -> None:
    """Write the converted model into the empty `folder`; `wrote(done, total)` after each tensor."""
    raw = config_json(gguf)
    config = parse_model_config(raw, str(gguf.path))
    tokenizer = build_tokenizer(gguf)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "config.json", raw)
    _write_json(folder / "generation_config.json", {"eos_token_id": raw["eos_token_id"]})
    settings = {**special_tokens(gguf), "tokenizer_class": "PreTrainedTokenizerFast"}
    if template := gguf.metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    _write_json(folder / "tokenizer_config.json", settings)

    sources = {name: gguf.tensors[gguf_name(name)] for name in expected_tensors(config)}
    stored = {name: StoredTensor(_stored_dtype(tensor), tensor.shape) for name, tensor in sources.items()}
    data = np.memmap(gguf.path, mode="r", dtype=np.uint8)
    write_safetensors(
        folder / "model.safetensors",
        stored,
        lambda name: _values(data, sources[name], name, config),
        lambda done: wrote(done, len(stored)),
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False))


def _stored_dtype(tensor: GGUFTensor) -> str:
    return _KEPT.get(GGMLQuantizationType(tensor.ggml_type), "F32")


def _values(
    data: np.ndarray[Any, Any], tensor: GGUFTensor, name: str, config: ModelConfig
) -> np.ndarray[Any, np.dtype[Any]]:
    """One tensor's values, in the order and layout of Hugging Face."""
    raw = data[tensor.offset : tensor.offset + tensor.num_bytes]
    kind = GGMLQuantizationType(tensor.ggml_type)
    if kind in _KEPT:
        values = raw.view(np.uint16).reshape(tensor.shape)
    else:
        try:
            values = dequantize(raw.reshape(*tensor.shape[:-1], -1), kind)
        except NotImplementedError:
            raise LoadError(
                f"Tensor {brief(tensor.name)} is stored as {kind.name}, which cannot be dequantised."
            ) from None
    if ".self_attn.q_proj." in name:
        values = _half_split(values, config.num_attention_heads)
    elif ".self_attn.k_proj." in name:
        values = _half_split(values, config.num_kv_heads)
    return values


def _half_split(values: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Undo llama.cpp's row order: it rotates neighbours of a head, Hugging Face its first half with its second."""
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])  # [heads, head_dim / 2, 2, …]
    return pairs.swapaxes(1, 2).reshape(values.shape)
