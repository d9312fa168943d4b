from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

from gpubeton._engine.buffers import ArrayPool
from tests.at_once import run_at_once
from tests.blocks import Blocks

SHAPE, DTYPE = (64, 1024), np.dtype("float32")


def address(array):
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()


def is_reused(pool, first):
    """Whether the memory of an array that was just dropped is handed out next."""
    again = pool.take(SHAPE, DTYPE)
    return address(again) == first


@pytest.mark.parametrize(
    "keep",
    [
        lambda array: array,
        lambda array: array[3:5],
        lambda array: array.view(np.uint8).reshape(-1)[::7],
        lambda array: array.reshape(-1)[100:].reshape(2, -1).T,
        torch.from_numpy,
        lambda array: torch.from_numpy(array)[5],
        lambda array: torch.from_numpy(array[1:2]).permute(1, 0),
        lambda array: torch.from_numpy(array).numpy()[1],
        lambda array: torch.from_dlpack(torch.from_numpy(array)),
        memoryview,
    ],
    ids=["array", "slice", "view", "transposed", "tensor", "row", "permuted", "round-trip", "dlpack", "memoryview"],
)
def test_memory_is_not_reused_while_a_part_of_it_is_referenced(keep):
    pool = ArrayPool()
    array = pool.take(SHAPE, DTYPE)
    first = address(array)
    reference = keep(array)
    del array
    gc.collect()
    assert not is_reused(pool, first)
    del reference
    gc.collect()
    assert is_reused(pool, first)


def test_an_array_has_the_requested_shape_and_dtype_is_writable_and_begins_at_a_page_if_it_is_large():
    for shape, dtype in [((), "f8"), ((3,), "u1"), ((0, 5), "f4"), ((7, 300, 300, 3), "f2"), ((2, 50_000), "c16")]:
        array = ArrayPool().take(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.c_contiguous
        assert array.flags.writeable
        array[...] = 1
    assert address(ArrayPool().take((100_001,), np.uint8)) % 4096 == 0


def test_sizes_that_an_epoch_did_not_use_are_freed_after_it():
    pool = ArrayPool(blocks := Blocks())
    pool.take(SHAPE, DTYPE)
    pool.begin_epoch(8)
    assert blocks.alive() == [64 * 1024 * 4]
    pool.take((2, *SHAPE), DTYPE)
    pool.begin_epoch(8)
    assert blocks.alive() == [2 * 64 * 1024 * 4]


def test_no_more_than_max_free_blocks_wait_for_use():
    pool = ArrayPool(blocks := Blocks())
    pool.begin_epoch(3)
    arrays = [pool.take(SHAPE, DTYPE) for _ in range(10)]
    del arrays
    assert len(blocks.alive()) == 3


def test_a_closed_pool_keeps_nothing_an_array_does_not_keep_the_pool_and_stays_good():
    pool = ArrayPool(blocks := Blocks())
    array = pool.take(SHAPE, DTYPE)
    array[:] = 5
    pool.close()
    alive = weakref.ref(pool)
    del pool
    assert alive() is None
    assert (array == 5).all()
    del array
    assert blocks.alive() == []


def test_several_threads_never_get_the_same_memory():
    pool = ArrayPool()
    wrong = []

    def use(number):
        for _ in range(200):
            array = pool.take(SHAPE, DTYPE)
            array[:, :8] = number
            if (array[:, :8] != number).any():
                wrong.append(number)

    run_at_once(use, range(4))
    assert wrong == []
