"""The KV pool: how large it is, and its tensors.

The sizing sum. One token takes 2 × layers × kv_heads × head_dim elements (key and value), and in int8 and fp8 a scale
of four bytes for each head's 2 × layers × kv_heads. A draft model's tensors lie under the same block ids and are
counted in. Unless told otherwise a CPU pool holds `max_num_seqs` × 1,024 tokens, but no more than a quarter of the
memory this process may still use, and a GPU pool all that `--gpu-memory-utilization` leaves beside weights and
activations, but no more than 32,768 blocks or what `max_num_seqs` sequences can fill: every keyframe names every
block. `auto` is fp32 on a CPU whatever the weights' dtype, since the attention kernel works in fp32, and the
weights' dtype on a GPU.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from engine.attention.cache import LayerCache
from engine.config import MOST, EngineConfig
from engine.errors import ConfigError
from engine.events import MemoryFacts, ModelFacts
from engine.graphs import graph_sizes
from engine.loader import Loaded
from engine.models.config import ModelConfig
from engine.models.llama import Llama
from engine.speculative import parse_speculation

DEFAULT_TOKENS_PER_SEQ = 1024
DEFAULT_MAX_MODEL_LEN = 4096
DEFAULT_MOST_BLOCKS = 2**15
MEMORY_SHARE = 4  # the default pool takes at most one part in so many of the available memory
SCALE_BYTES = 4  # per token and head of a quantised cache
_QUANTIZED = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}


def kv_bytes_per_token(
    num_layers: int, num_kv_heads: int, head_dim: int, element_bytes: int, scale_bytes: int = 0
) -> int:
    """Bytes that one token's keys and values, and their scales, take in all layers."""
    return 2 * num_layers * num_kv_heads * (head_dim * element_bytes + scale_bytes)


def resolve_kv_dtype(config: EngineConfig, model: Llama) -> torch.dtype:
    """`--kv-cache-dtype`."""
    weights = model.embed_tokens
    return _QUANTIZED.get(config.kv_cache_dtype, weights.dtype if weights.is_cuda else torch.float32)


def bytes_per_token(facts: ModelFacts, kv_dtype: torch.dtype) -> int:
    """`kv_bytes_per_token` of this model in a cache of this dtype."""
    shape = facts.num_layers, facts.num_kv_heads, facts.head_dim
    return kv_bytes_per_token(*shape, kv_dtype.itemsize, SCALE_BYTES if kv_dtype in _QUANTIZED.values() else 0)


def size_pool(config: EngineConfig, loaded: Loaded, draft: Loaded | None = None) -> tuple[EngineConfig, MemoryFacts]:
    """Settle `num_blocks` and `max_model_len` for this model, with this draft model, on this machine.

    Raises ConfigError naming the flag.
    """
    model = loaded.model
    cuda = model.embed_tokens.is_cuda
    resolved, memory = size_pool_for(
        config,
        loaded.facts,
        gpu_bytes(config, model) if cuda else available_bytes(),
        draft.facts if draft else None,
        resolve_kv_dtype(config, model),
        fill=cuda,
    )
    return resolved, dataclasses.replace(memory, activations=activation_bytes(config, model.config, captured=cuda))


def size_pool_for(
    config: EngineConfig,
    facts: ModelFacts,
    available: int | None,
    draft: ModelFacts | None = None,
    kv_dtype: torch.dtype = torch.float32,
    *,
    fill: bool = False,
) -> tuple[EngineConfig, MemoryFacts]:
    """`size_pool` without a look at the machine: `available` bytes of memory, or None when that is not known.

    `fill`: the pool takes all of them unless told otherwise.
    """
    own = bytes_per_token(facts, kv_dtype)
    per_token = own + (bytes_per_token(draft, kv_dtype) if draft else 0)
    dtype_name = str(kv_dtype).removeprefix("torch.")
    weights = facts.weight_bytes + (_weights_of_its_own(config, draft) if draft else 0)
    per_block = per_token * config.block_size
    num_blocks, reason = _num_blocks(config, per_block, available, fill=fill)
    pool = num_blocks * per_block
    if available is not None and pool > available:
        raise ConfigError(
            f"A KV pool of {num_blocks:,} blocks ({reason}) takes {_size(pool)}, but only {_size(available)} of memory "
            "is available. Lower --num-blocks or --kv-cache-memory-bytes."
        )
    max_model_len = _max_model_len(config, facts, num_blocks * config.block_size, draft)
    memory = MemoryFacts(
        weights=weights,
        kv_pool=pool,
        bytes_per_token=per_token,
        bytes_per_block=per_block,
        draft_bytes_per_token=per_token - own,
        kv_dtype=dtype_name,
        available=available,
        sum_text=(
            f"KV pool {_size(pool)} = {num_blocks:,} blocks × {config.block_size} tokens × {per_token:,} B "
            f"per {dtype_name} token"
            + (f", {per_token - own:,} B of them the draft model's" if draft else "")
            + f" ({reason}); weights {_size(weights)}"
            + (f"; {_size(available)} of memory were available." if available is not None else ".")
        ),
    )
    return config.resolve(max_model_len=max_model_len, num_blocks=num_blocks), memory


