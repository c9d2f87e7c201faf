"""KVCacheManager: which blocks hold a request's keys and values, and which of them it can share.

Between the scheduler, which decides, and the block pool, which counts. Invariants: a block is registered under its hash
after the forward that wrote it and before its request is freed; hits are touched before anything is allocated; only
full blocks of accepted tokens have a hash, and a hit ends before the last token, whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.block_pool import BlockPool, hash_block
from engine.request import Request
from engine.runner import ScheduledRow


class KVCacheManager:
    """Blocks of `block_size` tokens; `root_hash` starts every chain of block hashes."""

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool, root_hash: str) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._root_hash = root_hash

    @property
    def capacity(self) -> int:
        """Tokens that the whole pool can hold."""
        return self.pool.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def missing(self, request: Request, num_tokens: int) -> int:
        """How many more blocks the request needs to hold so many tokens."""
        return max(0, self.blocks_for(num_tokens) - len(request.block_table))

    def find_hits(self, request: Request) -> list[int]:
        """The cached blocks of the request's longest known prefix. Nothing is touched."""
        return self.pool.find_cached(self._usable_hashes(request))

    def available(self, hits: list[int]) -> int:
        """Blocks that could be allocated once `hits` are referenced: idle ones leave the free queue."""
        return self.pool.num_free - self.pool.num_idle(hits)

    def admit(self, request: Request, hits: list[int], num_blocks: int) -> tuple[list[int], list[int]]:
        """Give the request its hits and new blocks, `num_blocks` in all; returns (its table, evicted blocks)."""
        self.pool.touch(hits)
        request.block_table.extend(hits)
        _, evicted = self.allocate(request, num_blocks - len(hits))
        return list(request.block_table), evicted

    def allocate(self, request: Request, count: int) -> tuple[list[int], list[int]]:
        """Append `count` new blocks to the request's table; returns (them, evicted blocks)."""
        blocks, evicted = self.pool.allocate(count)
        request.block_table.extend(blocks)
        return blocks, evicted

    def free(self, request: Request) -> None:
        self.pool.free(request.block_table)
        request.block_table.clear()

    def freeable(self, requests: Iterable[Request]) -> int:
        """How many blocks would become available if these requests gave theirs back."""
        held: dict[int, int] = {}
        for request in requests:
            for block_id in request.block_table:
                held[block_id] = held.get(block_id, 0) + 1
        return sum(self.pool.blocks[block_id].ref_cnt == count for block_id, count in held.items())

    # -- hashes --------------------------------------------------------------------------------------------------

    def extend_hashes(self, request: Request) -> None:
        """Hash the blocks of `token_ids` that have become full."""
        if not self.enable_prefix_caching:
            return
        size, hashes = self.block_size, request.block_hashes
        for i in range(len(hashes), request.num_tokens // size):
            parent = hashes[-1] if hashes else self._root_hash
            hashes.append(hash_block(parent, request.token_ids[i * size : (i + 1) * size]))

    def prefill_cache(self, token_ids: list[int]) -> None:
        """Hold the whole blocks of a prefix as if a request had computed them and ended, as far as there is room."""
        hashes: list[str] = []
        for i in range(min(len(token_ids) // self.block_size, self.pool.num_blocks)):
            parent = hashes[-1] if hashes else self._root_hash
            hashes.append(hash_block(parent, token_ids[i * self.block_size : (i + 1) * self.block_size]))
        blocks = self.pool.find_cached(hashes)
        self.pool.touch(blocks)
        new, _ = self.pool.allocate(min(len(hashes) - len(blocks), self.pool.num_free))
        for block_id, block_hash in zip(new, hashes[len(blocks) :], strict=False):
            self.pool.register(block_id, block_hash)
        self.pool.free([*blocks, *new])

    def register(self, row: ScheduledRow) -> list[tuple[int, str]]:
        """Make the blocks that this row filled reusable; returns those that became so, as (block, hash)."""
        if not self.enable_prefix_caching:
            return []
        request, size = row.request, self.block_size
        self.extend_hashes(request)  # caching may have been off when they became full
        full = range(row.num_computed_tokens // size, request.num_computed_tokens // size)
        pairs = [(request.block_table[i], request.block_hashes[i]) for i in full]
        return [pair for pair in pairs if self.pool.register(*pair)]

    def computing_next(self, request: Request, num_hits: int, running: Iterable[Request]) -> Request | None:
        """The running request that is computing this one's next block, if any: waiting for it means sharing it."""
        usable = self._usable_hashes(request)
        if num_hits >= len(usable):
            return None
        for other in running:
            # Chained hashes: if the other has the wanted one at all, it is at the same index. It may have computed it
            # already as a duplicate of a block evicted since; then there is nothing to wait for.
            pending = other.num_computed_tokens < (num_hits + 1) * self.block_size
            if pending and other.block_hashes[num_hits : num_hits + 1] == usable[num_hits : num_hits + 1]:
                return other
        return None

    def _usable_hashes(self, request: Request) -> list[str]:
        if not self.enable_prefix_caching:
            return []
        return request.block_hashes[: (request.num_tokens - 1) // self.block_size]
