"""Launches of the kernels augment, canary, gather and mix; Augmenter: the constants of programs on the device."""

from __future__ import annotations

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
# Bytes that a block of gather.cu copies; output bytes of an image that a block of mix.cu writes.
_GATHERED_BYTES = 16384
_MIXED_BYTES = 8192


def gather(device: Device, gathers: int, sent: SentPixels, stream: Stream) -> None:
    """Copy crops from pinned memory to the arena; only the crop crosses the bus."""
    largest = int((3 * sent.height * sent.width).max())
    arguments = [np.uint64(gathers), np.int32(len(sent.rows))]
    grid = (-(-largest // _GATHERED_BYTES), len(sent.rows), 1)
    device.launch("gather", grid, (_THREADS, 1, 1), arguments, stream)


def mix_images(
    device: Device,
    size: tuple[int, int, int],  # images, height, width
    levels: int,  # address of uint8 (count, height, width, 3)
    rows: int,  # address of int32 (count, MIX_COLUMNS), from `ImageProgram.draw_mixes`
    table: int,  # address of uint32 (256, 3), see `table_of`
    item_size: int,
    out: int,  # address of (count, height, width, 3); other memory than the levels
    stream: Stream,
) -> None:
    """Mix the images of a batch of levels, and write output values of 1, 2 or 4 bytes."""
    count, height, width = size
    if count == 0:
        return
    arguments = [
        *map(np.uint64, (levels, rows)),
        *map(np.int32, (height, width, count)),
        np.uint64(table),
        np.int32(item_size),
        np.uint64(out),
    ]
    nbytes = 3 * height * width * item_size
    device.launch("mix", (-(-nbytes // _MIXED_BYTES), count, 1), (_THREADS, 1, 1), arguments, stream)


_BIT_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32}

_AXES = 2
# Of canary.cu: threads for each image.
_PLACES = 3
# Of augment.cu: the part of an image for a block, output rows when it resamples, otherwise pixels.
_ROWS = 8
_SUMMED_PIXELS = 16384
_COLORED_PIXELS = 8192

_LEVELS = np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)


class _Constants(NamedTuple):
    """Of one program: output values of levels, colors of paints, and the kernel's name."""

    table: Memory
    fills: Memory
    kernel: str


class Augmenter:
    """The constants of a loader's programs on the device, and the launches that use them."""

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
        """Write canaries into the guarded images, in the stream's order."""
        if count:
            arguments = [np.uint64(pictures), np.int32(count), np.uint32(nonce)]
            self._device.launch("canary", (-(-count * _PLACES // _THREADS), 1, 1), (_THREADS, 1, 1), arguments, stream)

    def resampled_nbytes(self, program: int, count: int) -> int:
        """Bytes that `count` images of a program take before their colors are changed; 0 if they are not."""
        own = self._programs[program]
        return count * own.height * own.width * 3 if own.colors else 0

    def augment(self, program: int, images: KernelImages, taps: int, levels: int, stream: Stream) -> None:
        """Resample, flip, paint, change colors, normalise and store the images of one output."""
        if images.count == 0:
            return
        own, constants = self._programs[program], self._constants[program]
        first_nbytes, weights_nbytes, _ = _taps_layout(own, images.count, images.most_taps)
        first, weights, numbers = taps, taps + first_nbytes, taps + first_nbytes + weights_nbytes
        # Mixing needs the complete batch: until then the output is levels.
        table, size_of_item = (0, 1) if own.mixing else (constants.table.address, item_size(own))
        contrasts = num_sums(own) if own.colors else None
        self._device.launch(
            constants.kernel,
            (images.count * blocks_of_image(own.height, own.width, contrasts), 1, 1),
            (_THREADS, 1, 1),
            [
                *map(np.uint64, (images.pictures, images.draws)),
                *map(np.int32, (images.columns, INTERPOLATIONS[own.interpolation], own.height, own.width)),
                *map(np.int32, (images.count, images.most_taps)),
                *map(np.uint64, (first, weights, numbers, images.most)),
                *map(np.uint64, (constants.fills.address, levels if own.colors else 0, images.colors)),
                np.int32(images.num_steps), np.uint64(images.sums),
                *map(np.int32, (contrasts or 0, own.early_paints, own.max_paints)),
                np.uint64(table), np.int32(size_of_item), np.uint32(images.nonce),
                *map(np.uint64, (images.out, images.status, images.tickets)),
            ],
            stream,
        )  # fmt: skip

    def mix(self, program: int, count: int, levels: int, rows: int, out: int, stream: Stream) -> None:
        """Mix a complete batch of levels, normalise and store it."""
        own = self._programs[program]
        size, table = (count, own.height, own.width), self._constants[program].table.address
        mix_images(self._device, size, levels, rows, table, item_size(own), out, stream)

    def free(self) -> None:
        """Free the constants, which may not be in use."""
        for constants in self._constants:
            for memory in (constants.table, constants.fills):
                memory.free()

    def _put(self, array: NDArray[Any], stream: Stream) -> Memory:
        """Copy an array to the device, and wait for it."""
        pinned = self._device.allocate_pinned(array.nbytes)
        pinned.array[: array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        memory = self._device.allocate(array.nbytes)
        self._device.copy(memory.address, pinned.address, array.nbytes, stream)
        stream.synchronize()  # wait point: constants sent
        pinned.free()
        return memory


def blocks_of_image(height: int, width: int, contrasts: int | None) -> int:
    """Count the blocks of an image in all phases, as `blocks_of` of kernels/augment.cu does."""
    blocks = _AXES * -(-max(height, width) // _THREADS) + -(-height // _ROWS)
    if contrasts is None:
        return blocks
    pixels = height * width
    return blocks + contrasts * -(-pixels // _SUMMED_PIXELS) + -(-pixels // _COLORED_PIXELS)


def item_size(program: ImageProgram) -> int:
    """Bytes of one output value of a program."""
    return 1 if program.table is None else int(program.table.itemsize)


def table_of(program: ImageProgram) -> NDArray[np.uint32]:  # (256, 3)
    """Return the bits of the output value of each level and channel."""
    if program.table is None:
        return _LEVELS
    bits = np.ascontiguousarray(program.table).view(_BIT_PATTERNS[program.table.itemsize])
    return bits.astype(np.uint32)


def _taps_layout(program: ImageProgram, count: int, most: int) -> tuple[int, int, int]:
    """Bytes of first source pixels, weights and numbers of taps, as kernels/taps.cuh writes them."""
    entries = count * _AXES * max(program.height, program.width)
    return round_up(4 * entries), round_up(2 * most * entries), round_up(4 * entries)
