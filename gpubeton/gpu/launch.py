"""Launches of the kernels; ProgramConstants: what they need of a program on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton.gpu.gpu_kernels import color_kernels
from gpubeton.gpu.memory_layout import round_up
from gpubeton.pipeline.interpolation import INTERPOLATIONS
from gpubeton.plan.jpeg_parts import GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.gpu.batch_memory import Constants
    from gpubeton.gpu.cuda import Device, Stream
    from gpubeton.gpu.device_structs import KernelImages
    from gpubeton.plan.program import ImageProgram

_THREADS = 128
# The part of an image for one block: bytes that gather.cu copies, output bytes that mix.cu writes, output rows that
# resample.cu and jpeg_down.cu write, pixels that color_sum.cu and color.cu read, blocks of 8 x 8 of jpeg_idct.cu.
_GATHERED_BYTES = 16384
_MIXED_BYTES = 8192
_ROWS = 8
_SUMMED_PIXELS = 16384
_COLORED_PIXELS = 8192
_TRANSFORMED = 64
# Of canary.cu: threads for each image.
_PLACES = 3


def _pointers(*addresses: int) -> list[np.uint64]:
    return list(map(np.uint64, addresses))


def _ints(*numbers: int) -> list[np.int32]:
    return list(map(np.int32, numbers))


def _launch(
    device: Device, kernel: str, count: int, work: int, work_of_a_block: int, arguments: Sequence[Any], stream: Stream
) -> None:
    """Launch a kernel with the same number of blocks for each image: along x, because y has room for 65535 only."""
    blocks = max(1, -(-work // work_of_a_block))
    if count:
        device.launch(kernel, (blocks * count, 1, 1), (_THREADS, 1, 1), arguments, stream)


def gather(device: Device, gathers: int, count: int, largest: int, stream: Stream) -> None:
    """Copy rows of bytes, for `count` images of at most `largest` bytes, from pinned memory to the arena."""
    _launch(device, "gather", count, largest, _GATHERED_BYTES, [*_pointers(gathers), *_ints(count)], stream)


def write_canaries(device: Device, pictures: int, count: int, nonce: int, stream: Stream) -> None:
    """Write canaries into the guarded images, in the stream's order."""
    arguments = [*_pointers(pictures), *_ints(count), np.uint32(nonce)]
    _launch(device, "canary", min(count, 1), count * _PLACES, _THREADS, arguments, stream)


def mix_images(
    device: Device,
    size: tuple[int, int, int],  # images, height, width
    levels: int,  # address of uint8 (count, height, width, 3)
    rows: int,  # address of int32 (count, MIX_COLUMNS), from `ImageProgram.draw_mixes`
    table: int,  # address of uint32 (256, 3), see `ImageProgram.output_bits`
    item_size: int,
    out: int,  # address of (count, height, width, 3); other memory than the levels
    stream: Stream,
) -> None:
    """Mix the images of a batch of levels, and write output values of 1, 2 or 4 bytes."""
    count, height, width = size
    finish = [*_pointers(table), *_ints(item_size), *_pointers(out)]
    arguments = [*_pointers(levels, rows), *_ints(height, width, count), *finish]
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
    mixed: tuple[int, int] = (0, 1)  # table and item size of mixing, before which the output is levels

    @property
    def levels_nbytes(self) -> int:
        """Bytes of an image before its colors are changed; 0 if they are not."""
        return 0 if self.num_sums is None else self.height * self.width * 3

    @property
    def before_colors(self) -> ProgramConstants:
        """The same, for the kernels that come before changes of color, and then write levels."""
        return self if self.num_sums is None else self._replace(table=0, item_size=1)


JPEG_AXES = 4
"""Axes with taps of a JPEG: luma and chroma, each down and across."""


def taps_nbytes(own: ProgramConstants, count: int, most_taps: int, axes: int = 2) -> tuple[int, int, int]:
    """Bytes of first source pixels, weights and numbers of taps, as kernels/taps.cuh writes them; 4 axes for JPEGs."""
    entries = axes * count * max(own.height, own.width)
    return round_up(4 * entries), round_up(2 * most_taps * entries), round_up(4 * entries)


