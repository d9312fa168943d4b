"""Augmenter: launches the kernels that turn decoded images into what the network reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpubeton.gpu.arena import round_up
from gpubeton.gpu.colours import Colours, change_colours, num_sums, sum_grays
from gpubeton.gpu.device import Device, Memory, Stream
from gpubeton.gpu.images import Images
from gpubeton.gpu.mixes import Mixes, mix_images
from gpubeton.gpu.own_kernel import ColourKernels, colour_kernels
from gpubeton.plan.program import ImageProgram

# `rule` of kernels/taps.cu, the same numbers as on the CPU.
_RULES = {"bilinear": 0, "area": 1, "antialias": 2, "nearest": 4}

_BIT_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32}

_AXES = 2
_THREADS = 128
# Of plant.cu: threads for each image.
_PLACES = 3
# Of augment.cu: output rows that a block makes.
_ROWS = 8


_LEVELS = np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)


class _Constants(NamedTuple):
    """What one program needs on the device: output values of levels, levels themselves, colours of paints; kernels."""

    table: Memory
    levels: Memory
    fills: Memory
    kernels: ColourKernels


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
        self._constants = [
            _Constants(
                table=self._put(table_of(program), stream),
                levels=self._put(_LEVELS, stream),
                fills=self._put(program.fills, stream),
                kernels=colour_kernels(program),
            )
            for program in programs
        ]

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

    def levels_nbytes(self, program: int, count: int) -> int:
        """Bytes that `count` images of a program take before their colours are changed; 0 if they are not."""
        own = self._programs[program]
        return count * own.height * own.width * 3 if own.colours else 0

    def augment(self, program: int, images: Images, taps: int, levels: int, stream: Stream) -> None:
        """Resample, flip, paint, change colours, normalise and store the images of one output.

        Parameters
        ----------
        program : int
            Which program.
        images : Images
            The images.
        taps, levels : int
            Addresses of scratch memory, see `taps_nbytes` and `levels_nbytes`.
        stream : Stream
            Where.
        """
        if images.count == 0:
            return
        own, constants = self._programs[program], self._constants[program]
        # Mixing comes when the batch is complete: until then, levels are what is wanted.
        table, size = (constants.levels, 1) if own.mixing else (constants.table, item_size(own))
        if not own.colours:
            self._resample(program, images, taps, table.address, size, images.out, stream)
            return
        self._resample(program, images, taps, constants.levels.address, 1, levels, stream)
        colours = Colours(
            count=images.count,
            pixels=own.height * own.width,
            levels=levels,
            steps=images.colours,
            num_steps=images.num_steps,
            sums=images.sums,
            num_sums=num_sums(own),
            kernels=constants.kernels,
        )
        sum_grays(self._device, colours, stream)
        change_colours(self._device, colours, table.address, size, images.out, stream)
        if own.early_paints < own.max_paints:
            self._paint(program, images, table.address, size, stream)

    def mix(self, program: int, count: int, levels: int, rows: int, out: int, stream: Stream) -> None:
        """Mix a complete batch of levels, normalise and store it.

        Parameters
        ----------
        program : int
            Which program.
        count : int
            Number of images.
        levels : int
            Address of uint8 (count, height, width, 3).
        rows : int
            Address of int32 (count, MIX_COLUMNS), see `gpubeton.transforms.mixing`.
        out : int
            Address of the output batch.
        stream : Stream
            Where.
        """
        own = self._programs[program]
        mixes = Mixes(count, own.height, own.width, levels, rows)
        mix_images(self._device, mixes, self._constants[program].table.address, item_size(own), out, stream)

    def _paint(self, program: int, images: Images, table: int, size_of_item: int, stream: Stream) -> None:
        """Paint what comes behind the changes of colour."""
        own = self._programs[program]
        arguments = [
            np.uint64(images.draws),
            np.int32(images.columns),
            np.int32(own.early_paints),
            np.int32(own.max_paints),
            np.int32(own.height),
            np.int32(own.width),
            np.int32(images.count),
            np.uint64(self._constants[program].fills.address),
            np.uint64(table),
            np.int32(size_of_item),
            np.uint64(images.out),
        ]
        grid = (-(-own.height * own.width // _THREADS), images.count, 1)
        self._device.launch("paint", grid, (_THREADS, 1, 1), arguments, stream)

    def _resample(
        self, program: int, images: Images, taps: int, table: int, size_of_item: int, out: int, stream: Stream
    ) -> None:
        own = self._programs[program]
        side = max(own.height, own.width)
        first_nbytes, weights_nbytes, _ = _taps_layout(own, images.count, images.most_taps)
        starts = [taps, taps + first_nbytes, taps + first_nbytes + weights_nbytes]
        first, weights, numbers = map(np.uint64, starts)
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
        fills = self._constants[program].fills
        self._device.launch(
            "augment",
            (-(-own.height // _ROWS), images.count, 1),
            (_THREADS, 1, 1),
            [
                np.uint64(images.pictures), draws, columns, first, weights, numbers, np.uint64(images.most),
                np.int32(side), most, *size, count, np.uint64(fills.address), np.uint64(table),
                np.int32(size_of_item), np.uint32(images.nonce), np.uint64(out), np.uint64(images.status),
            ],
            stream,
        )  # fmt: skip

    def free(self) -> None:
        """Free the constants; nobody may be using them."""
        for constants in self._constants:
            for memory in (constants.table, constants.levels, constants.fills):
                memory.free()

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
        return _LEVELS
    bits = np.ascontiguousarray(program.table).view(_BIT_PATTERNS[program.table.itemsize])
    return bits.astype(np.uint32)


def _taps_layout(program: ImageProgram, count: int, most: int) -> tuple[int, int, int]:
    """Bytes of first source pixels, weights and numbers of taps, as kernels/taps.cu writes them."""
    entries = count * _AXES * max(program.height, program.width)
    return round_up(4 * entries), round_up(2 * most * entries), round_up(4 * entries)
