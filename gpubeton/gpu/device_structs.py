"""The structs that kernels read from device memory, as numpy dtypes."""

from __future__ import annotations

import numpy as np

PICTURE = np.dtype(
    [
        ("address", "<u8"),  # first byte of the first row, uint8 RGB, interleaved
        ("pitch", "<i4"),  # bytes from one row to the next
        ("height", "<i4"),  # in pixels
        ("width", "<i4"),
        ("row", "<i4"),  # of the batch that the image belongs to
        ("is_guarded", "<i4"),  # 1 if a sentinel was planted in it
        ("reserved", "<i4"),
    ]
)
"""A decoded image; `struct Picture` of ``kernels/picture.cuh``, 32 bytes."""

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
"""Rows of bytes to copy to the device; `struct Gather` of ``kernels/gather.cu``, 32 bytes."""
