"""Launches of the kernels: the structs that they read, and the addresses that they need of a program and of a batch."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpubeton._gpu.kernels import SIGNED_KERNELS
from gpubeton._plan.arena_layout import JPEG_AXES, steps_nbytes, taps_nbytes
from gpubeton._plan.draw_rows import most_taps
from gpubeton._plan.jpeg_windows import GROUP
from gpubeton.pipeline.interpolation import INTERPOLATIONS, filter_radius

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.cuda import Device, Stream
    from gpubeton._gpu.memory import Constants
    from gpubeton._plan.image_job import ImageJob
    from gpubeton._plan.program import ImageProgram

PICTURE = np.dtype(
    [
        ("address", "<u8"),  # first byte of the first row, uint8 RGB, interleaved
        ("pitch", "<i4"),  # bytes from one row to the next
        ("height", "<i4"),  # in pixels
        ("width", "<i4"),
        ("row", "<i4"),  # of the batch that the image belongs to; negative: another kernel makes it
        ("is_guarded", "<i4"),  # 1 if a canary was written to it
        ("reserved", "<i4"),
    ]
)
"""A decoded image; `struct Picture` of ``kernels/picture.cuh``, 32 bytes."""

GATHER = np.dtype(
    [
        ("source", "<u8"),  # first byte of the first row, in page-locked memory or on the device
        ("target", "<u8"),  # first byte on the device
        ("source_pitch", "<i4"),  # bytes from one row to the next
        ("target_pitch", "<i4"),
        ("row_bytes", "<i4"),  # bytes to copy of each row
        ("rows", "<i4"),
    ]
)
"""Rows of bytes to copy to the device; `struct Gather` of ``kernels/gather.cu``, 32 bytes."""

JPEG = np.dtype(
    [
        ("bytes", "<u8"),  # address of its first byte, which may not be there itself
        ("entries", "<u8"),  # address of ENTRY_DTYPE, even; those of the window are there
        ("quantization", "<u8"),  # address of uint8 (3, 64): factors of each component, by rows
        ("coefficients", "<u8"),  # addresses of the window's coefficients, samples, and samples resampled across
        ("samples", "<u8"),
        ("resampled", "<u8"),
        ("begin", "<u4"),  # its bytes are there from number `begin` to before `end`
        ("end", "<u4"),
        ("every", "<i4"),  # MCUs from one entry point to the next
        ("is_restarted", "<i4"),  # 1 if entry points are restart intervals
        ("height", "<i4"),  # in pixels
        ("width", "<i4"),
        ("components", "<i4"),
        ("luma_across", "<i4"),  # blocks of an MCU
        ("luma_down", "<i4"),
        ("first_row", "<i4"),  # the window, in MCUs
        ("first_column", "<i4"),
        ("rows", "<i4"),
        ("columns", "<i4"),
        ("row", "<i4"),  # of the batch that the image belongs to
    ]
)
"""A JPEG with entry points; `struct Jpeg` of ``kernels/jpeg.cuh``, 104 bytes."""

_Launch = tuple[str, tuple[int, int, int], tuple[int, int, int], list[Any]]  # kernel, grid, block, arguments

_THREADS = 128
_STEP_THREADS = 512  # of image_steps.cu, which has one block for each image
# The part of an image for one block: bytes that gather.cu copies, output bytes that mix.cu writes, output rows that
# resample.cu and jpeg_down.cu write, blocks of 8 x 8 of jpeg_idct.cu.
_GATHERED_BYTES = 16384
_MIXED_BYTES = 8192
_ROWS = 8
_TRANSFORMED = 64
# Of canary.cu: threads for each image.
_CANARY_THREADS = 3


def _pointers(*addresses: int) -> list[np.uint64]:
    return list(map(np.uint64, addresses))


def _ints(*numbers: int) -> list[np.int32]:
    return list(map(np.int32, numbers))


def _prepare(kernel: str, count: int, work: int, work_of_a_block: int, arguments: list[Any]) -> list[_Launch]:
    """Prepare a launch with the same number of blocks for each image: along x, because y has room for 65535 only."""
    blocks = max(1, -(-work // work_of_a_block))
    return [(kernel, (blocks * count, 1, 1), (_THREADS, 1, 1), arguments)] if count else []


def _launch(
    device: Device, kernel: str, count: int, work: int, work_of_a_block: int, arguments: list[Any], stream: Stream
) -> None:
    for launch in _prepare(kernel, count, work, work_of_a_block, arguments):
        device.launch(*launch, stream)


def gather(device: Device, gathers: int, count: int, largest: int, stream: Stream) -> None:
    """Copy rows of bytes, for `count` images of at most `largest` bytes, from pinned memory to the arena."""
    _launch(device, "gather", count, largest, _GATHERED_BYTES, [*_pointers(gathers), *_ints(count)], stream)


def write_canaries(device: Device, pictures: int, count: int, nonce: int, stream: Stream) -> None:
    """Write canaries into the guarded images, in the stream's order."""
    arguments = [*_pointers(pictures), *_ints(count), np.uint32(nonce)]
    _launch(device, "canary", min(count, 1), count * _CANARY_THREADS, _THREADS, arguments, stream)


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


