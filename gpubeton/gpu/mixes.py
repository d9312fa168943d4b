"""Mixes: launches the kernel that mixes the images of a batch of levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpubeton.gpu.device import Device, Stream

_THREADS = 128
# Bytes of output of an image that a block of mix.cu goes through.
_BYTES_PER_BLOCK = 8192


@dataclass(frozen=True)
class Mixes:
    """A batch of levels on the device, and how its images are mixed.

    Parameters
    ----------
    count : int
        Number of images N.
    height, width : int
        Size of each in pixels.
    levels : int
        Address of the levels, uint8 (N, height, width, 3).
    rows : int
        Address of int32 (N, MIX_COLUMNS), as `ImageProgram.draw_mixes` gives them.
    """

    count: int
    height: int
    width: int
    levels: int
    rows: int


def mix_images(device: Device, mixes: Mixes, table: int, item_size: int, out: int, stream: Stream) -> None:
    """Mix the images of a batch, and write them as what the network reads.

    Parameters
    ----------
    device : Device
        Where.
    mixes : Mixes
        The batch.
    table : int
        Address of the output value of each level and channel, uint32 (256, 3), see `gpubeton.gpu.augment.table_of`.
    item_size : int
        Bytes of an output value: 1, 2 or 4.
    out : int
        Address of the output, (N, height, width, 3) of such values; other memory than the levels'.
    stream : Stream
        In whose order.
    """
    if mixes.count == 0:
        return
    arguments = [
        np.uint64(mixes.levels),
        np.uint64(mixes.rows),
        np.int32(mixes.height),
        np.int32(mixes.width),
        np.int32(mixes.count),
        np.uint64(table),
        np.int32(item_size),
        np.uint64(out),
    ]
    nbytes = 3 * mixes.height * mixes.width * item_size
    device.launch("mix", (-(-nbytes // _BYTES_PER_BLOCK), mixes.count, 1), (_THREADS, 1, 1), arguments, stream)
