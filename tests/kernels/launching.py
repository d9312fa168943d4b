"""Launching the kernels that make images, for tests: on the host, with every array before an unreadable page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpubeton._batch.step_rows import NUM_KINDS, STEP_COLUMNS
from gpubeton._cpu.taps import most_taps
from gpubeton._gpu.launch import PICTURE, KernelImages, ProgramConstants
from gpubeton._plan.arena_layout import steps_nbytes, taps_nbytes
from gpubeton._plan.draw_rows import HEIGHT, WIDTH
from tests.cpu.making import UNTOUCHED, dtype_of
from tests.kernels.host_build import FORWARD, host_kernels
from tests.kernels.host_device import HostDevice, placed

# `rule` of taps.cuh.
RULES = {"bilinear": 0, "area": 1, "antialias": 2, "nearest": 4, "bicubic": 5}
AREA_ENLARGING = 3

# Of `Status` in resample.cuh.
DONE, MISSING, WRONG_CROP = range(3)

#: Threads of a block.
THREADS = 128
#: All kinds of steps.
ALL = frozenset(range(NUM_KINDS))
ITEMS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@dataclass
class Batch:
    """What the kernels of images are given.

    Parameters
    ----------
    pictures : ndarray of PICTURE, shape (N,)
        Where images are.
    draws : ndarray of int32, shape (N, columns)
        The drawn parameters of each image.
    size : tuple of int
        Height and width of the output.
    rule : int
        How to interpolate.
    most : int
        Taps that there is room for.
    fills : ndarray of uint8, shape (F, 3)
        Colors of paints.
    steps : ndarray of int32, shape (N, S, STEP_COLUMNS), or None
        Rows of steps.
    table : ndarray of uint32, shape (256, 3), or None
        Bits of output values.
    item_size : int
        Bytes of one.
    nonce : int
        Of the canaries.
    rows : int or None
        Rows of the output; N by default.
    shift : int
        Output values between 16 aligned bytes and the first.
    """

    pictures: np.ndarray
    draws: np.ndarray
    size: tuple
    rule: int
    most: int
    fills: np.ndarray
    steps: np.ndarray | None = None
    table: np.ndarray | None = None
    item_size: int = 1
    nonce: int = 0
    rows: int | None = None
    shift: int = 0


@dataclass
class Made:
    """What the kernels of images wrote; weights as (N, 2, side, most_taps)."""

    out: np.ndarray
    status: list
    first: np.ndarray
    weights: np.ndarray
    numbers: np.ndarray
    most: np.ndarray


def address(array):
    """The address of an array, as a kernel's argument."""
    return np.uint64(array.ctypes.data)


def ints(*numbers):
    """Numbers as arguments of type int."""
    return [np.int32(number) for number in numbers]


def place_taps(nbytes, shape, most, place):
    """Memory for taps, and the three arrays in it; the last one ends where the memory ends."""
    kinds = (shape, np.int32, -77), ((*shape[:2], most, shape[2]), np.uint16, 0xDEAD), (shape, np.int32, -77)
    sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype, _ in kinds]
    starts = 0, nbytes[0], nbytes[0] + nbytes[1]
    taps, parts = place(np.full(starts[2] + sizes[2], UNTOUCHED, np.uint8)), []
    for start, size, (extent, dtype, value) in zip(starts, sizes, kinds, strict=True):
        parts.append(taps[start : start + size].view(dtype).reshape(extent))
        parts[-1][...] = value
    return taps, parts


def is_between(taps, parts):
    """Whether each byte of the memory for taps is in none of the arrays."""
    is_free = np.ones(len(taps), bool)
    for part in parts:
        start = part.ctypes.data - taps.ctypes.data
        is_free[start : start + part.nbytes] = False
    return is_free


def launch_batch(batch, *, device=None, place=placed, order=FORWARD, seed=0):
    """Run the kernels of images; `place` puts arrays where they may find them."""
    count, columns = batch.draws.shape
    height, width = batch.size
    side, most = max(batch.size), batch.most
    largest, status = place(np.zeros((count, 2), np.int32)), place(np.zeros(count, np.int32))
    steps = place(np.zeros((count, 0, STEP_COLUMNS), np.int32) if batch.steps is None else batch.steps)
    rows = count if batch.rows is None else batch.rows
    nbytes = rows * height * width * 3 * batch.item_size
    out = place(np.full(nbytes, UNTOUCHED, np.uint8), batch.shift * batch.item_size)
    draws, fills = place(batch.draws), place(batch.fills)
    table = None if batch.table is None else place(batch.table)
    constants = ProgramConstants(
        batch.rule, height, width, address(fills), 0 if table is None else address(table), batch.item_size,
        steps.shape[1], ALL,
    )  # fmt: skip
    levels = place(np.full(sum(constants.steps_nbytes(count)), UNTOUCHED, np.uint8))
    taps, parts = place_taps(taps_nbytes(count, side, most), (count, 2, side), most, place)
    first, weights, numbers = parts
    images = KernelImages(
        constants, count, pictures=address(batch.pictures), draws=address(draws), columns=columns,
        status=address(status), most=address(largest), most_taps=most, taps=address(taps),
        levels=address(levels), steps=address(steps),
    ).begin(address(out), batch.nonce)  # fmt: skip
    device = HostDevice(order, seed) if device is None else device
    images.resample(device, "stream")
    images.carry_out_steps(device, "stream")
    assert (taps[is_between(taps, parts)] == UNTOUCHED).all()
    result = np.frombuffer(out.tobytes(), ITEMS[batch.item_size]).reshape(rows, height, width, 3)
    return Made(result, status.tolist(), first, weights.swapaxes(2, 3), numbers, largest)


