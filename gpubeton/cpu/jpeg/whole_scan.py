"""Check the compressed data of a whole JPEG, without making pixels of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.compile import compiled, stage
from gpubeton.cpu.jpeg.codes import DAMAGED_HEADER, DAMAGED_SCAN, MANY_INTERVALS, ODD_SAMPLING, OK
from gpubeton.cpu.jpeg.entropy import MAX_BLOCKS, decode_mcus
from gpubeton.cpu.jpeg.markers import COMPONENTS, HEIGHT, RESTART_INTERVAL, SAMPLING, SCAN, WIDTH, read_headers
from gpubeton.cpu.jpeg.picture import describe_block, fits
from gpubeton.cpu.jpeg.scan import PADDING, unstuff
from gpubeton.cpu.scratch import Scratch, allocate

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array


def check_scan(data: bytes) -> int:
    """Return OK if a baseline JPEG whose sampling the crop decoder does not know is sound; else a code of `codes`."""
    scratch = allocate(8, len(data), 8, 8, 8)
    content = np.frombuffer(data, np.uint8)
    return int(_check(content.ctypes.data, len(data), scratch))


@stage
def _describe_mcu(frame: Array, scratch: Scratch) -> tuple[int, int, int]:
    """Fill `scratch.blocks`; return the blocks of an MCU (0: more than there may be) and its width and height."""
    count, across, down = 0, 1, 1
    for component in range(frame[COMPONENTS]):
        factor_across, factor_down = frame[SAMPLING + component] >> 4, frame[SAMPLING + component] & 15
        is_known = 1 <= factor_across <= 4 and 1 <= factor_down <= 4
        if not is_known or count + factor_across * factor_down > MAX_BLOCKS:
            return 0, 0, 0
        for _ in range(factor_across * factor_down):
            describe_block(frame, scratch, component, scratch.blocks[count])
            count += 1
        across, down = max(across, factor_across), max(down, factor_down)
    return count, 8 * across, 8 * down


@compiled
def _check(address: int, size: int, scratch: Scratch) -> int:
    frame = scratch.frame
    code = read_headers(address, size, frame, scratch.tables)
    if code != ODD_SAMPLING:
        return code
    blocks, width, height = _describe_mcu(frame, scratch)
    if blocks == 0:
        return DAMAGED_HEADER
    mcus = -(-frame[WIDTH] // width) * -(-frame[HEIGHT] // height)
    interval = frame[RESTART_INTERVAL] if frame[RESTART_INTERVAL] > 0 else mcus
    intervals = -(-mcus // interval)
    if intervals > scratch.starts.size:
        return MANY_INTERVALS
    scan = scratch.scan.ctypes.data
    stop = scan + scratch.scan.size
    code = unstuff(address + frame[SCAN], address + size, scan, stop, scratch.starts, scratch.ends, intervals)
    if code != OK:
        return code
    for i in range(intervals):
        scratch.predictors[:] = 0
        reader, sound = decode_mcus(
            (0, 0, scratch.starts[i]),
            scratch.ends[i] + PADDING,
            0,
            min(interval, mcus - i * interval),
            0,
            0,
            0,
            scratch.blocks.ctypes.data,
            blocks,
            scratch.tables,
            scratch.coefficients.ctypes.data,
            scratch.zigzag.ctypes.data,
        )
        if not sound or not fits(reader, scratch.ends[i], True):
            return DAMAGED_SCAN
    return OK
