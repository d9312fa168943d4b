"""Launches of the kernels augment, canary, gather and mix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton.gpu.device_structs import KernelImages, num_sums
from gpubeton.gpu.gpu_kernels import augment_kernel
from gpubeton.gpu.memory_layout import round_up
from gpubeton.pipeline.interpolation import INTERPOLATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.gpu.device import Device, Memory, Stream
    from gpubeton.gpu.memory_layout import SentPixels
    from gpubeton.plan.program import ImageProgram

_THREADS = 128
# Bytes that a block of gather.cu copies.
_GATHERED_BYTES = 16384


def gather(device: Device, gathers: int, sent: SentPixels, stream: Stream) -> None:
    """Copy crops from pinned memory to the arena; only what is in the crop crosses the bus.

    Parameters
    ----------
    device : Device
        Where.
    gathers : int
        Address of `Sent.gathers` on the device.
    sent : Sent
        The crops.
    stream : Stream
        In whose order.
    """
    largest = int((3 * sent.height * sent.width).max())
    arguments = [np.uint64(gathers), np.int32(len(sent.rows))]
    grid = (-(-largest // _GATHERED_BYTES), len(sent.rows), 1)
    device.launch("gather", grid, (_THREADS, 1, 1), arguments, stream)


_THREADS = 128
# Bytes of output of an image that a block of mix.cu goes through.
_MIXED_BYTES = 8192


@dataclass(frozen=True)
class Mixes:
    """A batch of levels on the device, and how its images are mixed.

    Parameters
    ----------
    count : int
        Number of images N.
    height, width : int
        Size of each in pixels.
    levels : int
        Address of the levels, uint8 (N, height, width, 3).
    rows : int
        Address of int32 (N, MIX_COLUMNS), as `ImageProgram.draw_mixes` gives them.
    """

    count: int
    height: int
    width: int
    levels: int
    rows: int


def mix_images(device: Device, mixes: Mixes, table: int, item_size: int, out: int, stream: Stream) -> None:
    """Mix the images of a batch, and write them as what the network reads.

    Parameters
    ----------
    device : Device
        Where.
    mixes : Mixes
        The batch.
    table : int
        Address of the output value of each level and channel, uint32 (256, 3), see `gpubeton.gpu.launch.table_of`.
    item_size : int
        Bytes of an output value: 1, 2 or 4.
    out : int
        Address of the output, (N, height, width, 3) of such values; other memory than the levels'.
    stream : Stream
        In whose order.
    """
    if mixes.count == 0:
        return
    arguments = [
        np.uint64(mixes.levels),
        np.uint64(mixes.rows),
        np.int32(mixes.height),
        np.int32(mixes.width),
        np.int32(mixes.count),
        np.uint64(table),
        np.int32(item_size),
        np.uint64(out),
    ]
    nbytes = 3 * mixes.height * mixes.width * item_size
    device.launch("mix", (-(-nbytes // _MIXED_BYTES), mixes.count, 1), (_THREADS, 1, 1), arguments, stream)


_BIT_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32}

_AXES = 2
_THREADS = 128
# Of canary.cu: threads for each image.
_PLACES = 3
# Of augment.cu: what a block takes of an image, output rows when it resamples, otherwise pixels.
_ROWS = 8
_SUMMED_PIXELS = 16384
_COLOURED_PIXELS = 8192

_LEVELS = np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)


class _Constants(NamedTuple):
    """What one program needs on the device: output values of levels, colours of paints; and its kernel."""

    table: Memory
    fills: Memory
    kernel: str


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
                fills=self._put(program.fills, stream),
                kernel=augment_kernel(program),
            )
            for program in programs
        ]

    def taps_nbytes(self, program: int, count: int, most_taps: int) -> int:
        """Bytes that the weights of `count` images of a program take."""
        return sum(_taps_layout(self._programs[program], count, most_taps))

    def write_canaries(self, pictures: int, count: int, nonce: int, stream: Stream) -> None:
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
            self._device.launch("canary", (-(-count * _PLACES // _THREADS), 1, 1), (_THREADS, 1, 1), arguments, stream)

    def resampled_nbytes(self, program: int, count: int) -> int:
        """Bytes that `count` images of a program take before their colours are changed; 0 if they are not."""
        own = self._programs[program]
        return count * own.height * own.width * 3 if own.colours else 0

    def augment(self, program: int, images: KernelImages, taps: int, levels: int, stream: Stream) -> None:
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
        first_nbytes, weights_nbytes, _ = _taps_layout(own, images.count, images.most_taps)
        first, weights, numbers = taps, taps + first_nbytes, taps + first_nbytes + weights_nbytes
        # Mixing comes when the batch is complete: until then, levels are what is wanted.
        table, size_of_item = (0, 1) if own.mixing else (constants.table.address, item_size(own))
        contrasts = num_sums(own) if own.colours else None
        self._device.launch(
            constants.kernel,
            (images.count * blocks_of_image(own.height, own.width, contrasts), 1, 1),
            (_THREADS, 1, 1),
            [
                *map(np.uint64, (images.pictures, images.draws)),
                *map(np.int32, (images.columns, INTERPOLATIONS[own.interpolation], own.height, own.width)),
                *map(np.int32, (images.count, images.most_taps)),
                *map(np.uint64, (first, weights, numbers, images.most)),
                *map(np.uint64, (constants.fills.address, levels if own.colours else 0, images.colours)),
                np.int32(images.num_steps), np.uint64(images.sums),
                *map(np.int32, (contrasts or 0, own.early_paints, own.max_paints)),
                np.uint64(table), np.int32(size_of_item), np.uint32(images.nonce),
                *map(np.uint64, (images.out, images.status, images.tickets)),
            ],
            stream,
        )  # fmt: skip

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
            Address of int32 (count, MIX_COLUMNS), see `gpubeton.batch.mix`.
        out : int
            Address of the output batch.
        stream : Stream
            Where.
        """
        own = self._programs[program]
        mixes = Mixes(count, own.height, own.width, levels, rows)
        mix_images(self._device, mixes, self._constants[program].table.address, item_size(own), out, stream)

    def free(self) -> None:
        """Free the constants; nobody may be using them."""
        for constants in self._constants:
            for memory in (constants.table, constants.fills):
                memory.free()

    def _put(self, array: NDArray[Any], stream: Stream) -> Memory:
        """Copy an array to the device."""
        pinned = self._device.allocate_pinned(array.nbytes)
        pinned.array[: array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        memory = self._device.allocate(array.nbytes)
        self._device.copy(memory.address, pinned.address, array.nbytes, stream)
        stream.synchronize()  # wait point: constants sent
        pinned.free()
        return memory


def blocks_of_image(height: int, width: int, contrasts: int | None) -> int:
    """Count the blocks that an image has in kernels/augment.cu, in all phases.

    Parameters
    ----------
    height, width : int
        Its size when it is resampled.
    contrasts : int or None
        Changes of contrast that it may have; None if no colours are changed.

    Returns
    -------
    int
        How many.

    Examples
    --------
    >>> blocks_of_image(224, 224, None), blocks_of_image(224, 224, 1)
    (32, 43)
    """
    blocks = _AXES * -(-max(height, width) // _THREADS) + -(-height // _ROWS)
    if contrasts is None:
        return blocks
    pixels = height * width
    return blocks + contrasts * -(-pixels // _SUMMED_PIXELS) + -(-pixels // _COLOURED_PIXELS)


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
    """Bytes of first source pixels, weights and numbers of taps, as kernels/taps.cuh writes them."""
    entries = count * _AXES * max(program.height, program.width)
    return round_up(4 * entries), round_up(2 * most * entries), round_up(4 * entries)
