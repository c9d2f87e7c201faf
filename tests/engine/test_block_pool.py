"""BlockPool: every block is free, cached idle or referenced, and comes back."""

from engine.block_pool import Block, BlockPool, FreeQueue, hash_block, hash_root
from engine.events import BlockCounts


def pool_with_cached(num_blocks: int, hashes: list[str]) -> tuple[BlockPool, list[int]]:
    """A pool in which one table of len(hashes) blocks is referenced and registered."""
    pool = BlockPool(num_blocks)
    table, _ = pool.allocate(len(hashes))
    for block_id, block_hash in zip(table, hashes, strict=True):
        assert pool.register(block_id, block_hash)
    return pool, table


# -- the free queue ----------------------------------------------------------------------------------------------


def test_the_queue_hands_out_what_was_appended_first():
    queue = FreeQueue(Block(i) for i in range(3))
    assert [queue.popleft().block_id for _ in range(3)] == [0, 1, 2]


def test_a_prepended_block_is_handed_out_next():
    queue = FreeQueue([Block(0)])
    queue.prepend(Block(1))
    assert [block.block_id for block in queue] == [1, 0]


def test_a_block_can_be_removed_from_the_middle():
    blocks = [Block(i) for i in range(4)]
    queue = FreeQueue(blocks)
    queue.remove(blocks[2])
    assert [block.block_id for block in queue] == [0, 1, 3]
    assert len(queue) == 3


def test_a_removed_block_can_be_queued_again():
    blocks = [Block(i) for i in range(3)]
    queue = FreeQueue(blocks)
    queue.remove(blocks[0])
    queue.append(blocks[0])
    assert [block.block_id for block in queue] == [1, 2, 0]


# -- hashes ------------------------------------------------------------------------------------------------------


def test_a_hash_names_the_whole_prefix_not_only_its_own_tokens():
    """A27: two prompts that end alike share nothing unless they begin alike."""
    assert hash_block(hash_block("", [1, 2]), [3, 4]) != hash_block(hash_block("", [9, 2]), [3, 4])


def test_a_hash_is_the_same_in_every_process():
    """A27: 128 bits, so that a collision is no case to handle; fixed, so that recordings are comparable."""
    assert hash_block("", [1, 2, 3]) == "abccad42d03c940bc2b249bf5a4e1e3d"


def test_token_boundaries_are_part_of_the_hash():
    assert hash_block("", [1, 23]) != hash_block("", [12, 3])


def test_caches_of_different_models_dtypes_and_salts_share_nothing():
    """A29: what goes into the root is told apart by its place."""
    roots = [
        hash_root("m", "float32"),
        hash_root("m", "float16"),
        hash_root("n", "float32"),
        hash_root("m", "float32", "salt"),
        hash_root("mf", "loat32"),
    ]
    assert len(set(roots)) == len(roots)


# -- allocation and return ---------------------------------------------------------------------------------------


def test_a_fresh_pool_is_all_free():
    assert BlockPool(8).counts() == BlockCounts(free=8, cached_idle=0, referenced=0, total=8)


def test_allocated_blocks_are_referenced():
    pool = BlockPool(8)
    taken, evicted = pool.allocate(3)
    assert (taken, evicted) == ([0, 1, 2], [])
    assert pool.counts() == BlockCounts(free=5, cached_idle=0, referenced=3, total=8)


def test_a_freed_block_without_a_hash_is_free_again_and_goes_first():
    pool = BlockPool(4)
    taken, _ = pool.allocate(2)
    pool.free(taken)
    assert pool.counts() == BlockCounts(free=4, cached_idle=0, referenced=0, total=4)
    assert pool.victims(8) == [0, 1, 2, 3]


def test_a_freed_block_with_a_hash_is_cached_idle_and_goes_last():
    pool, table = pool_with_cached(4, ["a"])
    pool.free(table)
    assert pool.counts() == BlockCounts(free=3, cached_idle=1, referenced=0, total=4)
    assert pool.victims(8) == [1, 2, 3, 0]


