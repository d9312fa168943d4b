"""A device whose kernels run on the host at once, for what launches them."""

from __future__ import annotations

import numpy as np

from gpubeton._gpu.kernels import function_of
from tests.cpu.guarded import guarded
from tests.kernels.host_build import FORWARD, host_kernels, kernels_of


class HostDevice:
    """Replaces `gpubeton._gpu.cuda.Device` where only kernels are launched.

    Parameters
    ----------
    order : int
        In which order blocks and threads run, see `host_build`.
    seed : int
        Of the random order.
    blocks : int, optional
        Number of blocks, in place of the requested one: a multiple of the number of images.
    """

    def __init__(self, order=FORWARD, seed=0, blocks=None):
        self.order, self.seed, self.blocks = order, seed, blocks
        self.launched = []

    def launch(self, kernel, grid, block, arguments, stream):
        assert stream == "stream"
        self.launched.append(kernel)
        grid = grid if self.blocks is None else (self.blocks, 1, 1)
        kernels = host_kernels() if kernel == function_of(kernel) else kernels_of(kernel)
        kernels.launch(kernel, grid, block, arguments, order=self.order, seed=self.seed)


def placed(array, shift=0):
    """Copy the array to `shift` bytes after an address that is a multiple of 16, and right before unreadable memory."""
    room = np.zeros(-(-(array.nbytes + shift) // 16) * 16, np.uint8)
    room[shift : shift + array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
    result = guarded(room, alignment=16)[shift : shift + array.nbytes]
    return result.view(array.dtype).reshape(array.shape)


def table_of_bits(item_size):
    """A table of different values for each level and channel, uint32 (256, 3)."""
    bits = np.random.default_rng(item_size).permutation(1 << 16)[: 256 * 3].reshape(256, 3).astype(np.uint32)
    return {1: bits & 0xFF, 2: bits, 4: bits << 16 | bits[::-1]}[item_size]


def looked_up(levels, table, item_size):
    """What a kernel has to write for levels."""
    return table[levels, np.arange(3)].astype({1: np.uint8, 2: np.uint16, 4: np.uint32}[item_size])


def address(array):
    """Its address, as `Device.launch` is given it by launchers."""
    return array.ctypes.data
