"""Gathers: rows of bytes to be copied to the device, as `kernels/gather.cu` reads them."""

from __future__ import annotations

import numpy as np

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
