"""Mix: each image of a batch with its partner, inside a box, and the labels likewise; and mosaics.

A mix is a row of six integers. Inside its box an image is ``weight * own + (1 - weight) * partner``, weight in units
of 2**-15 and the result rounded down; outside it stays as it is.

A mosaic is a row of four tiles of seven integers: the partner from which the tile comes, the first row and column of
its window there, and its place in the result, (top, left, bottom, right), which may be empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.color_formulas import ONE, SHIFT
from gpubeton._batch.image_batch import as_nhwc, as_tensor, writable
from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


# Columns of a mix; ``kernels/mix.cu`` has the same.
PARTNER, WEIGHT, TOP, LEFT, BOTTOM, RIGHT = range(6)
MIX_COLUMNS = 6

# Of the four tiles of a mosaic; `PARTNER` is their first column, too.
TILES, TILE_COLUMNS = 4, 7
WINDOW, PLACE = slice(1, 3), slice(3, 7)


def mix_images(batch: Any, mixes: NDArray[np.int32]) -> None:
    """Mix levels or floating-point values, in place: (N, MIX_COLUMNS) partner, weight and box of each image."""
    import torch

    tensor = as_tensor(as_nhwc(batch))
    is_compiled = Compiler.is_enabled and tensor.device.type == "cpu" and tensor.is_contiguous()
    if is_compiled and tensor.dtype == torch.uint8:
        mix_levels(tensor.numpy(), mixes)
    else:
        mix_tensor(tensor, mixes)


def mix_levels(images: NDArray[np.uint8], mixes: NDArray[np.int32]) -> None:
    """Mix levels, (N, H, W, C), C-contiguous, in place."""
    # From the last image on, so that those before it are still as they were; later partners are copied first.
    late = np.flatnonzero(mixes[:, PARTNER] > np.arange(len(mixes)))
    channels = images.shape[3]
    rows = images.reshape(*images.shape[:2], channels * images.shape[2])
    _compiled(channels)(rows, mixes, rows[mixes[late, PARTNER]])


def mix_tensor(images: Any, mixes: NDArray[np.int32]) -> None:
    """Mix levels or values, (N, H, W, C), in place, on any device."""
    import torch

    columns = torch.from_numpy(mixes).to(images.device)[:, :, None, None, None].unbind(1)
    height, width = (torch.arange(side, device=images.device) for side in images.shape[1:3])
    rows, places = height[:, None, None], width[:, None]
    inside = (rows >= columns[TOP]) & (rows < columns[BOTTOM]) & (places >= columns[LEFT]) & (places < columns[RIGHT])
    first, other = images, images[columns[PARTNER].view(-1).long()]
    # Of levels this is exact: a weight has 15 binary digits, a level 8, and float32 24.
    weight = columns[WEIGHT].to(torch.float32) / ONE
    mixed = weight * first + (1 - weight) * other
    images.copy_(torch.where(inside, mixed.to(images.dtype), images))


def _compiled(channels: int) -> Callable[..., Any]:
    # On rows of C * W levels: a loop over them alone, without one over the channels inside, fills vector registers.
    def mix(images: Any, mixes: Any, saved: Any) -> None:
        left_over = len(saved)
        for number in range(len(images) - 1, -1, -1):
            weight = np.int32(mixes[number, WEIGHT])
            rest = np.int32(ONE - weight)
            partner = images[mixes[number, PARTNER]]
            if mixes[number, PARTNER] > number:
                left_over -= 1
                partner = saved[left_over]
            for y in range(mixes[number, TOP], mixes[number, BOTTOM]):
                line = images[number, y, channels * mixes[number, LEFT] : channels * mixes[number, RIGHT]]
                other = partner[y, channels * mixes[number, LEFT] : channels * mixes[number, RIGHT]]
                for x in range(len(line)):
                    mixed = np.int32(np.int32(weight * line[x]) + np.int32(rest * other[x])) >> SHIFT
                    line[x] = mixed

    return Compiler.compile(mix)


def mix_labels(labels: Any, mixes: NDArray[np.float64]) -> Any:
    """Return own label, partner's label and own share, float32 (N, 3), of labels (N,) or (N, 1) and mixes (N, 2)."""
    partner = mixes[:, 0].astype(np.intp)
    flat = labels.reshape(len(mixes))
    if isinstance(labels, np.ndarray):
        return np.stack([flat, flat[partner], mixes[:, 1]], axis=1).astype(np.float32)
    import torch

    share = torch.from_numpy(mixes[:, 1].astype(np.float32)).to(labels.device)
    other = flat[torch.from_numpy(partner).to(labels.device)]
    return torch.stack([flat.to(torch.float32), other.to(torch.float32), share], dim=1)


def make_mosaics(batch: Any, tiles: NDArray[np.int32], take: Callable[..., Any]) -> Any:
    """Put the tiles, (N, TILES, TILE_COLUMNS), of each image together; `take(shape, dtype)` gives memory of arrays."""
    import torch

    result = take(batch.shape, batch.dtype) if isinstance(batch, np.ndarray) else torch.empty_like(batch)
    images, mosaics = as_nhwc(writable(batch)), as_nhwc(writable(result))
    for mosaic, row in zip(mosaics, tiles.tolist(), strict=True):
        for partner, y, x, top, left, bottom, right in row:
            if top < bottom and left < right:
                mosaic[top:bottom, left:right] = images[partner, y : y + bottom - top, x : x + right - left]
    return result
