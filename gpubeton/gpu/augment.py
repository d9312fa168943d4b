"""Augmenter: launches the kernels that turn decoded images into what the network reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.gpu.arena import round_up
from gpubeton.gpu.device import Device, Memory, Stream
from gpubeton.plan.draws import HEIGHT, WIDTH
from gpubeton.plan.program import ImageProgram

# `rule` of kernels/taps.cu, the same numbers as on the CPU.
_RULES = {"bilinear": 0, "area": 1, "antialias": 2}

_BIT_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32}

_AXES = 2
_THREADS = 128
# Of plant.cu: threads for each image.
_PLACES = 3
# Of augment.cu: output rows that a block makes.
_ROWS = 8


@dataclass(frozen=True)
class Images:
    """The images of one output, as the kernels find them.

    Parameters
    ----------
    count : int
        Number of images N.
    pictures, draws, status, most : int
        Addresses on the device: PICTURE (N,), int32 (N, columns), int32 (N,), int32 (N, 2), the last two of zeros.
    columns : int
        Numbers in a row of draws.
    most_taps : int
        Upper bound of the taps of an output pixel along an axis; see `most_taps`.
    out : int
        Address of the output batch.
    nonce : int
        What the sentinel was made of.
    """

    count: int
    pictures: int
    draws: int
    columns: int
    status: int
    most: int
    most_taps: int
    out: int
    nonce: int


class Augmenter:
    """The constants of a loader's programs on the device, and the launches that use them.

    Parameters
    ----------
    device : Device
        Where.
    programs : sequence of ImageProgram
        The programs that run there.
    stream : Stream
        On which the constants are sent; waited for.
    """

    def __init__(self, device: Device, programs: Sequence[ImageProgram], stream: Stream) -> None:
        self._device = device
        self._programs = list(programs)
        self._constants: list[tuple[Memory, Memory]] = []
        for program in programs:
            self._constants.append((self._put(table_of(program), stream), self._put(program.fills, stream)))

    def taps_nbytes(self, program: int, count: int, most_taps: int) -> int:
        """Bytes that the weights of `count` images of a program take."""
        return sum(_taps_layout(self._programs[program], count, most_taps))

    def plant(self, pictures: int, count: int, nonce: int, stream: Stream) -> None:
        """Write the sentinel into the guarded images; it is there when the stream is done.

        Parameters
        ----------
        pictures : int
            Address of the images, PICTURE (count,).
        count : int
            Number of images.
        nonce : int
            Makes this sentinel another than those before.
        stream : Stream
            Where.
        """
        if count:
            arguments = [np.uint64(pictures), np.int32(count), np.uint32(nonce)]
            self._device.launch("plant", (-(-count * _PLACES // _THREADS), 1, 1), (_THREADS, 1, 1), arguments, stream)

    def augment(self, program: int, images: Images, taps: int, stream: Stream) -> None:
        """Resample, flip, paint, normalise and store the images of one output.

        Parameters
        ----------
        program : int
            Which program.
        images : Images
            The images.
        taps : int
            Address of scratch memory, see `taps_nbytes`.
        stream : Stream
            Where.
        """
        if images.count == 0:
            return
        own = self._programs[program]
        side = max(own.height, own.width)
        first_nbytes, weights_nbytes, _ = _taps_layout(own, images.count, images.most_taps)
        first, weights, numbers = (
            np.uint64(taps),
            np.uint64(taps + first_nbytes),
            np.uint64(taps + first_nbytes + weights_nbytes),
        )
        size = np.int32(own.height), np.int32(own.width)
        count, most = np.int32(images.count), np.int32(images.most_taps)
        draws, columns = np.uint64(images.draws), np.int32(images.columns)
        rule = np.int32(_RULES[own.interpolation])
        self._device.launch(
            "taps",
            (-(-side // _THREADS), _AXES, images.count),
            (_THREADS, 1, 1),
            [draws, columns, rule, *size, count, np.int32(side), most, first, weights, numbers, np.uint64(images.most)],
            stream,
        )
        table, fills = self._constants[program]
        self._device.launch(
            "augment",
            (-(-own.height // _ROWS), images.count, 1),
            (_THREADS, 1, 1),
            [
                np.uint64(images.pictures), draws, columns, first, weights, numbers, np.uint64(images.most),
                np.int32(side), most,
                *size, count, np.uint64(fills.address), np.uint64(table.address), np.int32(item_size(own)),
                np.uint32(images.nonce), np.uint64(images.out), np.uint64(images.status),
            ],
            stream,
        )  # fmt: skip

    def free(self) -> None:
        """Free the constants; nobody may be using them."""
        for table, fills in self._constants:
            table.free()
            fills.free()

    def _put(self, array: NDArray[Any], stream: Stream) -> Memory:
        """Copy an array to the device."""
        pinned = self._device.allocate_pinned(array.nbytes)
        pinned.array[: array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        memory = self._device.allocate(array.nbytes)
        self._device.copy(memory.address, pinned.address, array.nbytes, stream)
        stream.synchronize()
        pinned.free()
        return memory


def item_size(program: ImageProgram) -> int:
    """Bytes of one output value of a program."""
    return 1 if program.table is None else int(program.table.itemsize)


def table_of(program: ImageProgram) -> NDArray[np.uint32]:
    """Give the output value of each level and channel, as bits.

    Parameters
    ----------
    program : ImageProgram
        The program.

    Returns
    -------
    ndarray of uint32, shape (256, 3)
        Bit patterns; the levels themselves where the program has no table.
    """
    if program.table is None:
        return np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)
    bits = np.ascontiguousarray(program.table).view(_BIT_PATTERNS[program.table.itemsize])
    return bits.astype(np.uint32)


def most_taps(draws: NDArray[np.int32], program: ImageProgram) -> int:
    """Bound the taps of an output pixel along an axis.

    Parameters
    ----------
    draws : ndarray of int32, shape (N, columns)
        The crops.
    program : ImageProgram
        The size that they get.

    Returns
    -------
    int
        An even upper bound, over all ways to interpolate.
    """
    if len(draws) == 0:
        return 2
    ratio = max(draws[:, HEIGHT].max() / program.height, draws[:, WIDTH].max() / program.width, 1.0)
    return 2 * math.ceil(float(ratio)) + 2


def _taps_layout(program: ImageProgram, count: int, most: int) -> tuple[int, int, int]:
    """Bytes of first source pixels, weights and numbers of taps, as kernels/taps.cu writes them."""
    entries = count * _AXES * max(program.height, program.width)
    return round_up(4 * entries), round_up(2 * most * entries), round_up(4 * entries)
