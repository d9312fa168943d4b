"""Steps carried out on one image, by their compiled code, between bytes that must not change."""

from __future__ import annotations

import numpy as np

from gpubeton._batch.run_steps import STEP_FUNCTIONS
from gpubeton._batch.step_code import addresses_of, carry_out, image_nbytes, layout_of, memory_nbytes
from gpubeton._batch.step_rows import fill_columns, step_kinds, step_rows, words
from gpubeton._compile.compile import compiled

GUARD = 64


def carried_out(image, rows):
    """The image, (H, W, C), after step rows, (S, STEP_COLUMNS)."""
    kinds = set(step_kinds(rows[None]).ravel().tolist())
    num_bytes = *[image_nbytes(*image.shape, image.itemsize)] * 2, memory_nbytes(*image.shape, kinds)
    buffers = [np.random.default_rng(0).integers(0, 256, count + 2 * GUARD, np.uint8) for count in num_bytes]
    before = [buffer.copy() for buffer in buffers]
    buffers[0][GUARD : GUARD + image.nbytes] = np.ascontiguousarray(image).reshape(-1).view(np.uint8)
    addresses = [buffer[GUARD:].ctypes.data for buffer in buffers]
    layout = layout_of(*image.shape, image.dtype)
    listed = np.ascontiguousarray(rows.reshape(-1))
    result = _carry_out(listed, len(rows), addresses_of(STEP_FUNCTIONS, kinds), *addresses, layout)
    for old, new in zip(before, buffers, strict=True):
        assert np.array_equal(old[:GUARD], new[:GUARD])
        assert np.array_equal(old[-GUARD:], new[-GUARD:])
    levels = buffers[addresses.index(result)][GUARD : GUARD + image.nbytes]
    return levels.view(image.dtype).reshape(image.shape)


@compiled
def _carry_out(rows, count, addresses, image, other, memory, layout):
    return carry_out(rows, 0, count, addresses, image, other, memory, layout.ctypes.data)


def row_of(kind, *parameters):
    """The rows of one step of an image."""
    return step_rows(kind, np.array([parameters], np.int64).astype(np.int32))[0]


def warp_row(kind, fill, numbers, *others):
    """The rows of a warp of an image."""
    columns = [fill_columns(fill), words(np.array(numbers, np.int64)), np.array(others, np.int32)]
    return step_rows(kind, np.concatenate(columns)[None])[0]


KINDS = {"rgb": (3, np.uint8), "gray": (1, np.uint8), "rgba": (4, np.uint8), "wide": (3, np.uint16)}


def noise(random, height, width, kind):
    """An image of random levels, and a fill."""
    channels, dtype = KINDS[kind]
    levels = random.integers(0, np.iinfo(dtype).max + 1, (height * width + 1, channels)).astype(dtype)
    return levels[1:].reshape(height, width, channels), levels[0].tolist()


def size_of(random, number):
    """A height and a width: most are small, some are large."""
    most = 600 if number % 16 == 5 else 70
    return tuple(random.integers(1, most + 1, 2).tolist())
