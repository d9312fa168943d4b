"""Pack: what a GPU is to read, copied into page-locked memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.compile import compiled
from gpubeton.cpu.memory import copy
from gpubeton.plan.draws import HEIGHT, LEFT, TOP, WIDTH

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array


@compiled
def pack_regions(address: Array, size: Array, target: Array) -> None:
    """Copy regions.

    Parameters
    ----------
    address, size : ndarray of uint64, shape (N,)
        Where each is in memory, and its bytes.
    target : ndarray of uint64, shape (N,)
        Where each is copied to.
    """
    for i in range(address.shape[0]):
        copy(int(target[i]), int(address[i]), int(size[i]))


@compiled
def pack_crops(address: Array, width: Array, draws: Array, target: Array, pitch: Array) -> None:
    """Copy the crops of raw-stored images, and nothing else of them.

    Parameters
    ----------
    address : ndarray of uint64, shape (N,)
        First pixel of each image, uint8 RGB.
    width : ndarray of int32, shape (N,)
        Its width in pixels.
    draws : ndarray of int32, shape (N, columns)
        Their crop boxes, see `gpubeton.plan.draws`; inside the images.
    target : ndarray of uint64, shape (N,)
        Where each crop is copied to, ``pitch * HEIGHT`` bytes.
    pitch : ndarray of int32, shape (N,)
        Bytes from one row to the next there, at least those of a row. What lies between rows stays as it is.
    """
    for i in range(address.shape[0]):
        line = 3 * draws[i, WIDTH]
        source = int(address[i]) + (draws[i, TOP] * width[i] + draws[i, LEFT]) * 3
        for y in range(draws[i, HEIGHT]):
            copy(int(target[i]) + y * pitch[i], source + y * 3 * width[i], line)