def test_a_table_is_freed_in_reverse_so_that_its_tail_is_evicted_first():
    pool, table = pool_with_cached(3, ["a", "b", "c"])
    pool.free(table)
    assert pool.victims(3) == list(reversed(table))


def test_a_shared_block_stays_referenced_until_its_last_table_lets_go():
    pool, table = pool_with_cached(4, ["a"])
    pool.touch(table)
    pool.free(table)
    assert pool.counts().referenced == 1
    pool.free(table)
    assert pool.counts().referenced == 0


def test_victims_are_the_next_blocks_to_go_soonest_first():
    pool, table = pool_with_cached(6, ["a", "b"])
    pool.free(table)
    assert pool.victims(2) == [2, 3]
    assert pool.allocate(6)[0] == [2, 3, 4, 5, 1, 0]


# -- the cache ---------------------------------------------------------------------------------------------------


def test_the_longest_cached_prefix_is_found():
    pool, table = pool_with_cached(8, ["a", "b", "c"])
    assert pool.find_cached(["a", "b", "x", "c"]) == table[:2]


def test_finding_touches_nothing():
    pool, table = pool_with_cached(8, ["a"])
    pool.free(table)
    before = (pool.counts(), pool.victims(8))
    pool.find_cached(["a"])
    assert (pool.counts(), pool.victims(8)) == before


def test_a_touched_idle_block_cannot_be_evicted_by_the_allocation_that_follows():
    pool, table = pool_with_cached(2, ["a"])
    pool.free(table)
    pool.touch(table)
    taken, evicted = pool.allocate(1)
    assert taken != table
    assert evicted == []


def test_idle_hits_count_as_consumed_and_referenced_ones_do_not():
    pool, table = pool_with_cached(4, ["a", "b"])
    pool.touch(table[:1])
    pool.free(table)  # the first is still held once
    assert pool.num_idle(table) == 1


def test_an_evicted_block_loses_its_hash():
    pool, table = pool_with_cached(1, ["a"])
    pool.free(table)
    assert pool.allocate(1) == ([0], [0])
    assert pool.find_cached(["a"]) == []


def test_the_first_mapping_wins_and_the_duplicate_stays_hashless():
    pool, (first,) = pool_with_cached(4, ["a"])
    (second,), _ = pool.allocate(1)
    assert pool.register(second, "a") is False
    assert pool.find_cached(["a"]) == [first]
    pool.free([second])
    assert pool.counts() == BlockCounts(free=3, cached_idle=0, referenced=1, total=4)


def test_a_reset_forgets_idle_blocks():
    pool, table = pool_with_cached(4, ["a", "b"])
    pool.free(table)
    assert pool.reset_cache() == 2
    assert pool.find_cached(["a"]) == []
    assert pool.counts() == BlockCounts(free=4, cached_idle=0, referenced=0, total=4)


# -- problems() is an oracle, so it must see what it is there for ------------------------------------------------


def test_a_sound_pool_has_no_problems():
    pool, table = pool_with_cached(8, ["a", "b"])
    assert pool.problems([table]) == []
    pool.free(table)
    assert pool.problems([]) == []


def test_a_table_that_holds_a_block_unknown_to_the_pool_is_seen():
    pool = BlockPool(2)
    assert pool.problems([[0]]) == ["block 0 has ref_cnt 0 but 1 tables hold it"]


def test_a_block_freed_twice_is_seen():
    """A33: sgl-project/sglang-jax#982."""
    pool = BlockPool(2)
    table, _ = pool.allocate(1)
    pool.blocks[table[0]].ref_cnt = 2
    pool.free(table)
    assert pool.problems([]) != []


def test_a_block_that_is_lost_from_the_queue_is_seen():
    pool = BlockPool(2)
    table, _ = pool.allocate(1)
    pool.blocks[table[0]].ref_cnt = 0
    assert "the free queue is not the set of unreferenced blocks" in pool.problems([])


def test_a_miscounted_idle_block_is_seen():
    pool, table = pool_with_cached(2, ["a"])
    pool.free(table)
    pool.blocks[table[0]].block_hash = None
    assert "cached idle is counted as 1 but is 0" in pool.problems([])
