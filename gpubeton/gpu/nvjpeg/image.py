"""IMAGE: where nvJPEG writes a decoded image."""

from __future__ import annotations

import numpy as np

IMAGE = np.dtype([("channel", "<u8", (4,)), ("pitch", "<u8", (4,))], align=True)
"""``nvjpegImage_t``, 64 bytes: address of the first row of each plane and bytes from one row to the next.

Interleaved formats (RGBI) use the first plane alone; the others are 0.
"""