def _num_blocks(config: EngineConfig, per_block: int, available: int | None, *, fill: bool) -> tuple[int, str]:
    """How many blocks, and the reason in words."""
    asked = config.kv_cache_memory_bytes
    if asked is not None:
        blocks = asked // per_block
        if config.num_blocks is not None and config.num_blocks != blocks:
            raise ConfigError(
                f"--num-blocks is {config.num_blocks} but --kv-cache-memory-bytes {asked} makes {blocks} blocks of "
                f"{per_block:,} bytes. Give one of the two."
            )
        if blocks < 1:
            raise ConfigError(
                f"--kv-cache-memory-bytes is {asked}; one block takes {per_block:,} bytes, so it must be at least that."
            )
        return blocks, "--kv-cache-memory-bytes"
    if config.num_blocks is not None:
        return config.num_blocks, "--num-blocks"
    if fill and available is not None and available >= per_block:
        longest = -(-(config.max_model_len or DEFAULT_MAX_MODEL_LEN) // config.block_size)
        most = min(max(DEFAULT_MOST_BLOCKS, config.max_num_seqs * longest), MOST["num_blocks"])
        if available // per_block <= most:
            return available // per_block, f"what {config.gpu_memory_utilization:.0%} of the GPU's memory leaves"
        return most, "enough for every sequence at its longest; --num-blocks takes more"
    wanted = -(-config.max_num_seqs * DEFAULT_TOKENS_PER_SEQ // config.block_size)
    affordable = wanted if available is None else available // MEMORY_SHARE // per_block
    if affordable < 1:
        raise ConfigError(
            f"One KV block takes {_size(per_block)}, more than a quarter of the {_size(available or 0)} of memory that "
            "is available. Lower --block-size, free memory, or set --num-blocks yourself."
        )
    if affordable < wanted:
        return affordable, "a quarter of the available memory"
    return wanted, f"{DEFAULT_TOKENS_PER_SEQ:,} tokens for each of {config.max_num_seqs} sequences"


def _weights_of_its_own(config: EngineConfig, draft: ModelFacts) -> int:
    """A draft model that is part of the target brings no weights."""
    return 0 if parse_speculation(config.speculative).num_draft_layers else draft.weight_bytes


def _max_model_len(config: EngineConfig, facts: ModelFacts, pool_tokens: int, draft: ModelFacts | None) -> int:
    if draft is not None and draft.max_position_embeddings < facts.max_position_embeddings:
        facts = draft
    limit = facts.max_position_embeddings
    if config.max_model_len is None:
        return min(limit, DEFAULT_MAX_MODEL_LEN, pool_tokens)
    if config.max_model_len > limit:
        raise ConfigError(
            f"--max-model-len is {config.max_model_len}; {facts.name} was made for at most {limit} positions."
        )
    return config.max_model_len


def allocate(config: EngineConfig, model: ModelConfig, device: torch.device, dtype: torch.dtype) -> list[LayerCache]:
    """The pool's tensors, one LayerCache per layer. A CPU's memory is really taken only as blocks come into use."""
    assert config.num_blocks is not None, "size_pool settles num_blocks first"
    shape = (config.num_blocks, model.num_kv_heads, config.block_size, model.head_dim)
    try:
        return [LayerCache.empty(shape, dtype, device) for _ in range(model.num_layers)]
    except RuntimeError:
        raise ConfigError(
            f"A KV pool of {config.num_blocks} blocks could not be allocated; lower --num-blocks."
        ) from None


def activation_bytes(config: EngineConfig, model: ModelConfig, *, captured: bool) -> int:
    """What a step's intermediate results take at most: the budget's tokens in the widest layer, in fp32, logits for
    every row and guess three times over, and those that each captured step keeps where steps are captured."""
    widest = 2 * model.intermediate_size + model.q_size + 2 * model.kv_size + 4 * model.hidden_size
    speculation = parse_speculation(config.speculative)
    num_logits = config.max_num_seqs * (1 + speculation.num_drafts)
    num_models = 2 if speculation.kind == "draft" else 1
    kept = num_models * sum(graph_sizes(config.max_num_seqs)) if captured else 0
    return 4 * (config.max_num_batched_tokens * widest + (3 * num_logits + kept) * model.vocab_size)


def gpu_bytes(config: EngineConfig, model: Llama) -> int:
    """What `--gpu-memory-utilization` leaves for the cache, the weights being there already."""
    torch.cuda.empty_cache()  # what loading and measuring have left over
    free, total = torch.cuda.mem_get_info(model.embed_tokens.device)
    kept = int(total * (1 - config.gpu_memory_utilization)) + activation_bytes(config, model.config, captured=True)
    return max(0, free - kept)


def available_bytes() -> int | None:
    """Memory this process may still take: the system's, and its control group's where that is less. None if unknown."""
    limits = [_meminfo_available(), _cgroup_available()]
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _meminfo_available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _cgroup_available() -> int | None:
    """What the control group (v2) of a container leaves; memory it could drop from its file cache counts as free."""
    root = Path("/sys/fs/cgroup")
    try:
        limit = int((root / "memory.max").read_text())
        used = int((root / "memory.current").read_text())
        stat = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        return max(0, limit - used + int(stat.get("inactive_file", 0)))
    except (OSError, ValueError):  # no cgroup v2, or "max": no limit
        return None


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.0f} MiB"