def _places(first: int, nbytes: Sequence[int]) -> list[int]:
    """Place parts of memory one after the other; empty ones at 0."""
    return [start * (size > 0) for start, size in zip(accumulate(nbytes[:-1], initial=first), nbytes, strict=True)]


def _steps(
    size: tuple[int, int, int],  # images, height, width
    rows: int,  # address of int32 (count, num_rows, STEP_COLUMNS)
    num_rows: int,
    memory: Sequence[int],  # addresses of the levels, and of what `steps_nbytes` lists after them
    table: int,
    item_size: int,
    out: int,
) -> _Launch:
    """Prepare the launch that carries out steps; its first argument is null, its last one the output."""
    count, height, width = size
    store = [*_pointers(table), *_ints(item_size), *_pointers(out)]
    arguments = [*_pointers(0, rows), *_ints(num_rows), *_pointers(*memory), *_ints(height, width), *store]
    return "image_steps", (count, 1, 1), (_STEP_THREADS, 1, 1), arguments


def carry_out_steps(
    device: Device,
    size: tuple[int, int, int],  # images, height, width
    levels: int,  # address of uint8 (count, height, width, 3), changed
    rows: int,  # address of int32 (count, num_rows, STEP_COLUMNS)
    num_rows: int,
    memory: int,  # for what comes after the levels in `steps_nbytes`
    nbytes: Sequence[int],  # of that
    stream: Stream,
) -> None:
    """Carry out steps on a batch of levels, in place."""
    # A warp reads all levels that it writes before it writes them.
    device.launch(*_steps(size, rows, num_rows, [levels, *_places(memory, nbytes)], 0, 1, levels), stream)


class ProgramConstants(NamedTuple):
    """What the kernels need of one program; addresses are of the device."""

    rule: int  # `Rule` of kernels/taps.cuh
    height: int
    width: int
    fills: int  # uint8 (F, 3)
    table: int  # uint32 (256, 3), or 0: the output is levels
    item_size: int
    num_rows: int = 0  # of steps of each image
    kinds: frozenset[int] = frozenset()  # that these may have
    mixed: tuple[int, int] = (0, 1)  # table and item size of mixing, before which the output is levels

    @property
    def side(self) -> int:
        """The longer side of an image."""
        return max(self.height, self.width)

    def most_taps(self, draws: NDArray[np.int32]) -> int:
        """Return an even upper bound of the taps of an output pixel along an axis."""
        return most_taps(draws, self.height, self.width, filter_radius(self.rule))

    def kernel(self, name: str) -> str:
        """Return a kernel that resamples, for the sign of the weights."""
        return SIGNED_KERNELS[name] if self.rule == INTERPOLATIONS["bicubic"] else name

    def steps_nbytes(self, count: int) -> tuple[int, ...]:
        """Return what `steps_nbytes` does for images, the levels before their steps first; nothing without steps."""
        return steps_nbytes(count * self.height * self.width * 3, self.kinds) if self.num_rows else ()

    @property
    def before_steps(self) -> ProgramConstants:
        """The same, for the kernels that come before steps, and then write levels."""
        return self._replace(table=0, item_size=1) if self.num_rows else self


