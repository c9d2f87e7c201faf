"""Tiny models for tests: a Llama of a few thousand parameters as a safetensors folder or as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import save_file
from tokenizers import pre_tokenizers

from engine.gguf_convert import gguf_name
from engine.models.config import ModelConfig, expected_tensors, parse_model_config
from engine.tokenizer import byte_tokenizer

F32 = GGMLQuantizationType.F32


def tiny_config(**changes: Any) -> dict[str, Any]:
    """A config.json: two layers, grouped queries, an untied head."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 272,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        **changes,
    }


def random_weights(config: ModelConfig, seed: int = 0) -> dict[str, torch.Tensor]:
    """Weights large enough that the logits of neighbouring tokens differ clearly."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in expected_tensors(config).items():
        if name.endswith("norm.weight"):
            weights[name] = 1 + 0.1 * torch.randn(shape, generator=generator)
        else:
            weights[name] = 0.2 * torch.randn(shape, generator=generator)
    return weights


def write_folder(folder: Path, *, shards: int = 1, tokenizer: bool = True, **changes: Any) -> Path:
    """A model folder as the hub has them; with several shards also their index."""
    raw = tiny_config(**changes)
    config = parse_model_config(raw, "tiny")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    weights = random_weights(config)
    if shards == 1:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    else:
        names = sorted(weights)
        files = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(names)}
        for file in sorted(set(files.values())):
            save_file({n: weights[n] for n in names if files[n] == file}, folder / file, {"format": "pt"})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    if tokenizer:
        byte_tokenizer(config).save(str(folder / "tokenizer.json"))
    return folder


def write_gguf(path: Path, *, matrices: GGMLQuantizationType = F32, architecture: str = "llama", **extra: Any) -> Path:
    """The same model as a GGUF, its matrices stored as asked, with a byte-level tokenizer.

    `extra` is further metadata, dots in its keys written `__`.
    """
    raw = tiny_config()
    config = parse_model_config(raw, "tiny")
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _write_vocabulary(writer, config.vocab_size)
    for key, value in extra.items():
        writer.add_key_value(key.replace("__", "."), value, gguf.GGUFValueType.get_type(value))
    for name, weight in random_weights(config).items():
        values = _interleaved(name, weight.numpy(), config)
        kind = matrices if values.ndim == 2 else F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_vocabulary(writer: gguf.GGUFWriter, vocab_size: int) -> None:
    """256 bytes, one merge, two control tokens, and fillers."""
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "he", "<|begin|>", "<|stop|>", "<|turn|>"]
    controls = {257, 258, 259}
    tokens += [f"<filler{i}>" for i in range(vocab_size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if i in controls else 1 for i in range(vocab_size)])
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
    writer.add_eot_token_id(259)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")


def _interleaved(name: str, values: np.ndarray[Any, Any], config: ModelConfig) -> np.ndarray[Any, Any]:
    """llama.cpp's row order of q and k, as its converter makes it: a head's two halves interleaved."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_kv_heads}.get(name.split(".")[-2])
    if heads is None:
        return values
    return values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
