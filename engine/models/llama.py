"""The Llama family's forward pass: RMSNorm, rotary embedding, grouped-query attention, SwiGLU, tied or untied head.

One class for all of them: models/config.py says what each member adds.

Contract. Input is a flat batch of tokens of any mix of rows; which token belongs to whom only the attention knows,
through its metadata. Output is logits for the tokens asked for and no others: the head over 49,000 words is the
widest layer, and a prompt of 200 tokens needs it once.

Weights come by their Hugging Face names from a function, one at a time, so that loading never holds two copies.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.attention.cache import LayerCache
from engine.models.config import ModelConfig, RopeConfig
from engine.models.linear import Linear, make_linear
from engine.models.ops import Ops

Weights = Callable[[str], Tensor]
"""Returns the weight of a name, in the model's dtype and on its device."""


class Llama:
    """See the module's docstring."""

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops) -> None:
        self.config = config
        self.embed_tokens = weights("model.embed_tokens.weight")  # [vocab_size, hidden_size]
        self.rope = RotaryEmbedding(config, self.embed_tokens.device)
        layer = functools.partial(_Layer, config, weights, ops, self.rope)
        self.layers = [layer(f"model.layers.{i}.") for i in range(config.num_layers)]
        self.norm = RMSNorm(weights("model.norm.weight"), config.rms_norm_eps, ops)
        head = self.embed_tokens if config.tie_word_embeddings else weights("lm_head.weight")
        self.lm_head = make_linear(head)

    def first_layers(self, count: int) -> Llama:
        """This model cut off after `count` layers; norm and head follow there. All weights are shared."""
        cut = copy.copy(self)
        cut.config = dataclasses.replace(self.config, num_layers=count)
        cut.layers = self.layers[:count]
        return cut

    def forward(
        self,
        token_ids: Tensor,  # [num_tokens] int64
        positions: Tensor,  # [num_tokens] int64
        caches: Sequence[LayerCache],
        meta: AttentionMetadata,
        logits_indices: Tensor,  # [num_sampling_rows] int64, into the flat batch
    ) -> Tensor:
        """Logits [num_sampling_rows, vocab_size] in fp32; keys and values of every token are stored on the way."""
        x, added = self.embed_tokens[token_ids], None  # [num_tokens, hidden_size]
        for layer, cache in zip(self.layers, caches, strict=True):
            x, added = layer(x, added, positions, cache, meta)
        assert added is not None, "a model has layers"
        wanted, _ = self.norm.of_sum(x[logits_indices], added[logits_indices])
        return self.lm_head(wanted).float()


class _Layer:
    """x + attention(norm(x)), then x + mlp(norm(x)).

    Each addition is left to the norm that comes next: a layer takes and returns two terms of what flows through.
    """

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops, rope: RotaryEmbedding, at: str) -> None:
        self.config = config
        self.ops = ops
        self.rope = rope
        self.input_norm = RMSNorm(weights(f"{at}input_layernorm.weight"), config.rms_norm_eps, ops)
        self.post_norm = RMSNorm(weights(f"{at}post_attention_layernorm.weight"), config.rms_norm_eps, ops)
        attn, mlp = f"{at}self_attn.", f"{at}mlp."
        self.qkv_proj = _merged(weights, [f"{attn}{n}_proj" for n in "qkv"], bias=config.qkv_bias)
        self.o_proj = _merged(weights, [f"{attn}o_proj"], bias=config.o_bias)
        self.qk_norms = [
            RMSNorm(weights(f"{attn}{n}_norm.weight"), config.rms_norm_eps, ops) for n in "qk" if config.qk_norm
        ]
        self.gate_up_proj = _merged(weights, [f"{mlp}gate_proj", f"{mlp}up_proj"], bias=config.mlp_bias)
        self.down_proj = _merged(weights, [f"{mlp}down_proj"], bias=config.mlp_bias)

    def __call__(
        self, x: Tensor, added: Tensor | None, positions: Tensor, cache: LayerCache, meta: AttentionMetadata
    ) -> tuple[Tensor, Tensor]:
        normed, x = (self.input_norm(x), x) if added is None else self.input_norm.of_sum(x, added)
        normed, x = self.post_norm.of_sum(x, self._attend(normed, positions, cache, meta))
        return x, self.down_proj(self.ops.silu_and_mul(self.gate_up_proj(normed)))

    def _attend(self, x: Tensor, positions: Tensor, cache: LayerCache, meta: AttentionMetadata) -> Tensor:
        q_heads, kv_heads, head_dim = self.config.num_attention_heads, self.config.num_kv_heads, self.config.head_dim
        qkv = self.qkv_proj(x).view(-1, q_heads + 2 * kv_heads, head_dim)
        for norm, heads in zip(self.qk_norms, (slice(q_heads), slice(q_heads, q_heads + kv_heads)), strict=False):
            part = qkv[:, heads]
            qkv[:, heads] = norm(part.reshape(-1, head_dim)).view(part.shape)
        self.ops.rotate_and_store(qkv, self.rope.cos, self.rope.sin, positions, cache, meta.slot_mapping)
        out = self.ops.attend(qkv, cache, meta)
        return self.o_proj(out.reshape(-1, self.config.q_size))


def _merged(weights: Weights, names: list[str], *, bias: bool) -> Linear:
    """Layers that read the same input, as one: their rows stacked."""
    weight = torch.cat([weights(f"{name}.weight") for name in names])
    return make_linear(weight, torch.cat([weights(f"{name}.bias") for name in names]) if bias else None)


class RMSNorm:
    """x / rms(x) × weight."""

    def __init__(self, weight: Tensor, eps: float, ops: Ops) -> None:
        self.weight = weight  # [hidden_size]
        self.eps = eps
        self.ops = ops

    def __call__(self, x: Tensor) -> Tensor:
        return self.ops.rms_norm(x, self.weight, self.eps)

    def of_sum(self, x: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """(the norm of x + added, x + added)."""
        return self.ops.add_rms_norm(x, added, self.weight, self.eps)


class RotaryEmbedding:
    """Angles of every position, computed once in fp32: position × theta^(-2i / head_dim) for pair i of a head."""

    def __init__(self, config: ModelConfig, device: torch.device) -> None:
        positions = torch.arange(config.max_position_embeddings).float()
        angles = torch.outer(positions, rope_frequencies(config.rope, config.head_dim)).to(device)
        self.cos, self.sin = angles.cos(), angles.sin()  # [max positions, head_dim / 2]


def rope_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position of each pair, [head_dim / 2] fp32."""
    frequencies = 1.0 / rope.theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        # Short wavelengths stay, long ones are stretched by `factor`, those between are blended.
        wavelengths = 2 * math.pi / frequencies
        low, high = rope.low_freq_factor, rope.high_freq_factor
        blend = ((rope.original_max_position_embeddings / wavelengths - low) / (high - low)).clamp(0.0, 1.0)
        return frequencies * blend + frequencies / rope.factor * (1 - blend)
    return frequencies
