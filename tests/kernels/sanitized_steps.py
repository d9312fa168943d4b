"""Runs the kernels of steps and mixes, compiled with sanitizers, over arrays with poisoned memory around them.

A separate program: the address sanitizer has to be loaded before Python. `test_sanitized_steps.py` starts it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from gpubeton._gpu.launch import mix_images
from tests.kernels.host_build import ORDERS, HostKernels
from tests.kernels.launching import run_kernel
from tests.kernels.random_steps import hostile_rows, random_rows

SIZES = [(20, 32), (7, 9), (3, 4), (31, 77), (1, 1)]
ITEMS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


class SanitizedDevice:
    """Launches on the host; see `host_device.HostDevice`."""

    def __init__(self, kernels, order):
        self.kernels, self.order = kernels, order

    def launch(self, kernel, grid, block, arguments, stream):
        self.kernels.launch(kernel, grid, block, arguments, order=self.order, seed=1)


def unguarded(array, shift=0):
    """A copy of the array, with poisoned memory before and after it."""
    return np.array(array)


def run(kernels):
    generator = np.random.default_rng(0)
    table = generator.integers(0, 1 << 32, (256, 3), np.uint32)
    for size, item_size, order in (
        (size, item_size, order) for size in SIZES for item_size in ITEMS for order in ORDERS
    ):
        device = SanitizedDevice(kernels, order)
        images = generator.integers(0, 256, (5, *size, 3), np.uint8)
        out = np.empty(images.shape, ITEMS[item_size])
        for rows in (random_rows(generator, 5, 14, size), hostile_rows(generator, 5, size)):
            run_kernel(images, rows, table, item_size, device=device, place=unguarded)
        mixes = np.zeros((5, 6), np.int32)
        mixes[:, 0], mixes[:, 1] = generator.integers(0, 5, 5), generator.integers(0, (1 << 15) + 1, 5)
        mixes[:, 2:] = np.sort(generator.integers(0, np.array(size) + 1, (5, 2, 2)), axis=1).reshape(5, 4)
        mixes[0, 2:] = 0, 0, *size
        arguments = images.ctypes.data, mixes.ctypes.data, table.ctypes.data, item_size, out.ctypes.data
        mix_images(device, (5, *size), *arguments, None)


if __name__ == "__main__":
    run(HostKernels(Path(sys.argv[1])))
    print("done")
