"""ModelConfig: the shapes and constants of one model of the Llama family, from a Hugging Face config.json. No torch.

Contract. `parse_model_config` either returns a config that `models/llama.py` computes exactly, or raises
LoadError naming the field that it cannot honour. Nothing that changes the numbers is silently ignored.

The family: Llama, Mistral (the same), Qwen2 (q, k and v have a bias), Qwen3 (q and k are normed head by head). A
sliding window is honoured by never going past it: up to its length it hides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.errors import LoadError, brief, shown

ARCHITECTURES: Final = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Architecture -> `model_type`, which names it where a config.json has no `architectures`."""

MISTRAL_WINDOW: Final = 4096  # where its config.json leaves sliding_window out
_REQUIRED: Final = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_INTEGERS: Final = {  # name -> (least, most); beyond the most is damage, and would be counted through for hours
    "hidden_size": (1, 2**20),
    "intermediate_size": (1, 2**22),
    "num_hidden_layers": (1, 2**12),
    "num_attention_heads": (1, 2**12),
    "vocab_size": (1, 2**24),
    "num_key_value_heads": (1, 2**12),
    "head_dim": (1, 2**12),
    "max_position_embeddings": (1, 2**30),
    "sliding_window": (0, 2**53),
}
_FLAGS: Final = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window")
_LAYER_TYPES: Final = ("full_attention", "sliding_attention")


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding: the base, and Llama 3's stretching of long wavelengths where a model uses it."""

    theta: float = 10_000.0
    kind: str = "default"  # "default" | "linear" | "llama3"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Everything the forward pass needs to know besides the weights."""

    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # RMSNorm over each head of q and k
    eos_token_ids: frozenset[int] = frozenset()

    @property
    def q_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim


