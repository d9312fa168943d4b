"""torchvision's rule of random resized crops, for one image, in numpy's functions."""

from __future__ import annotations

import math

import numpy as np


def crop(height, width, scale, ratio, numbers):
    """Top, left, height and width by the 40 numbers of ten tries."""
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for area, aspect, top, left in numbers.reshape(10, 4):
        pixels = float(height) * width * (scale[0] + area * (scale[1] - scale[0]))
        shape = np.exp(low + aspect * (high - low))
        rows, columns = np.rint(np.sqrt(pixels / shape)), np.rint(np.sqrt(pixels * shape))
        if 0 < rows <= height and 0 < columns <= width:
            return [int(top * (height - rows + 1)), int(left * (width - columns + 1)), int(rows), int(columns)]
    rows, columns = height, width
    if width / height < ratio[0]:
        rows = max(int(np.rint(width / ratio[0])), 1)
    elif width / height > ratio[1]:
        columns = max(int(np.rint(height * ratio[1])), 1)
    return [(height - rows) // 2, (width - columns) // 2, rows, columns]
