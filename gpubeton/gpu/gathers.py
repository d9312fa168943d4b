"""Gathers: rows of bytes to be copied to the device, as `kernels/gather.cu` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpubeton.gpu.device import Device, Stream
    from gpubeton.gpu.placement import Sent

_THREADS = 128
# Bytes that a block of gather.cu copies.
_BYTES_PER_BLOCK = 16384


def gather(device: Device, gathers: int, sent: Sent, stream: Stream) -> None:
    """Copy crops from pinned memory to the arena; only what is in the crop crosses the bus.

    Parameters
    ----------
    device : Device
        Where.
    gathers : int
        Address of `Sent.gathers` on the device.
    sent : Sent
        The crops.
    stream : Stream
        In whose order.
    """
    largest = int((3 * sent.height * sent.width).max())
    arguments = [np.uint64(gathers), np.int32(len(sent.rows))]
    grid = (-(-largest // _BYTES_PER_BLOCK), len(sent.rows), 1)
    device.launch("gather", grid, (_THREADS, 1, 1), arguments, stream)