def parse_model_config(raw: Mapping[str, Any], where: str) -> ModelConfig:
    """Read a config.json. `where` names it in error messages."""
    architecture = _architecture(raw, where)
    _check_kinds(raw, where)
    if raw.get("hidden_act") not in (None, "silu"):
        raise LoadError(f"{where} asks for hidden_act {shown(raw['hidden_act'])}; only silu is implemented.")
    heads = raw["num_attention_heads"]
    kv_heads = raw.get("num_key_value_heads") or heads
    if heads % kv_heads:
        raise LoadError(f"{where} has num_attention_heads {heads}, not a multiple of num_key_value_heads {kv_heads}.")
    head_dim = raw.get("head_dim") or raw["hidden_size"] // heads
    if head_dim == 0:
        raise LoadError(f"{where} has hidden_size {raw['hidden_size']}, below num_attention_heads {heads}.")
    if head_dim % 2:
        raise LoadError(f"{where} has head_dim {head_dim}; rotary embedding needs an even number.")
    return ModelConfig(
        architecture=architecture,
        num_layers=raw["num_hidden_layers"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_attention_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=raw["vocab_size"],
        max_position_embeddings=_max_positions(raw, architecture),
        rms_norm_eps=1e-6 if raw.get("rms_norm_eps") is None else raw["rms_norm_eps"],
        rope=_rope(raw, where),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=architecture == "Qwen2ForCausalLM" or _attention_bias(raw, architecture),
        o_bias=_attention_bias(raw, architecture),
        mlp_bias=architecture == "LlamaForCausalLM" and bool(raw.get("mlp_bias", False)),
        qk_norm=architecture == "Qwen3ForCausalLM",
        eos_token_ids=token_id_set(raw.get("eos_token_id"), where),
    )


def _check_kinds(raw: Mapping[str, Any], where: str) -> None:
    """Every field we read is of its kind and within its limits; null equals absent, and true is no number."""
    for name, (least, most) in _INTEGERS.items():
        value = raw.get(name)
        if value is None and name not in _REQUIRED:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise LoadError(
                f"{where} has no usable {name}: it is {shown(value)}, "
                f"and must be a whole number from {least} to {most}."
            )
    for name in _FLAGS:
        if not isinstance(raw.get(name), bool | None):
            raise LoadError(f"{where} has no usable {name}: it is {shown(raw[name])}, and must be true or false.")
    for name in ("rope_scaling", "rope_parameters"):
        if not isinstance(raw.get(name), dict | None):
            raise LoadError(f"{where} has no usable {name}: it is {shown(raw[name])}, and must be an object.")
    for name in ("rope_theta", "rms_norm_eps"):
        if raw.get(name) is not None:
            _positive(raw, name, where)
    layer_types = raw.get("layer_types") or []
    if not isinstance(layer_types, list) or any(kind not in _LAYER_TYPES for kind in layer_types):
        raise LoadError(f"{where} has layer_types {shown(layer_types)}; supported: {', '.join(_LAYER_TYPES)}.")


def _positive(settings: Mapping[str, Any], name: str, where: str) -> float:
    """A finite number above 0."""
    value = settings[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise LoadError(f"{where} has no usable {name}: it is {shown(value)}, and must be a number above 0.")
    return value


def token_id_set(value: Any, where: str) -> frozenset[int]:
    """An `eos_token_id` field as a set: it may be a number, a list or null. Raises LoadError."""
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if any(isinstance(token_id, bool) or not isinstance(token_id, int) for token_id in ids):
        raise LoadError(f"{where} has eos_token_id {shown(value)}; it must be a token id or a list of them.")
    return frozenset(ids)


def _architecture(raw: Mapping[str, Any], where: str) -> str:
    names = raw.get("architectures") or []
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise LoadError(f"{where} has architectures {shown(names)}; it must be a list of names.")
    if not names:
        names = [name for name, model_type in ARCHITECTURES.items() if model_type == raw.get("model_type")]
    for name in names:
        if name in ARCHITECTURES:
            return str(name)
    found = ", ".join(map(str, names)) or str(raw.get("model_type"))
    raise LoadError(f"{where} is of architecture {brief(found)}; supported: {', '.join(ARCHITECTURES)}.")


def _attention_bias(raw: Mapping[str, Any], architecture: str) -> bool:
    """The field of that name, where the architecture has it."""
    return architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM") and bool(raw.get("attention_bias", False))


def _max_positions(raw: Mapping[str, Any], architecture: str) -> int:
    """The longest sequence: what the model was made for, and no longer than its sliding window."""
    limit: int = raw.get("max_position_embeddings") or 2048
    mistral = architecture == "MistralForCausalLM"
    window = raw.get("sliding_window", MISTRAL_WINDOW if mistral else None)  # null says that there is none
    return min(limit, window) if window and (mistral or raw.get("use_sliding_window")) else limit


def _rope(raw: Mapping[str, Any], where: str) -> RopeConfig:
    """Both spellings: `rope_theta` beside `rope_scaling` (transformers 4) and `rope_parameters` (transformers 5)."""
    settings = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if any(isinstance(value, dict) for value in settings.values()):
        raise LoadError(f"{where} has a rotary embedding per kind of layer; only one for all is implemented.")
    kind = settings.get("rope_type") or settings.get("type") or "default"
    theta = raw.get("rope_theta") or 10_000.0
    if settings.get("rope_theta") is not None:
        theta = _positive(settings, "rope_theta", where)
    if kind not in ("default", "linear", "llama3"):
        raise LoadError(f"{where} asks for rotary embedding of type {shown(kind)}; supported: default, linear, llama3.")
    if settings.get("partial_rotary_factor", raw.get("partial_rotary_factor", 1.0)) not in (None, 1.0):
        raise LoadError(f"{where} rotates only part of each head (partial_rotary_factor); that is not implemented.")
    if kind == "default":
        return RopeConfig(theta=theta)
    try:
        if kind == "linear":
            return RopeConfig(theta=theta, kind=kind, factor=_positive(settings, "factor", where))
        low, high = (_positive(settings, name, where) for name in ("low_freq_factor", "high_freq_factor"))
        if low >= high:
            raise LoadError(f"{where} has low_freq_factor {low}; it must be below high_freq_factor {high}.")
        return RopeConfig(
            theta=theta,
            kind=kind,
            factor=_positive(settings, "factor", where),
            low_freq_factor=low,
            high_freq_factor=high,
            original_max_position_embeddings=int(_positive(settings, "original_max_position_embeddings", where)),
        )
    except KeyError as error:
        raise LoadError(f"{where} asks for {kind} rotary embedding but leaves out {error.args[0]}.") from None


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every weight the forward pass reads, by its Hugging Face name, with its shape."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        at = f"model.layers.{layer}."
        linears = {
            "self_attn.q_proj": (config.q_size, hidden),
            "self_attn.k_proj": (config.kv_size, hidden),
            "self_attn.v_proj": (config.kv_size, hidden),
            "self_attn.o_proj": (hidden, config.q_size),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        for name, shape in linears.items():
            shapes[f"{at}{name}.weight"] = shape
            if _has_bias(config, name):
                shapes[f"{at}{name}.bias"] = shape[:1]
        if config.qk_norm:
            shapes[f"{at}self_attn.q_norm.weight"] = shapes[f"{at}self_attn.k_norm.weight"] = (config.head_dim,)
        shapes[f"{at}input_layernorm.weight"] = (hidden,)
        shapes[f"{at}post_attention_layernorm.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def _has_bias(config: ModelConfig, linear: str) -> bool:
    if linear.startswith("mlp"):
        return config.mlp_bias
    return config.o_bias if linear.endswith("o_proj") else config.qkv_bias
