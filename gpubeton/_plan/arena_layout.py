"""Layout of a GPU's memory for images: offsets of decoded images and of those that are sent there, bytes of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._batch.step_rows import BLUR, MIXING, MOVING
from gpubeton._compile.compile import compiled
from gpubeton._plan.draw_rows import FLIP, HEIGHT, LEFT, NUM_PAINTS, TOP, WIDTH
from gpubeton._plan.routes import DecodeRoute

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    Array = NDArray[Any]

ALIGNMENT = 256
"""Images begin at multiples of this, as allocations of the device do."""

PITCH = 32
"""Rows of images begin at multiples of this, for the speed of kernels; those that the CPU makes have no gaps."""

_ENTRIES, _CPU, _BYTES = map(int, (DecodeRoute.ENTRIES, DecodeRoute.CPU, DecodeRoute.BYTES))

# Words of `PICTURE` in gpubeton/_gpu/launch.py.
_WORDS = 8
_PITCH, _HEIGHT, _WIDTH, _ROW = range(2, 6)


class ArenaLayout(NamedTuple):
    """Offsets of images in an arena."""

    offset: NDArray[np.uint64]  # (N,): first byte of each
    pitch: NDArray[np.int32]  # (N,): bytes from one row to the next
    nbytes: int  # from the arena's beginning to the end of the last


def lay_out_images(
    height: NDArray[Any],  # (N,) integers
    width: NDArray[Any],  # (N,) integers
    *,
    start: int = 0,
) -> ArenaLayout:
    """Place RGB images one after another, from `start`."""
    pitch = (3 * width.astype(np.int64) + (PITCH - 1)) & -PITCH
    size, start = round_up(pitch * height), round_up(start)
    stop = start + size.cumsum()
    return ArenaLayout((stop - size).astype(np.uint64), pitch.astype(np.int32), int(stop[-1]) if len(stop) else start)


def round_up(nbytes: Any) -> Any:
    """Round a number of bytes, or an array of them, up to a multiple of `ALIGNMENT`."""
    return (nbytes + (ALIGNMENT - 1)) & -ALIGNMENT


JPEG_AXES = 4
"""Axes with taps of a JPEG: luma and chroma, each down and across."""


def taps_nbytes(count: int, side: int, most_taps: int, axes: int = 2) -> tuple[int, int, int]:
    """Bytes of first pixels, weights and numbers of taps, as kernels/taps.cuh writes them; `side` is the longer one."""
    entries = axes * count * side
    return round_up(4 * entries), round_up(2 * most_taps * entries), round_up(4 * entries)


def steps_nbytes(values: int, kinds: AbstractSet[int]) -> tuple[int, ...]:
    """Bytes of what kernels/image_steps.cu works with: levels, other images, blurred ones, mixtures, kept images."""
    moves, mixes = bool(kinds & MOVING), bool(kinds & MIXING)
    sizes = values, values * moves, 2 * values * (BLUR in kinds), 4 * values * mixes, values * mixes
    return tuple(map(round_up, sizes))


@compiled
def lay_out_pixels(
    routes: Array,  # (N,) int8
    height: int,  # of the output
    width: int,
    draws: Array,  # (N, columns) int32, C-contiguous, changed to draws from the pixels that are sent
    pictures: Array,  # (8 * N,) int32: zeros, PICTURE of each image, written but for the address
    within: Array,  # (N,) uint64, written: first byte of each image that is sent
    pitch: Array,  # (N,) int32, written, of these: bytes from one row to the next
) -> tuple[int, int, int]:
    """Place the pixels of one output; return the number of crops, their bytes, and the bytes of all."""
    crops, stop = 0, 0
    for i in range(len(routes)):
        words = pictures[_WORDS * i : _WORDS * (i + 1)]
        words[_ROW] = -1 if routes[i] == _ENTRIES else i
        if routes[i] == _BYTES:
            words[_HEIGHT], words[_WIDTH] = draws[i, HEIGHT], draws[i, WIDTH]
            words[_PITCH] = pitch[i] = (3 * draws[i, WIDTH] + PITCH - 1) & -PITCH
            draws[i, TOP] = draws[i, LEFT] = 0
            within[i] = stop
            stop += (pitch[i] * draws[i, HEIGHT] + ALIGNMENT - 1) & -ALIGNMENT
            crops += 1
    end_of_crops = stop
    for i in range(len(routes)):
        if routes[i] == _CPU:
            words = pictures[_WORDS * i : _WORDS * (i + 1)]
            words[_HEIGHT], words[_WIDTH] = height, width
            words[_PITCH] = pitch[i] = 3 * width
            draws[i, TOP] = draws[i, LEFT] = 0
            draws[i, HEIGHT], draws[i, WIDTH] = height, width
            draws[i, FLIP : NUM_PAINTS + 1] = 0
            within[i] = stop
            stop += 3 * width * height
    return crops, end_of_crops, (stop + ALIGNMENT - 1) & -ALIGNMENT
