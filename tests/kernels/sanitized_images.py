"""Runs the kernels that make images, compiled with sanitizers, over arrays with poisoned memory around them.

A separate program: the address sanitizer has to be loaded before Python. `test_sanitized_images.py` starts it.
Other tests compare the results with the CPU; here they only have to be the same in every order of threads.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from gpubeton._gpu.launch import GATHER, PICTURE
from gpubeton._plan.draw_rows import DRAW_COLUMNS, FLIP, NUM_PAINTS, PAINT_COLUMNS, SHIFT_X, SHIFT_Y, TOP, WIDTH
from tests.kernels.host_build import ORDERS, HostKernels
from tests.kernels.launching import RULES, Batch, address, ints, launch_batch
from tests.kernels.sanitized_steps import SanitizedDevice, unguarded

THREADS = (128, 1, 1)
PAINTS = 2

#: Height and width of the source, of the output; distance of rows is a multiple of.
SHAPES = [
    ((1, 1), (1, 1), 16),
    ((1, 1), (33, 5), 16),
    ((5, 7), (8, 8), 1),
    ((50, 60), (17, 300), 16),
    ((90, 700), (9, 31), 16),
    ((90, 700), (9, 31), 3),
    ((40, 3000), (3, 3), 16),
    ((2500, 2), (4, 1), 16),
]


def draws_of(generator, count, source, size, fills):
    """Rows of draws: the whole image, one pixel of it, then anything."""
    draws = np.zeros((count, DRAW_COLUMNS + PAINTS * PAINT_COLUMNS), np.int32)
    for i, row in enumerate(draws):
        crop = source if i == 0 else (1, 1) if i == 1 else generator.integers(1, np.array(source) + 1)
        corner = generator.integers(0, np.array(source) - crop + 1)
        row[TOP : WIDTH + 1] = *corner, *crop
        row[FLIP], row[NUM_PAINTS] = i % 2, i % (PAINTS + 1)
        row[[SHIFT_Y, SHIFT_X]] = generator.integers(-3, 4, 2)
        paints = row[DRAW_COLUMNS:].reshape(PAINTS, PAINT_COLUMNS)
        paints[:, :4] = generator.integers(-3, max(size) + 4, (PAINTS, 4))
        paints[:, 4] = generator.integers(0, fills, PAINTS)
    return draws


def make_images(kernels, order, shape, rule, item_size):
    """Plant and augment, once each; returns all that they wrote."""
    generator = np.random.default_rng(rule)
    source, size, pitch = shape
    count, most = 4, 4 * -(-max(source) // min(size)) + 4
    draws = draws_of(generator, count, source, size, 3)
    pictures, memory = np.zeros(count, PICTURE), []
    for i in range(count):
        between = -(-3 * source[1] // pitch) * pitch
        nbytes = source[0] * between - (between - 3 * source[1] if pitch % 16 else 0)
        memory.append(np.zeros(nbytes, np.uint8))
        memory[i][:] = generator.integers(0, 256, nbytes, np.uint8)
        assert memory[i].ctypes.data % 16 == 0, "as the kernel's fast path wants it"
        pictures[i] = (memory[i].ctypes.data, between, *source, i, i % 2, 0)
    kernels.launch("canary", (1, 1, 1), THREADS, [address(pictures), *ints(count), np.uint32(9)], order)

    fills, table = np.arange(9, dtype=np.uint8).reshape(3, 3), np.arange(768, dtype=np.uint32).reshape(256, 3)
    batch = Batch(pictures, draws, size, rule, most, fills, table=table, item_size=item_size, nonce=9)
    result = launch_batch(batch, device=SanitizedDevice(kernels, order), place=unguarded)
    assert result.status == [0, 1, 0, 1]
    # The others begin with canaries, which are made of addresses.
    return [result.first, result.weights, result.numbers, result.most, result.out[::2]]


def copy_rows(kernels, order):
    """Rows at every alignment."""
    generator = np.random.default_rng(0)
    table, memory, sources = np.zeros(64, GATHER), [], []
    for i in range(64):
        row_bytes, rows = int(generator.integers(0, 70)) if i % 4 else 9000, int(generator.integers(1, 4))
        gap = int(generator.integers(0, 9))
        nbytes = (rows - 1) * (row_bytes + gap) + row_bytes
        source, target = np.zeros(nbytes + i % 16, np.uint8), np.zeros(nbytes + i // 4, np.uint8)
        source[:] = generator.integers(0, 256, source.size)
        begin = source.ctypes.data + i % 16, target.ctypes.data + i // 4
        table[i] = (*begin, row_bytes + gap, row_bytes + gap, row_bytes, rows)
        memory.append(target)
        sources.append(source)
    kernels.launch("gather", (128, 1, 1), THREADS, [address(table), *ints(64)], order)
    return memory


def run(kernels, rules):
    """All of it, in each order."""
    for shape in SHAPES:
        for rule in rules:
            for item_size in (1, 2, 4):
                results = [make_images(kernels, order, shape, rule, item_size) for order in ORDERS]
                assert all(
                    np.array_equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True)
                )
    copied = [copy_rows(kernels, order) for order in ORDERS]
    assert all(np.array_equal(*pair) for other in copied[1:] for pair in zip(copied[0], other, strict=True))


if __name__ == "__main__":
    library, *signed = sys.argv[1:]
    run(HostKernels(Path(library)), [RULES["bicubic"]] if signed else range(3))
    print("done")
