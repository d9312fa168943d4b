"""Mosaics: images made of windows of several images of their batch.

A mosaic is a row of four tiles of seven integers: the row of the batch from which the tile comes, the first row and
column of its window there, and its place in the result, (top, left, bottom, right), which may be empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.image_batch import as_nhwc, writable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

TILES = 4
TILE_COLUMNS = 7
#: Columns of a tile.
PARTNER, WINDOW, PLACE = 0, slice(1, 3), slice(3, 7)


def make_mosaics(
    batch: Any,  # (N, H, W, C) or (N, C, H, W): the images, of any type
    tiles: NDArray[np.int32],  # (N, TILES, TILE_COLUMNS)
    take: Callable[..., Any],  # take(shape, dtype) gives memory for arrays
) -> Any:
    """Put the tiles of each image together, in new memory."""
    import torch

    result = take(batch.shape, batch.dtype) if isinstance(batch, np.ndarray) else torch.empty_like(batch)
    images, mosaics = as_nhwc(writable(batch)), as_nhwc(writable(result))
    for mosaic, row in zip(mosaics, tiles.tolist(), strict=True):
        for partner, y, x, top, left, bottom, right in row:
            if top < bottom and left < right:
                mosaic[top:bottom, left:right] = images[partner, y : y + bottom - top, x : x + right - left]
    return result
