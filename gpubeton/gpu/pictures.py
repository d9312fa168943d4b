"""Pictures: where the decoded images of a batch are on the device, as the kernels read it."""

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
"""One image; `struct Picture` of ``kernels/picture.cuh``, 32 bytes."""
