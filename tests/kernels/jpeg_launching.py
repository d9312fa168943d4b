"""Launching the kernels that make images from JPEGs, for tests: on the host, every array before an unreadable page."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpubeton._cpu.jpeg.entries import JpegReader, find_entries
from gpubeton._gpu.entry_decoder import describe_jpegs
from gpubeton._gpu.launch import ProgramConstants, launch_jpegs
from gpubeton._plan.arena_layout import taps_nbytes
from gpubeton._plan.draw_rows import most_taps
from gpubeton._plan.jpeg_windows import BEGIN, EVERY, STOP, window_blocks, window_nbytes
from gpubeton.format.layout import ENTRY_DTYPE
from gpubeton.pipeline.interpolation import filter_radius
from tests.cpu.making import UNTOUCHED, dtype_of
from tests.kernels.host_device import HostDevice, placed
from tests.kernels.launching import ITEMS, RULES, table_of


@dataclass
class JpegBatch:
    """JPEGs in memory, with their sizes, entry points and seals."""

    data: list
    address: np.ndarray
    size: np.ndarray
    height: np.ndarray
    width: np.ndarray
    entries: np.ndarray
    num_entries: np.ndarray
    seals: np.ndarray
    keep: object = None


def batch_of(images, place=placed):
    """Describe stored JPEGs (`tests.cpu.making.Stored`), and find their entry points."""
    data = [place(image.data, number % 4) for number, image in enumerate(images)]
    address = np.array([array.ctypes.data for array in data], np.uint64)
    size = np.array([array.size for array in data], np.uint64)
    result = find_entries(address, size)
    height, width = (
        np.array(side, np.int32) for side in zip(*[(image.height, image.width) for image in images], strict=True)
    )
    return JpegBatch(data, address, size, height, width, *result.of(np.arange(len(data))))


def read_parts(batch, draws):
    """Read headers and find windows, as the GPU executor lets the CPU do."""
    points = batch.entries, batch.num_entries, batch.seals
    return JpegReader().read(batch.address, batch.size, batch.height, batch.width, *points, draws)


@dataclass
class MadeJpegs:
    """What the kernels wrote."""

    out: np.ndarray
    status: list
    can: np.ndarray
    jpegs: np.ndarray
    window: np.ndarray
    parts: object


def make_jpegs(program, batch, draws, *, parts=None, change=None, place=placed, device=None, most=None, shift=0):
    """Make images from JPEGs; `change` may change the entry points (E, 10) and the description of the images."""
    draws = place(np.stack(draws).astype(np.int32))
    parts = read_parts(batch, draws) if parts is None else parts
    listed = JpegReader.list_intervals(batch.address, batch.size, batch.entries, parts)
    can = parts.rows[:, EVERY] > 0
    rows = np.where(can[:, None], parts.rows, 0)
    count, size = len(rows), (program.height, program.width)
    most = most_taps(draws, *size, filter_radius(RULES[program.interpolation])) if most is None else most
    nbytes = window_nbytes(rows, program.width)
    window = place(np.full(int(nbytes.sum()), UNTOUCHED, np.uint8))
    entries, quantization, tables = place(listed.entries), place(parts.quantization), place(parts.tables)
    entry_places = np.uint64(entries.ctypes.data) + listed.first_entry.astype(np.uint64) * np.uint64(
        ENTRY_DTYPE.itemsize
    )
    jpegs = place(
        describe_jpegs(
            rows, batch.address, entry_places, quantization.ctypes.data, window.ctypes.data, nbytes,
            np.arange(count),
        )
    )  # fmt: skip
    if change is not None:
        change(entries, jpegs)
    # No other bytes are there.
    needed = [place(data[row[BEGIN] : row[STOP]]) for data, row in zip(batch.data, parts.rows, strict=True)]
    jpegs["bytes"] = np.array([piece.ctypes.data for piece in needed], np.uint64) - rows[:, BEGIN].astype(np.uint64)
    groups, intervals, status = place(listed.groups), place(listed.intervals), place(np.zeros(count, np.int32))
    dtype = dtype_of(program)
    item_size = dtype.itemsize
    out = place(np.full(count * size[0] * size[1] * 3 * item_size, UNTOUCHED, np.uint8), shift * item_size)
    table, fills, largest = place(table_of(program)), place(program.fills), place(np.zeros((count, 4), np.int32))
    constants = ProgramConstants(
        RULES[program.interpolation], *size, fills.ctypes.data, table.ctypes.data, item_size, None, 0, 0
    )
    nbytes = taps_nbytes(count, constants.side, most, 4)
    taps = place(np.full(sum(nbytes), 0xDE, np.uint8))
    launch_jpegs(
        HostDevice() if device is None else device, constants, "stream",
        count=count, jpegs=jpegs.ctypes.data, tables=tables.ctypes.data, groups=groups.ctypes.data,
        num_groups=len(groups), intervals=intervals.ctypes.data, draws=draws.ctypes.data, columns=draws.shape[1],
        most=largest.ctypes.data, most_taps=most, status=status.ctypes.data,
        most_blocks=int(window_blocks(rows).max(initial=0)), taps=taps.ctypes.data,
        out=out.ctypes.data,
    )  # fmt: skip
    result = np.frombuffer(out.tobytes(), ITEMS[item_size]).reshape(count, *size, 3).view(dtype)
    return MadeJpegs(result, status.tolist(), can, jpegs, window, parts)