def make_taps(draws, rule, size, most, order=FORWARD, seed=0):
    """Make the taps of draws (N, columns) for an output of that height and width, and nothing else."""
    nothing = placed(np.zeros(len(draws), PICTURE))
    result = launch_batch(Batch(nothing, draws, size, rule, most, np.zeros((0, 3), np.uint8)), order=order, seed=seed)
    assert result.status == [WRONG_CROP] * len(draws)
    return result


def run_kernel(images, rows, table=None, item_size=1, *, device=None, place=placed, kinds=ALL, order=FORWARD, seed=0,
               shift=0, levels_shift=0, pictures=None):  # fmt: skip
    """Carry out rows of steps on images (N, H, W, 3), with a separate buffer for each purpose; the output values.

    `kinds` are those that there are buffers for, `shift` and `levels_shift` values between 16 aligned bytes and the
    first.
    """
    count, height, width, _ = images.shape
    parts = np.array(steps_nbytes(1 << 20, kinds)) >> 20  # bytes for a level
    levels = place(images, levels_shift)
    others = [place(np.full(images.size * part, UNTOUCHED, np.uint8), levels_shift * (part == 1)) for part in parts[1:]]
    placed_rows, out = place(rows), place(np.full(images.size * item_size, UNTOUCHED, np.uint8), shift * item_size)
    table = None if table is None else place(table)
    memory = [address(levels), *(address(other) if len(other) else np.uint64(0) for other in others)]
    store = [np.uint64(0) if table is None else address(table), *ints(item_size), address(out)]
    known = np.uint64(0) if pictures is None else address(pictures)
    arguments = [known, address(placed_rows), *ints(rows.shape[1]), *memory, *ints(height, width), *store]
    device = HostDevice(order, seed) if device is None else device
    device.launch("image_steps", (count, 1, 1), (512, 1, 1), arguments, "stream")
    return np.frombuffer(out.tobytes(), ITEMS[item_size]).reshape(images.shape)


class Pictures:
    """Images in memory as a decoder leaves them, each up to an unreadable page.

    Parameters
    ----------
    images : sequence of ndarray
        uint8 RGB.
    shift : int
        Bytes between a multiple of 16 and the first byte.
    pitch : int
        What the distance of rows is a multiple of.
    is_guarded : int
        Whether they have a canary.
    place : callable
        Puts arrays into memory.
    """

    def __init__(self, images, *, shift=0, pitch=16, is_guarded=0, place=placed):
        self.table = place(np.zeros(len(images), PICTURE))
        self.memory = []
        for i, image in enumerate(images):
            height, width = image.shape[:2]
            between = -(-3 * width // pitch) * pitch
            rows = np.full((height, between), 0x5A, np.uint8)
            rows[:, : 3 * width] = image.reshape(height, -1)
            # The bytes after the last row's pixels belong to the picture, too, where rows are aligned.
            stop = None if pitch % 16 == 0 and shift == 0 else height * between - (between - 3 * width)
            memory = place(rows.reshape(-1)[:stop], shift)
            self.memory.append(memory)
            self.table[i] = (memory.ctypes.data, between, height, width, i, is_guarded, 0)

    def pixels(self, i):
        """The pixels of image i as they are now."""
        _, pitch, height, width = self.table[i].tolist()[:4]
        rows = np.zeros(height * pitch, np.uint8)
        rows[: len(self.memory[i])] = self.memory[i]
        return rows.reshape(height, pitch)[:, : 3 * width].reshape(height, width, 3)


def table_of(program):
    """Bits of the output value of each level and color."""
    if program.table is None:
        return np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1)
    return program.table.view(ITEMS[program.table.itemsize]).astype(np.uint32)


def launch_augment(program, pictures, draws, *, most=None, order=FORWARD, seed=0, **more):
    """Make images as the GPU executor does for a program without steps; `more` as in `Batch`."""
    draws = np.stack(draws).astype(np.int32)
    size = program.height, program.width
    if most is None:
        most = most_taps(program.largest_scale(*draws[:, [HEIGHT, WIDTH]].max(0)))
    dtype = dtype_of(program)
    batch = Batch(
        pictures.table, draws, size, RULES[program.interpolation], most, program.fills, table=table_of(program),
        item_size=dtype.itemsize, **more,
    )  # fmt: skip
    result = launch_batch(batch, order=order, seed=seed)
    result.out = result.out.view(dtype)
    return result


def write_canaries(pictures, nonce, order=FORWARD, count=None):
    """Run canary.cu on pictures."""
    count = len(pictures.table) if count is None else count
    grid = (max(1, -(-3 * count // THREADS)), 1, 1)
    arguments = [address(pictures.table), *ints(count), np.uint32(nonce)]
    host_kernels().launch("canary", grid, (THREADS, 1, 1), arguments, order)
