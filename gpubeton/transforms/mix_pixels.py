"""Mix pixels: each image of a batch with its partner, inside a box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.pipeline.compiler import Compiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

PARTNER, WEIGHT, TOP, LEFT, BOTTOM, RIGHT = range(6)
"""Columns of a mix; ``kernels/mix_row.cuh`` has the same."""

MIX_COLUMNS = 6

ONE = 1 << 15
"""The weight 1."""

_SHIFT = 15


def mix_levels(images: NDArray[np.uint8], mixes: NDArray[np.int32]) -> None:
    """Mix levels, in place.

    Parameters
    ----------
    images : ndarray of uint8, shape (N, H, W, C)
        Levels, C-contiguous.
    mixes : ndarray of int32, shape (N, MIX_COLUMNS)
        Partner, weight and box of each image, see `gpubeton.transforms.mixing`.

    Examples
    --------
    >>> images = np.array([[[[100] * 3]], [[[200] * 3]]], "uint8")
    >>> mix_levels(images, np.array([[1, ONE // 4, 0, 0, 1, 1], [0, ONE, 0, 0, 1, 1]], "int32"))
    >>> images[:, 0, 0, 0].tolist()
    [175, 200]
    """
    # From the last image on, so that those before it are still as they were; what is needed of the others is copied.
    late = np.flatnonzero(mixes[:, PARTNER] > np.arange(len(mixes)))
    channels = images.shape[3]
    rows = images.reshape(*images.shape[:2], channels * images.shape[2])
    _compiled(channels)(rows, mixes, rows[mixes[late, PARTNER]])


def mix_tensor(images: Any, mixes: NDArray[np.int32]) -> None:
    """Mix levels or values, in place, on any device.

    Parameters
    ----------
    images : torch.Tensor, shape (N, H, W, C)
        Levels as uint8, whose mix is rounded down, or floating-point values of any size.
    mixes : ndarray of int32, shape (N, MIX_COLUMNS)
        Partner, weight and box of each image.

    Examples
    --------
    >>> import torch
    >>> images = torch.tensor([[[[1.0] * 3]], [[[2.0] * 3]]])
    >>> mix_tensor(images, np.array([[1, ONE // 4, 0, 0, 1, 1], [0, ONE, 0, 0, 1, 1]], "int32"))
    >>> images[:, 0, 0, 0].tolist()
    [1.75, 2.0]
    """
    import torch

    columns = torch.from_numpy(mixes).to(images.device)[:, :, None, None, None].unbind(1)
    height, width = (torch.arange(side, device=images.device) for side in images.shape[1:3])
    rows, places = height[:, None, None], width[:, None]
    inside = (rows >= columns[TOP]) & (rows < columns[BOTTOM]) & (places >= columns[LEFT]) & (places < columns[RIGHT])
    own, other = images, images[columns[PARTNER].view(-1).long()]
    # Of levels this is exact: a weight has 15 binary digits, a level 8, and float32 24.
    weight = columns[WEIGHT].to(torch.float32) / ONE
    mixed = weight * own + (1 - weight) * other
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
                own = images[number, y, channels * mixes[number, LEFT] : channels * mixes[number, RIGHT]]
                other = partner[y, channels * mixes[number, LEFT] : channels * mixes[number, RIGHT]]
                for x in range(len(own)):
                    mixed = np.int32(np.int32(weight * own[x]) + np.int32(rest * other[x])) >> _SHIFT
                    own[x] = mixed

    return Compiler.compile(mix)
