"""Gathers: rows of bytes to be copied to the device, as `kernels/gather.cu` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.gpu.device import Device, Stream

if TYPE_CHECKING:
    from gpubeton.gpu.placement import Sent

GATHER = np.dtype(
    [
        ("source", "<u8"),  # first byte of the first row, in page-locked memory or on the device
        ("target", "<u8"),  # where it goes, on the device
        ("source_pitch", "<i4"),  # bytes from one row to the next
        ("target_pitch", "<i4"),
        ("row_bytes", "<i4"),  # bytes to be copied of each row
        ("rows", "<i4"),
    ]
)
"""The rows of one image; `struct Gather` of ``kernels/gather.cu``, 32 bytes."""

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
