from __future__ import annotations

from gpubeton._engine.buffers import STEP, Staging
from tests.blocks import Blocks


def test_the_number_of_blocks_does_not_grow_with_the_batches():
    staging = Staging(blocks := Blocks())
    for size in (1, 5_000_000, 2_000_000, 9_000_000, 3_000_000):
        taken = [staging.take(size) for _ in range(3)]
        assert all(len(block) >= size for block in taken)
        for block in taken:
            staging.give_back(block)
    del taken, block
    assert len(blocks.alive()) == 3
    assert max(blocks.alive()) == 9 << 20


def test_a_block_of_exactly_the_size_is_used_again_and_the_smallest_that_fits_is_taken():
    staging = Staging()
    small, large = staging.take(STEP), staging.take(3 * STEP)
    staging.give_back(large)
    staging.give_back(small)
    assert staging.take(STEP) is small
    assert staging.take(3 * STEP) is large