def launch_resampling(device: Device, own: ProgramConstants, images: KernelImages, stream: Stream) -> None:
    """Make levels from decoded pixels, or output values if colors stay."""
    count, first, taps = images.count, own.before_colors, images.taps
    draws = [*_pointers(images.draws), *_ints(images.columns)]
    size = _ints(own.height, own.width, count, images.most_taps)
    first_nbytes, weights_nbytes, _ = taps_nbytes(own, count, images.most_taps)
    made = _pointers(taps, taps + first_nbytes, taps + first_nbytes + weights_nbytes, images.most)
    arguments: list[Any] = [*draws, *_ints(own.rule), *size, *made]
    _launch(device, "taps", count, 2 * max(own.height, own.width), _THREADS, arguments, stream)
    finish = [*_pointers(own.fills, first.table), *_ints(first.item_size), np.uint32(images.nonce)]
    out = images.out if own.num_sums is None else images.levels
    arguments = [*_pointers(images.pictures), *draws, *size, *made, *finish, *_pointers(out, images.status)]
    _launch(device, "resample", count, own.height, _ROWS, arguments, stream)


def launch_colors(device: Device, own: ProgramConstants, images: KernelImages, stream: Stream) -> None:
    """Change the colors of levels, look up and store them, if the program changes colors."""
    count, pixels = images.count, own.height * own.width
    if own.num_sums is None:
        return
    steps = [*_pointers(images.levels, images.colors), *_ints(images.num_steps)]
    read = [*steps, *_pointers(images.sums), *_ints(own.num_sums)]
    color_sum, color = own.kernels
    for contrast in range(own.num_sums):
        arguments = [*read, *_ints(contrast, pixels, count)]
        _launch(device, color_sum, count, pixels, _SUMMED_PIXELS, arguments, stream)
    painted = [*_pointers(images.draws), *_ints(images.columns), *_pointers(own.fills)]
    numbers = _ints(own.early_paints, own.max_paints, own.height, own.width, count)
    finish = [*_pointers(own.table), *_ints(own.item_size), *_pointers(images.out)]
    _launch(device, color, count, pixels, _COLORED_PIXELS, [*read, *painted, *numbers, *finish], stream)


def launch_jpegs(
    device: Device,
    own: ProgramConstants,
    stream: Stream,
    *,
    count: int,  # images
    jpegs: int,  # JPEG (count,)
    tables: int,  # uint8 (T, 4, 272)
    groups: int,  # int32 (num_groups, 3)
    num_groups: int,
    intervals: int,  # int32 (M, 2)
    draws: int,  # int32 (count, columns)
    columns: int,
    most: int,  # int32 (count, 4), zeros
    most_taps: int,
    status: int,  # int32 (count,), zeros
    most_blocks: int,  # blocks of 8 x 8 of the largest window
    taps: int,  # address of the memory of `taps_nbytes`, for JPEG_AXES
    out: int,  # (rows, height, width, 3): levels, if colors are changed later
) -> None:
    """Decode the windows of JPEGs, resample, paint and store them; addresses are of the device."""
    images, first = _pointers(jpegs), own.before_colors
    drawn, size = [*_pointers(draws), *_ints(columns)], _ints(own.height, own.width)
    first_nbytes, weights_nbytes, _ = taps_nbytes(own, count, most_taps, JPEG_AXES)
    made = [*_ints(count, most_taps), *_pointers(taps, taps + first_nbytes, taps + first_nbytes + weights_nbytes, most)]
    arguments: list[Any] = [*images, *drawn, *_ints(own.rule), *size, *made]
    _launch(device, "jpeg_taps", count, 2 * max(own.height, own.width), _THREADS, arguments, stream)
    if num_groups:
        arguments = _pointers(jpegs, tables, groups, intervals, status)
        device.launch("jpeg_huffman", (num_groups, 1, 1), (GROUP, 1, 1), arguments, stream)
    arguments = [*images, *_ints(count), *_pointers(status)]
    _launch(device, "jpeg_idct", count, most_blocks, _TRANSFORMED, arguments, stream)
    # Eights of rows are fewer than blocks.
    eights = min(most_blocks, 64) * -(-own.width // _THREADS)
    _launch(device, "jpeg_across", count, eights, 1, [*images, *drawn, *size, *made], stream)
    finish = [*_pointers(own.fills, first.table), *_ints(first.item_size), *_pointers(out, status)]
    _launch(device, "jpeg_down", count, own.height, _ROWS, [*images, *drawn, *size, *made, *finish], stream)


def program_constants(program: ImageProgram, constants: Constants, stream: Stream) -> ProgramConstants:
    """Send what the kernels need of one program to the device, in the stream's order."""
    finish = constants.address_of(program.output_bits, stream), program.item_size
    return ProgramConstants(
        INTERPOLATIONS[program.interpolation],
        program.height,
        program.width,
        constants.address_of(program.fills, stream),
        # Mixing needs the complete batch: until then the output is levels.
        *((0, 1) if program.mixing else finish),
        program.num_contrasts if program.colors else None,
        program.early_paints,
        program.max_paints,
        color_kernels(program),
        finish,
    )
