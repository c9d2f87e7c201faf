"""BlockPool: who holds which KV block, which blocks can be reused, and which one goes next.

Invariants, checked by `problems()`:
- every block is exactly one of free (no reference, no hash), cached idle (no reference, but a hash that a hit
  could use) or referenced; the three add up to `num_blocks`;
- the free queue holds exactly the unreferenced blocks, free ones first, then cached idle ones, least recently used
  first; taking a block from it and removing one from its middle are both O(1);
- a hash names at most one block: the first mapping wins, a duplicate stays hashless.

Block hashes are chained, so a hash names the whole prefix up to its block, and 128 bits of BLAKE2b, so that
two different prefixes sharing one is not a case to handle. After vLLM's v1/core/block_pool.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.events import BlockCounts


def hash_block(parent: str, token_ids: Sequence[int]) -> str:
    """The chained hash of one full block: 32 hex digits over its parent's hash and its token ids."""
    return hashlib.blake2b(parent.encode() + array("q", token_ids).tobytes(), digest_size=16).hexdigest()


def hash_root(model: str, kv_dtype: str, salt: str = "") -> str:
    """The parent of every first block: caches of different models or dtypes share nothing."""
    return hashlib.blake2b("\0".join((model, kv_dtype, salt)).encode(), digest_size=16).hexdigest()


@dataclass(slots=True, eq=False)
class Block:
    """One block and its place in the free queue (None, None while referenced)."""

    block_id: int
    ref_cnt: int = 0
    block_hash: str | None = None
    prev: Block | None = None
    next: Block | None = None


class FreeQueue:
    """An intrusive doubly linked list of blocks: the next one to hand out comes first."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._head = Block(-1)
        self._tail = Block(-2)
        self._head.next, self._tail.prev = self._tail, self._head
        self._size = 0
        for block in blocks:
            self.append(block)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Block]:
        block = self._head.next
        while block is not None and block is not self._tail:
            yield block
            block = block.next

    def append(self, block: Block) -> None:
        """Put `block` last: it was used just now."""
        self._insert_before(self._tail, block)

    def prepend(self, block: Block) -> None:
        """Put `block` first: it holds nothing worth keeping."""
        first = self._head.next
        assert first is not None
        self._insert_before(first, block)

    def popleft(self) -> Block:
        """Take the first block; the caller has checked that there is one."""
        block = self._head.next
        assert block is not None
        assert block is not self._tail
        self.remove(block)
        return block

    def remove(self, block: Block) -> None:
        before, after = block.prev, block.next
        assert before is not None
        assert after is not None
        before.next, after.prev = after, before
        block.prev = block.next = None
        self._size -= 1

    def _insert_before(self, after: Block, block: Block) -> None:
        before = after.prev
        assert before is not None
        before.next = after.prev = block
        block.prev, block.next = before, after
        self._size += 1


class BlockPool:
    """All KV blocks of one engine."""

    def __init__(self, num_blocks: int) -> None:
        self.blocks = [Block(i) for i in range(num_blocks)]
        self._free = FreeQueue(self.blocks)
        self._by_hash: dict[str, Block] = {}
        self._num_cached_idle = 0

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out now: free and cached idle ones."""
        return len(self._free)

    def counts(self) -> BlockCounts:
        total, unreferenced = len(self.blocks), len(self._free)
        return BlockCounts(
            free=unreferenced - self._num_cached_idle,
            cached_idle=self._num_cached_idle,
            referenced=total - unreferenced,
            total=total,
        )

    def victims(self, limit: int) -> list[int]:
        """The next blocks that would be handed out, soonest first."""
        return [block.block_id for block, _ in zip(self._free, range(limit), strict=False)]

    def find_cached(self, hashes: Iterable[str]) -> list[int]:
        """The blocks of the longest cached prefix of `hashes`. Nothing is touched."""
        found: list[int] = []
        for block_hash in hashes:
            block = self._by_hash.get(block_hash)
            if block is None:
                break
            found.append(block.block_id)
        return found

    def num_idle(self, block_ids: Iterable[int]) -> int:
        """How many of these blocks nobody references: touching them makes so many fewer available."""
        return sum(self.blocks[i].ref_cnt == 0 for i in block_ids)

    def touch(self, block_ids: Iterable[int]) -> None:
        """Reference blocks found in the cache. Do this before `allocate`, or it may evict them."""
        for block_id in block_ids:
            block = self.blocks[block_id]
            if block.ref_cnt == 0:
                self._free.remove(block)
                self._num_cached_idle -= 1
            block.ref_cnt += 1

    def allocate(self, count: int) -> tuple[list[int], list[int]]:
        """Hand out `count` blocks; returns (their ids, those of them that were evicted from the cache).

        The caller has checked `count <= num_free`.
        """
        taken: list[int] = []
        evicted: list[int] = []
        for _ in range(count):
            block = self._free.popleft()
            if block.block_hash is not None:
                self._forget(block)
                evicted.append(block.block_id)
            block.ref_cnt = 1
            taken.append(block.block_id)
        return taken, evicted

    def register(self, block_id: int, block_hash: str) -> bool:
        """Make a referenced block, whose KV is written, reusable. False if the hash names another already."""
        block = self.blocks[block_id]
        if block_hash in self._by_hash or block.block_hash is not None:
            return False
        block.block_hash = block_hash
        self._by_hash[block_hash] = block
        return True

    def free(self, block_table: Sequence[int]) -> None:
        """Drop one reference to each block, tail first, so that a prefix outlives its continuations."""
        for block_id in reversed(block_table):
            block = self.blocks[block_id]
            block.ref_cnt -= 1
            if block.ref_cnt > 0:
                continue
            if block.block_hash is None:
                self._free.prepend(block)
            else:
                self._free.append(block)
                self._num_cached_idle += 1

    def reset_cache(self) -> int:
        """Forget every hash, of referenced blocks too, so that no later request finds anything; returns how many.

        Whoever holds a block keeps it and its contents.
        """
        cached = list(self._by_hash.values())
        for block in cached:
            self._forget(block)
        return len(cached)

    def reset(self) -> int:
        """Be as a new pool: no hash, and blocks are handed out in id order again. No block may be referenced.

        Returns how many hashes were forgotten.
        """
        forgotten = self.reset_cache()
        self._free = FreeQueue(self.blocks)
        return forgotten

    def _forget(self, block: Block) -> None:
        assert block.block_hash is not None
        del self._by_hash[block.block_hash]
        block.block_hash = None
        self._num_cached_idle -= block.ref_cnt == 0

    def problems(self, tables: Iterable[Sequence[int]]) -> list[str]:
        """Every way in which the pool and these block tables contradict the invariants; empty when sound."""
        held = [0] * len(self.blocks)
        for table in tables:
            for block_id in table:
                held[block_id] += 1
        found = [
            f"block {block.block_id} has ref_cnt {block.ref_cnt} but {count} tables hold it"
            for block, count in zip(self.blocks, held, strict=True)
            if block.ref_cnt != count
        ]
        queued = [block.block_id for block in self._free]
        if sorted(queued) != [block.block_id for block in self.blocks if block.ref_cnt == 0]:
            found.append("the free queue is not the set of unreferenced blocks")
        idle = sum(block.ref_cnt == 0 and block.block_hash is not None for block in self.blocks)
        if idle != self._num_cached_idle:
            found.append(f"cached idle is counted as {self._num_cached_idle} but is {idle}")
        hashes = {block.block_hash: block for block in self.blocks if block.block_hash is not None}
        if hashes != self._by_hash:
            found.append("the hash map and the blocks disagree")
        return found
