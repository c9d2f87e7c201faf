"""`python -m benchmarks kv-error`: what an int8 or fp8 KV cache changes in the next token's distribution.

One forward pass over the same text per cache, in chunks as the engine computes a prompt; at each position the
distribution over the vocabulary is compared with the one from an fp32 cache. The text is the first 2,000 tokens of this
project's README: English prose, tables and commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.attention.base import AttentionMetadata
from engine.config import EngineConfig
from engine.kv_cache import allocate, resolve_kv_dtype, size_pool
from engine.loader import Loaded, load

CHUNK = 256
NUM_TOKENS = 2000
QUANTIZED = ("int8", "fp8")
TEXT = Path(__file__).parent.parent / "README.md"


@dataclass(frozen=True, slots=True)
class Error:
    """Over all positions: KL(fp32 ‖ this dtype) in nats, and how often the most likely token is the same."""

    dtype: str
    mean_kl: float
    worst_kl: float
    same_top1: float
    bytes_per_token: tuple[int, int]  # of the fp32 cache, of this one


def measure(loaded: Loaded, token_ids: list[int]) -> list[Error]:
    """Compare quantised caches with an fp32 one over `token_ids`."""
    kls: list[list[Tensor]] = [[] for _ in QUANTIZED]
    same = [0 for _ in QUANTIZED]
    for exact, *rounded in zip(*(log_probs(loaded, token_ids, dtype) for dtype in ("auto", *QUANTIZED)), strict=True):
        for i, found in enumerate(rounded):
            kls[i].append((exact.exp() * (exact - found)).sum(-1))
            same[i] += int((exact.argmax(-1) == found.argmax(-1)).sum())
    return [
        Error(
            dtype=dtype,
            mean_kl=float(torch.cat(kls[i]).mean()),
            worst_kl=float(torch.cat(kls[i]).max()),
            same_top1=same[i] / len(token_ids),
            bytes_per_token=(_bytes_per_token(loaded, "auto"), _bytes_per_token(loaded, dtype)),
        )
        for i, dtype in enumerate(QUANTIZED)
    ]


def _bytes_per_token(loaded: Loaded, dtype: str) -> int:
    return size_pool(EngineConfig(kv_cache_dtype=dtype, num_blocks=1), loaded)[1].bytes_per_token


@torch.inference_mode()
def log_probs(loaded: Loaded, token_ids: list[int], dtype: str) -> Iterator[Tensor]:
    """Per chunk of the text: the log-probabilities after each of its tokens, [chunk, vocab_size]."""
    num_blocks = -(-len(token_ids) // 16)
    config = EngineConfig(kv_cache_dtype=dtype, num_blocks=num_blocks, max_model_len=len(token_ids))
    caches = allocate(config, loaded.model.config, torch.device("cpu"), resolve_kv_dtype(config, loaded.model))
    table = torch.arange(num_blocks, dtype=torch.int32)[None]
    ids = torch.tensor(token_ids)
    for start in range(0, len(token_ids), CHUNK):
        positions = torch.arange(start, min(start + CHUNK, len(token_ids)))
        meta = AttentionMetadata.build(
            query_start_loc=torch.tensor([0, len(positions)], dtype=torch.int32),
            seq_lens=torch.tensor([start + len(positions)], dtype=torch.int32),
            block_tables=table,
            slot_mapping=positions,
            block_size=config.block_size,
        )
        everywhere = torch.arange(len(positions))
        yield loaded.model.forward(ids[positions], positions, caches, meta, everywhere).log_softmax(-1)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks kv-error", description=__doc__)
    parser.add_argument("--tokens", type=int, default=NUM_TOKENS, metavar="N", help="default: %(default)s")
    args = parser.parse_args(argv)
    loaded = load(EngineConfig(device="cpu"), lambda *report: None)
    token_ids = loaded.tokenizer.encode(TEXT.read_text()).ids[: args.tokens]
    for error in measure(loaded, token_ids):
        before, after = error.bytes_per_token
        print(f"{loaded.facts.name}, {len(token_ids):,} tokens of {TEXT.name}, {error.dtype} KV cache against fp32:")
        print(f"  bytes per token    {after:,} for {before:,}: {after / before:.3f}")
        print(f"  KL of next token   {error.mean_kl:.5f} nats on average, {error.worst_kl:.3f} at worst")
        print(f"  equal top-1        {error.same_top1:.4f}")
    return 0