class KernelImages:
    """The images of one output on the device, and the launches of the kernels that make them."""

    # Batch after batch has the same, in the same memory: only `begin` changes anything.

    def __init__(
        self,
        program: ProgramConstants,
        count: int,  # images, N
        *,
        pictures: int,  # PICTURE (N,)
        draws: int,  # int32 (N, columns)
        columns: int,
        status: int,  # int32 (N,), zeros
        most: int,  # int32 (N, 2), zeros
        most_taps: int,  # upper bound of the taps of an output pixel along an axis
        taps: int,  # the memory of `taps_nbytes`
        steps: int,  # int32 (N, num_rows, STEP_COLUMNS)
        levels: int,  # the memory of `steps_nbytes`
    ) -> None:
        self.program, self.count, self.pictures, self._levels = program, count, pictures, levels
        self._steps: list[_Launch] = []
        first = program.before_steps
        drawn, size = [*_pointers(draws), *_ints(columns)], _ints(program.height, program.width, count, most_taps)
        first_nbytes, weights_nbytes, _ = taps_nbytes(count, program.side, most_taps)
        tap_arrays = _pointers(taps, taps + first_nbytes, taps + first_nbytes + weights_nbytes, most)
        store = [*_ints(first.item_size), np.uint32(0), *_pointers(levels, status)]
        resample = [*_pointers(pictures), *drawn, *size, *tap_arrays, *_pointers(program.fills, first.table), *store]
        choose = [*drawn, *_ints(program.rule), *size, *tap_arrays]
        self._resampling = [
            *_prepare(program.kernel("taps"), count, 2 * program.side, _THREADS, choose),
            *_prepare(program.kernel("resample"), count, program.height, _ROWS, resample),
        ]
        self._nonce, self._out = (resample, -3), (resample, -2)  # lists of arguments, and indices there
        if program.num_rows and count:
            shape, places = (count, program.height, program.width), _places(levels, program.steps_nbytes(count))
            self._steps = [_steps(shape, steps, program.num_rows, places, program.table, program.item_size, 0)]
            self._out = self._steps[0][3], -1

    def begin(self, out: int, nonce: int) -> KernelImages:
        """Take the next batch: the address of its output, and the seed of its canaries."""
        (written, index), (checked, seed) = self._out, self._nonce
        written[index], checked[seed] = np.uint64(out), np.uint32(nonce)
        self.resampled = self._levels if self.program.num_rows else out  # images before their steps
        return self

    def resample(self, device: Device, stream: Stream) -> None:
        """Make levels from decoded pixels, or output values if there are no steps."""
        for launch in self._resampling:
            device.launch(*launch, stream)

    def carry_out_steps(self, device: Device, stream: Stream, *, is_repeat: bool = False) -> None:
        """Carry out the steps on levels, look up and store them, if the program has steps."""
        for launch in self._steps:
            # Levels change in place. At a repeat, those of our JPEG decoder have changed already.
            launch[3][0] = np.uint64(self.pictures * is_repeat)
            device.launch(*launch, stream)


def image_arrays(
    number: int,
    pictures: NDArray[np.void],  # PICTURE (N,)
    draws: NDArray[np.int32],  # (N, columns)
    steps: NDArray[np.int32] | None,  # (N, num_rows, STEP_COLUMNS)
) -> dict[Hashable, NDArray[Any]]:
    """Return the arrays that the kernels of one output need on the device."""
    count = len(pictures)
    return {
        (number, "pictures"): pictures.view(np.int32),  # which numpy copies much faster
        (number, "draws"): draws,
        (number, "status"): np.zeros(count, np.int32),
        (number, "most"): np.zeros((count, 2), np.int32),
        **({} if steps is None else {(number, "steps"): steps}),
    }


def describe_images(
    number: int,
    program: ProgramConstants,
    job: ImageJob,
    addresses: Mapping[Hashable, int],  # of `image_arrays`
    **memory: int,  # most_taps, taps and levels
) -> KernelImages:
    """Collect what the kernels of one output need."""
    return KernelImages(
        program,
        len(job.address),
        **{name: addresses[number, name] for name in ("pictures", "draws", "status", "most")},
        columns=job.draws.shape[1],
        steps=addresses.get((number, "steps"), 0),
        **memory,
    )


def launch_jpegs(
    device: Device,
    program: ProgramConstants,
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
    out: int,  # (rows, height, width, 3): levels, if steps follow
) -> None:
    """Decode the windows of JPEGs, resample, paint and store them; addresses are of the device."""
    first = program.before_steps
    first_nbytes, weights_nbytes, _ = taps_nbytes(count, program.side, most_taps, JPEG_AXES)
    tap_arrays = _pointers(taps, taps + first_nbytes, taps + first_nbytes + weights_nbytes, most)
    images: list[Any] = [*_pointers(jpegs, draws), *_ints(columns)]
    sizes: list[Any] = [*_ints(program.height, program.width, count, most_taps), *tap_arrays]
    with_rule = [*images, *_ints(program.rule), *sizes]
    _launch(device, program.kernel("jpeg_taps"), count, 2 * program.side, _THREADS, with_rule, stream)
    if num_groups:
        arguments = _pointers(jpegs, tables, groups, intervals, status)
        device.launch("jpeg_huffman", (num_groups, 1, 1), (GROUP, 1, 1), arguments, stream)
    transform: list[Any] = [*_pointers(jpegs), *_ints(count), *_pointers(status)]
    _launch(device, "jpeg_idct", count, most_blocks, _TRANSFORMED, transform, stream)
    # Eights of rows are fewer than blocks.
    eights = min(most_blocks, 64) * -(-program.width // _THREADS)
    _launch(device, program.kernel("jpeg_across"), count, eights, 1, [*images, *sizes], stream)
    finish = [*_pointers(program.fills, first.table), *_ints(first.item_size), *_pointers(out, status)]
    _launch(device, program.kernel("jpeg_down"), count, program.height, _ROWS, [*images, *sizes, *finish], stream)


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
        program.num_rows,
        program.kinds,
        finish,
    )
