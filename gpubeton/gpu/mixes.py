"""Mixes: launches the kernel that mixes the images of a batch with each other."""

from __future__ import annotations

import numpy as np

from gpubeton.gpu.device import Device, Stream

_THREADS = 128
# Bytes of output that a block of mix.cu makes.
_BYTES_PER_BLOCK = 8192


def mix_levels(
    device: Device,
    levels: int,
    mixes: int,
    count: int,
    size: tuple[int, int],
    table: int,
    item_size: int,
    out: int,
    stream: Stream,
) -> None:
    """Mix a batch of levels, and write it as what the network reads.

    Parameters
    ----------
    device : Device
        Where.
    levels : int
        Address of the levels, uint8 (count, height, width, 3).
    mixes : int
        Address of int32 (count, MIX_COLUMNS), see `gpubeton.transforms.mixing`.
    count : int
        Number of images.
    size : tuple of int
        Height and width of an image.
    table : int
        Address of the output value of each level and channel, uint32 (256, 3).
    item_size : int
        Bytes of an output value: 1, 2 or 4.
    out : int
        Address of the output; other memory than the levels.
    stream : Stream
        In whose order.
    """
    if count == 0:
        return
    height, width = size
    arguments = [
        np.uint64(levels),
        np.uint64(mixes),
        np.int32(height),
        np.int32(width),
        np.int32(count),
        np.uint64(table),
        np.int32(item_size),
        np.uint64(out),
    ]
    grid = (-(-3 * height * width * item_size // _BYTES_PER_BLOCK), count, 1)
    device.launch("mix", grid, (_THREADS, 1, 1), arguments, stream)
