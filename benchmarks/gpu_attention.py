"""One layer's attention of a decode step over long sequences, by itself: as it is launched, and otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.attention.base import split_heads
from engine.attention.cache import LayerCache
from engine.batch import Share, flat_batch
from engine.models.config import ModelConfig
from engine.models.ops import choose_ops
from engine.roofs import best_seconds

BLOCK_SIZE = 16
CALLS = 10  # in a row: as in a captured step, the host prepares the next one while the device is at work
NAMES = ("tile", "num_warps", "num_stages", "programs_per_processor")  # of engine.kernels.launch.Launch
VARIANTS = [
    (64, 4, 3, 2),
    (64, 4, 3, 4),
    (64, 4, 3, 8),
    (64, 4, 4, 2),
    (64, 4, 2, 4),
    (64, 2, 3, 4),
    (64, 8, 3, 2),
    (128, 4, 3, 2),
    (128, 8, 2, 2),
    (128, 8, 3, 2),
    (32, 4, 4, 4),
    (32, 2, 4, 4),
]


@dataclass(frozen=True, slots=True)
class Tried:
    """One way to launch it."""

    launch: tuple[int, int, int, int]
    seconds: float
    difference: float  # the largest from what the default gives

    @property
    def numbers(self) -> str:
        return "/".join(map(str, self.launch))


class AttentionStep:
    """So many sequences of so many tokens each, in a cache of random numbers."""

    def __init__(
        self, config: ModelConfig, sequences: int, length: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        blocks = -(-length // BLOCK_SIZE)
        shape = (sequences * blocks, config.num_kv_heads, BLOCK_SIZE, config.head_dim)
        self.cache = LayerCache.empty(shape, dtype, device)
        for pool in (self.cache.keys, self.cache.values):
            pool.normal_()
        rows = [Share(range(row * blocks, (row + 1) * blocks), length - 1, [0], 1) for row in range(sequences)]
        self.meta = flat_batch(rows, BLOCK_SIZE, device).meta
        heads = config.num_attention_heads + 2 * config.num_kv_heads
        self.qkv = torch.randn(sequences, heads, config.head_dim, device=device).to(dtype)
        self.device = device
        self.moved_bytes = 2 * sequences * length * config.kv_size * dtype.itemsize

    def as_launched(self) -> Callable[[], Tensor]:
        """The engine's own call."""
        attend = choose_ops(self.device, self.qkv.dtype).attend
        return lambda: attend(self.qkv, self.cache, self.meta)

    def launched(self, variant: tuple[int, int, int, int]) -> Callable[[], Tensor]:
        """The same with other numbers; on a CPU there are none."""
        if self.device.type != "cuda":
            return self.as_launched()
        from engine.kernels.launch import Launch  # triton: only where there is something to run on
        from engine.kernels.split_kv import attend_decode

        q, launch = split_heads(self.qkv, self.cache)[0], Launch(*variant)
        return lambda: attend_decode(q, self.cache, self.meta, launch)

    def seconds(self, work: Callable[[], Tensor]) -> float:
        """Of one call among CALLS."""

        def several() -> None:
            for _ in range(CALLS):
                work()

        return best_seconds(several, self.device) / CALLS

    def try_all(self) -> Iterator[Tried]:
        """Each variant; one that this device cannot hold is left out, and said."""
        expected = self.as_launched()().float()
        for variant in VARIANTS:
            work = self.launched(variant)
            try:
                difference = float((work().float() - expected).abs().max())
            except Exception as error:
                print(f"attention with {variant}: {type(error).__name__}: {error}")
                continue
            yield Tried(variant, self.seconds(work), difference)


def described(tried: Tried) -> dict[str, Any]:
    """For the table's file."""
    return {**dict(zip(NAMES, tried.launch, strict=True)), "us": tried.seconds * 1e6, "difference": tried.difference}
