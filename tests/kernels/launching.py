"""Launching the kernels that make images, for tests: on the host, with every array before an unreadable page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpubeton.cpu.taps import most_taps
from gpubeton.gpu.pictures import PICTURE
from gpubeton.plan.draws import HEIGHT, WIDTH
from tests.cpu.making import UNTOUCHED, dtype_of
from tests.kernels.host_build import FORWARD, host_kernels
from tests.kernels.host_device import placed

# `rule` of taps.cu.
RULES = {"bilinear": 0, "area": 1, "antialias": 2, "nearest": 4}
AREA_ENLARGING = 3

# Of `Status` in augment.cu.
DONE, MISSING, WRONG_CROP = range(3)

#: Threads of a block, and output rows that a block of augment.cu makes.
THREADS = 128
ROWS = 8


@dataclass
class Taps:
    """What taps.cu wrote; weights as (N, 2, side, most_taps)."""

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


def launch_taps(draws, rule, size, most, order=FORWARD, seed=0):
    """Run taps.cu; its arrays before they are transposed for the tests."""
    count, columns = draws.shape
    side = max(size)
    first = placed(np.full((count, 2, side), -77, np.int32))
    weights = placed(np.full((count, 2, most, side), 0xDEAD, np.uint16))
    numbers = placed(np.full((count, 2, side), -77, np.int32))
    largest = placed(np.zeros((count, 2), np.int32))
    arguments = [
        address(draws), *ints(columns, rule, *size, count, side, most),
        address(first), address(weights), address(numbers), address(largest),
    ]  # fmt: skip
    host_kernels().launch("taps", (-(-side // THREADS), 2, count), (THREADS, 1, 1), arguments, order, seed)
    return first, weights, numbers, largest


def make_taps(draws, rule, size, most, order=FORWARD, seed=0):
    """Run taps.cu on draws (N, columns), for an output of that height and width."""
    first, weights, numbers, largest = launch_taps(placed(draws), rule, size, most, order, seed)
    return Taps(first, weights.swapaxes(2, 3), numbers, largest)


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
        Whether they have a sentinel.
    """

    def __init__(self, images, *, shift=0, pitch=16, is_guarded=0):
        self.table = placed(np.zeros(len(images), PICTURE))
        self.memory = []
        for i, image in enumerate(images):
            height, width = image.shape[:2]
            between = -(-3 * width // pitch) * pitch
            rows = np.full((height, between), 0x5A, np.uint8)
            rows[:, : 3 * width] = image.reshape(height, -1)
            # What lies behind the last row's pixels is memory of the picture, too, where rows are aligned.
            stop = None if pitch % 16 == 0 and shift == 0 else height * between - (between - 3 * width)
            memory = placed(rows.reshape(-1)[:stop], shift)
            self.memory.append(memory)
            self.table[i] = (memory.ctypes.data, between, height, width, i, is_guarded, 0)

    def pixels(self, i):
        """The pixels of image i as they are now."""
        _, pitch, height, width = self.table[i].tolist()[:4]
        rows = np.zeros(height * pitch, np.uint8)
        rows[: len(self.memory[i])] = self.memory[i]
        return rows.reshape(height, pitch)[:, : 3 * width].reshape(height, width, 3)


def table_of(program):
    """Bits of the output value of each level and colour."""
    if program.table is None:
        return placed(np.repeat(np.arange(256, dtype=np.uint32)[:, None], 3, axis=1))
    bits = program.table.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[program.table.itemsize])
    return placed(bits.astype(np.uint32))


@dataclass
class Made:
    """What augment.cu wrote."""

    out: np.ndarray
    status: list


def launch_augment(
    program, pictures, draws, *, taps=None, most=None, rows=None, shift=0, blocks=None, order=FORWARD, seed=0, nonce=0
):
    """Run taps.cu and augment.cu as the GPU executor does; `shift` in values behind 16 aligned bytes."""
    draws = placed(np.stack(draws).astype(np.int32))
    count, columns = draws.shape
    size, table = (program.height, program.width), table_of(program)
    item = dtype_of(program).itemsize
    most = most_taps(draws[:, [HEIGHT, WIDTH]].max(), min(size)) if most is None else most
    made = launch_taps(draws, RULES[program.interpolation], size, most, order, seed) if taps is None else taps
    fills = placed(program.fills)
    status = placed(np.zeros(count, np.int32))
    shape = (count if rows is None else rows, *size, 3)
    out = placed(np.full(int(np.prod(shape)) * item, UNTOUCHED, np.uint8), shift * item)
    first, weights, numbers, largest = made
    arguments = [
        address(pictures.table), address(draws), *ints(columns), address(first), address(weights), address(numbers),
        address(largest), *ints(max(size), most, *size, count), address(fills), address(table), *ints(item),
        np.uint32(nonce), address(out), address(status),
    ]  # fmt: skip
    grid = (-(-program.height // ROWS) if blocks is None else blocks, count, 1)
    host_kernels().launch("augment", grid, (THREADS, 1, 1), arguments, order, seed)
    return Made(np.frombuffer(out.tobytes(), dtype_of(program)).reshape(shape), status.tolist())


def plant(pictures, nonce, order=FORWARD, count=None):
    """Run plant.cu on pictures."""
    count = len(pictures.table) if count is None else count
    grid = (max(1, -(-3 * count // THREADS)), 1, 1)
    arguments = [address(pictures.table), *ints(count), np.uint32(nonce)]
    host_kernels().launch("plant", grid, (THREADS, 1, 1), arguments, order)
