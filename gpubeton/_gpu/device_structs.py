"""Structs that kernels read from device memory, as numpy dtypes."""

from __future__ import annotations

import numpy as np

PICTURE = np.dtype(
    [
        ("address", "<u8"),  # first byte of the first row, uint8 RGB, interleaved
        ("pitch", "<i4"),  # bytes from one row to the next
        ("height", "<i4"),  # in pixels
        ("width", "<i4"),
        ("row", "<i4"),  # of the batch that the image belongs to; negative: another kernel makes it
        ("is_guarded", "<i4"),  # 1 if a canary was written to it
        ("reserved", "<i4"),
    ]
)
"""A decoded image; `struct Picture` of ``kernels/picture.cuh``, 32 bytes."""

GATHER = np.dtype(
    [
        ("source", "<u8"),  # first byte of the first row, in page-locked memory or on the device
        ("target", "<u8"),  # first byte on the device
        ("source_pitch", "<i4"),  # bytes from one row to the next
        ("target_pitch", "<i4"),
        ("row_bytes", "<i4"),  # bytes to copy of each row
        ("rows", "<i4"),
    ]
)
"""Rows of bytes to copy to the device; `struct Gather` of ``kernels/gather.cu``, 32 bytes."""

JPEG = np.dtype(
    [
        ("bytes", "<u8"),  # address of its first byte, which may not be there itself
        ("entries", "<u8"),  # address of ENTRY_DTYPE, even; those of the window are there
        ("quantization", "<u8"),  # address of uint8 (3, 64): factors of each component, by rows
        ("coefficients", "<u8"),  # addresses of the window's coefficients, samples, and samples resampled across
        ("samples", "<u8"),
        ("resampled", "<u8"),
        ("begin", "<u4"),  # its bytes are there from number `begin` to before `end`
        ("end", "<u4"),
        ("every", "<i4"),  # MCUs from one entry point to the next
        ("is_restarted", "<i4"),  # 1 if entry points are restart intervals
        ("height", "<i4"),  # in pixels
        ("width", "<i4"),
        ("components", "<i4"),
        ("luma_across", "<i4"),  # blocks of an MCU
        ("luma_down", "<i4"),
        ("first_row", "<i4"),  # the window, in MCUs
        ("first_column", "<i4"),
        ("rows", "<i4"),
        ("columns", "<i4"),
        ("row", "<i4"),  # of the batch that the image belongs to
    ]
)
"""A JPEG with entry points; `struct Jpeg` of ``kernels/jpeg.cuh``, 104 bytes."""
