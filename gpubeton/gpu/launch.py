"""Launches of the kernels; Augmenter: the constants of programs on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton.gpu.device_structs import KernelImages, num_sums
from gpubeton.gpu.gpu_kernels import color_kernels
from gpubeton.gpu.memory_layout import round_up
from gpubeton.pipeline.interpolation import INTERPOLATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.gpu.batch_memory import Constants
    from gpubeton.gpu.cuda import Device, Stream
    from gpubeton.plan.program import ImageProgram

_THREADS = 128
# The part of an image for one block: bytes that gather.cu copies, output bytes that mix.cu writes, output rows that
# resample.cu writes, pixels that color_sum.cu and color.cu read.
_GATHERED_BYTES = 16384
_MIXED_BYTES = 8192
_ROWS = 8
_SUMMED_PIXELS = 16384
_COLORED_PIXELS = 8192
# Of canary.cu: threads for each image.
_PLACES = 3


def _launch(
    device: Device, kernel: str, count: int, work: int, work_of_a_block: int, arguments: Sequence[Any], stream: Stream
) -> None:
    """Launch a kernel with the same number of blocks for each image: along x, because y has room for 65535 only."""
    blocks = max(1, -(-work // work_of_a_block))
    device.launch(kernel, (blocks * count, 1, 1), (_THREADS, 1, 1), arguments, stream)


def gather(device: Device, gathers: int, count: int, largest: int, stream: Stream) -> None:
    """Copy rows of bytes, for `count` images of at most `largest` bytes, from pinned memory to the arena."""
    _launch(device, "gather", count, largest, _GATHERED_BYTES, [np.uint64(gathers), np.int32(count)], stream)


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
    _launch(device, "mix", count, 3 * height * width * item_size, _MIXED_BYTES, arguments, stream)


class ProgramConstants(NamedTuple):
    """What the kernels need of one program; addresses are of the device."""

    rule: int  # `Rule` of kernels/taps.cuh
    height: int
    width: int
    fills: int  # uint8 (F, 3)
    table: int  # uint32 (256, 3), or 0: the output is levels
    item_size: int
    num_sums: int | None  # contrasts that an image may have; None without changes of color
    early_paints: int
    max_paints: int
    kernels: tuple[str, str] = ("color_sum", "color")


class TapArrays(NamedTuple):
    """Device addresses of the first source pixels, weights and numbers of taps, see kernels/taps.cuh."""

    first: int
    weights: int
    numbers: int


def launch_images(
    device: Device,
    own: ProgramConstants,
    images: KernelImages,
    taps: TapArrays,
    levels: int,  # address of uint8 (count, height, width, 3), unused without changes of color
    stream: Stream,
) -> None:
    """Resample, flip, paint, change colors, look up and store the images of one output."""
    launch_resampling(device, own, images, taps, levels, stream)
    launch_colors(device, own, images, levels, stream)


def launch_resampling(
    device: Device, own: ProgramConstants, images: KernelImages, taps: TapArrays, levels: int, stream: Stream
) -> None:
    """Make levels from decoded pixels, or output values if colors stay."""
    count = images.count
    if count == 0:
        return
    rule, columns, height, width = map(np.int32, (own.rule, images.columns, own.height, own.width))
    number, most_taps = np.int32(count), np.int32(images.most_taps)
    draws, fills, out = map(np.uint64, (images.draws, own.fills, images.out))
    made = [*map(np.uint64, (*taps, images.most))]
    arguments = [draws, columns, rule, height, width, number, most_taps, *made]
    _launch(device, "taps", count, 2 * max(own.height, own.width), _THREADS, arguments, stream)
    has_colors = own.num_sums is not None
    written = [np.uint64(0), np.int32(1)] if has_colors else [np.uint64(own.table), np.int32(own.item_size)]
    arguments = [
        np.uint64(images.pictures), draws, columns, height, width, number, most_taps, *made, fills, *written,
        np.uint32(images.nonce), np.uint64(levels) if has_colors else out, np.uint64(images.status),
    ]  # fmt: skip
    _launch(device, "resample", count, own.height, _ROWS, arguments, stream)


def launch_colors(device: Device, own: ProgramConstants, images: KernelImages, levels: int, stream: Stream) -> None:
    """Change the colors of levels, look up and store them, if the program changes colors."""
    count, pixels = images.count, own.height * own.width
    if own.num_sums is None or count == 0:
        return
    columns, height, width, number = map(np.int32, (images.columns, own.height, own.width, count))
    draws, fills, out = map(np.uint64, (images.draws, own.fills, images.out))
    finish = [np.uint64(own.table), np.int32(own.item_size)]
    read = [
        *map(np.uint64, (levels, images.colors)), np.int32(images.num_steps), np.uint64(images.sums),
        np.int32(own.num_sums),
    ]  # fmt: skip
    color_sum, color = own.kernels
    for contrast in range(own.num_sums):
        arguments = [*read, np.int32(contrast), np.int32(pixels), number]
        _launch(device, color_sum, count, pixels, _SUMMED_PIXELS, arguments, stream)
    paints = map(np.int32, (own.early_paints, own.max_paints))
    arguments = [*read, draws, columns, fills, *paints, height, width, number, *finish, out]
    _launch(device, color, count, pixels, _COLORED_PIXELS, arguments, stream)


_BIT_PATTERNS = {1: np.uint8, 2: np.uint16, 4: np.uint32}

_LEVELS = np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)


class Augmenter:
    """The constants of a loader's programs on the device, and the launches that use them."""

    def __init__(self, device: Device, programs: Sequence[ImageProgram], constants: Constants, stream: Stream) -> None:
        self._device = device
        self._programs = list(programs)
        self._tables = [constants.address_of(table_of(program), stream) for program in programs]
        self._constants = [
            ProgramConstants(
                rule=INTERPOLATIONS[program.interpolation],
                height=program.height,
                width=program.width,
                fills=constants.address_of(program.fills, stream),
                # Mixing needs the complete batch: until then the output is levels.
                table=0 if program.mixing else table,
                item_size=1 if program.mixing else item_size(program),
                num_sums=num_sums(program) if program.colors else None,
                early_paints=program.early_paints,
                max_paints=program.max_paints,
                kernels=color_kernels(program),
            )
            for program, table in zip(programs, self._tables, strict=True)
        ]

    def taps_nbytes(self, program: int, count: int, most_taps: int) -> int:
        """Bytes that the weights of `count` images of a program take."""
        return sum(_taps_layout(self._programs[program], count, most_taps))

    def write_canaries(self, pictures: int, count: int, nonce: int, stream: Stream) -> None:
        """Write canaries into the guarded images, in the stream's order."""
        if count:
            arguments = [np.uint64(pictures), np.int32(count), np.uint32(nonce)]
            self._device.launch("canary", (-(-count * _PLACES // _THREADS), 1, 1), (_THREADS, 1, 1), arguments, stream)

    def has_colors(self, program: int) -> bool:
        """Whether a program changes colors, so that levels come first."""
        return bool(self._programs[program].colors)

    def resampled_nbytes(self, program: int, count: int) -> int:
        """Bytes that `count` images of a program take before their colors are changed; 0 if they are not."""
        own = self._programs[program]
        return count * own.height * own.width * 3 if own.colors else 0

    def resample(self, program: int, images: KernelImages, taps: int, levels: int, stream: Stream) -> None:
        """Resample the decoded pixels of one output; `taps` and `levels` are addresses of scratch memory."""
        first_nbytes, weights_nbytes, _ = _taps_layout(self._programs[program], images.count, images.most_taps)
        arrays = TapArrays(taps, taps + first_nbytes, taps + first_nbytes + weights_nbytes)
        launch_resampling(self._device, self._constants[program], images, arrays, levels, stream)

    def constants(self, program: int) -> ProgramConstants:
        """Give what the launches of a program have in common."""
        return self._constants[program]

    def color(self, program: int, images: KernelImages, levels: int, stream: Stream) -> None:
        """Change the colors of the levels of one output."""
        launch_colors(self._device, self._constants[program], images, levels, stream)

    def augment(self, program: int, images: KernelImages, taps: int, levels: int, stream: Stream) -> None:
        """Make the images of one output from decoded pixels."""
        self.resample(program, images, taps, levels, stream)
        self.color(program, images, levels, stream)

    def mix(self, program: int, count: int, levels: int, rows: int, out: int, stream: Stream) -> None:
        """Mix a complete batch of levels, normalise and store it."""
        own = self._programs[program]
        size = count, own.height, own.width
        mix_images(self._device, size, levels, rows, self._tables[program], item_size(own), out, stream)


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
    entries = 2 * count * max(program.height, program.width)
    return round_up(4 * entries), round_up(2 * most * entries), round_up(4 * entries)
