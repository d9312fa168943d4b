"""One JPEG: its crop, resampled to the output size, as rows of 8-bit RGB finished into the batch."""

from __future__ import annotations

from gpubeton.cpu.compile import merged, stage
from gpubeton.cpu.finish import finish_row
from gpubeton.cpu.jpeg.codes import DAMAGED_SCAN, MANY_INTERVALS, OK, WRONG_SIZE
from gpubeton.cpu.jpeg.colour import GROUP as COLOUR_GROUP
from gpubeton.cpu.jpeg.colour import colour_row
from gpubeton.cpu.jpeg.entropy import (
    AC_LOOKUP,
    AC_SLOT,
    DC_LOOKUP,
    DC_SLOT,
    MULTIPLIERS,
    PAIR_LOOKUP,
    PREDICTOR,
    SKIP_LOOKUP,
    STRIP,
    STRIP_STEP,
    decode_mcus,
)
from gpubeton.cpu.jpeg.idct import COLUMN_BYTES
from gpubeton.cpu.jpeg.markers import (
    AC_TABLE,
    COMPONENTS,
    DC_TABLE,
    HEIGHT,
    LUMA_ACROSS,
    LUMA_DOWN,
    MCUS_ACROSS,
    MCUS_DOWN,
    QUANTISATION,
    RESTART_INTERVAL,
    SCAN,
    WIDTH,
    read_headers,
)
from gpubeton.cpu.jpeg.scan import PADDING, unstuff
from gpubeton.cpu.jpeg.strips import GROUP as STRIP_GROUP
from gpubeton.cpu.jpeg.strips import resample_pair, resample_single
from gpubeton.cpu.output import HEIGHT as OUTPUT_HEIGHT
from gpubeton.cpu.output import INTERPOLATION, ITEM_SIZE, METHOD
from gpubeton.cpu.output import WIDTH as OUTPUT_WIDTH
from gpubeton.cpu.scratch import Scratch
from gpubeton.cpu.taps import effective, fill_axis, fill_axis_pair
from gpubeton.cpu.types import Array, Box, TapCounts

# Cb or Cr of a gray image, times 256.
_NEUTRAL = 128 << 8
_HALF = (1 << 15) * 65537


@stage
def _describe_blocks(frame: Array, scratch: Scratch) -> int:
    """Fill `scratch.blocks` and return how many blocks an MCU has."""
    tables = scratch.tables
    across = frame[LUMA_ACROSS]
    luma_blocks = across * frame[LUMA_DOWN]
    count: int = luma_blocks + frame[COMPONENTS] - 1
    luma, chroma = scratch.strips[0].ctypes.data, scratch.strips[1].ctypes.data
    for i in range(count):
        component = max(0, i - luma_blocks + 1)
        row = scratch.blocks[i]
        dc, ac = frame[DC_TABLE + component], frame[AC_TABLE + component]
        row[DC_SLOT] = dc
        row[AC_SLOT] = 4 + ac
        row[DC_LOOKUP] = tables.single[dc].ctypes.data
        row[AC_LOOKUP] = tables.single[4 + ac].ctypes.data
        row[PAIR_LOOKUP] = tables.pair[ac].ctypes.data
        row[SKIP_LOOKUP] = tables.skip[ac].ctypes.data
        row[MULTIPLIERS] = tables.multipliers[frame[QUANTISATION + component]].ctypes.data
        row[PREDICTOR] = scratch.predictors.ctypes.data + 8 * component
        # Two blocks share a column: luma blocks one below the other, Cb and Cr.
        if component == 0:
            row[STRIP] = luma + (i // across) * (COLUMN_BYTES // 2) + (i % across) * 8 * COLUMN_BYTES
            row[STRIP_STEP] = across * 8 * COLUMN_BYTES
        else:
            row[STRIP] = chroma + (component - 1) * (COLUMN_BYTES // 2)
            row[STRIP_STEP] = 8 * COLUMN_BYTES
    return count


@stage
def _fill_taps(frame: Array, box: Box, output: Array, scratch: Scratch) -> TapCounts:
    """Compute the taps across and down; return the numbers of luma and chroma taps across, and down."""
    top, left, height, width, flip, shift_y, shift_x = box
    first, words, row = scratch.first, scratch.words, scratch.row
    rows, columns = output[OUTPUT_HEIGHT], output[OUTPUT_WIDTH]
    rule = effective(output[INTERPOLATION], height, width, rows, columns)
    halves_across, halves_down = frame[LUMA_ACROSS] == 2, frame[LUMA_DOWN] == 2
    chroma_width, chroma_height = (frame[WIDTH] + 1) // 2, (frame[HEIGHT] + 1) // 2
    # Libjpeg repeats the chroma samples of images up to four pixels wide instead of interpolating them.
    fancy = not halves_across or chroma_width > 2
    if halves_across:
        across, chroma_across = fill_axis_pair(
            rule, left, width, columns, shift_x, flip, chroma_width, fancy, first[0:2], words[0:2], row
        )
    else:
        across = fill_axis(rule, left, width, columns, shift_x, flip, first[0], words[0], row)
        chroma_across = across
    if halves_down:
        down, chroma_down = fill_axis_pair(
            rule, top, height, rows, shift_y, False, chroma_height, fancy, first[2:4], words[2:4], row
        )
    else:
        down = fill_axis(rule, top, height, rows, shift_y, False, first[2], words[2], row)
        # The two rows of neutral chroma of a gray image are enough for any.
        chroma_down = down if frame[COMPONENTS] == 3 else 2
    return max(across, 2), max(chroma_across, 2), max(down, 2), max(chroma_down, 2)


@stage
def _paint_neutral(scratch: Scratch, width: int) -> None:
    """Give a gray image two rows of neutral chroma, and each output row half of both."""
    scratch.planes[1:3, : 2 * width] = _NEUTRAL
    scratch.first[3, :] = 0
    scratch.words[3, :, :] = 0
    scratch.words[3, :, 0:2] = _HALF


@stage
def _resample_mcu_row(frame: Array, scratch: Scratch, row: int, origin: int, taps: TapCounts, width: int) -> None:
    """Resample one row of MCUs, `row` counted from the crop's first, into the planes."""
    stride = 2 * width
    groups = width // STRIP_GROUP
    words, word_stride = scratch.words.ctypes.data, scratch.words.strides[1]
    step = scratch.words.strides[0]
    first, first_step = scratch.first.ctypes.data, scratch.first.strides[0]
    luma = scratch.strips[0].ctypes.data - origin * frame[LUMA_ACROSS] * 8 * COLUMN_BYTES
    rows = scratch.planes[0].ctypes.data + row * frame[LUMA_DOWN] * 8 * stride
    if frame[LUMA_DOWN] == 2:
        resample_pair(luma, rows, rows + 8 * stride, stride, first, words, word_stride, taps[0], groups)
    else:
        resample_single(luma, rows, stride, first, words, word_stride, taps[0], groups)
    if frame[COMPONENTS] == 3:
        own = frame[LUMA_ACROSS] - 1
        chroma = scratch.strips[1].ctypes.data - origin * 8 * COLUMN_BYTES
        blue = scratch.planes[1].ctypes.data + row * 8 * stride
        red = scratch.planes[2].ctypes.data + row * 8 * stride
        resample_pair(
            chroma, blue, red, stride, first + own * first_step, words + own * step, word_stride, taps[1], groups
        )


@stage
def _emit_rows(
    frame: Array,
    scratch: Scratch,
    row: int,
    first_mcu_row: int,
    mcu_rows: int,
    last: bool,
    taps: TapCounts,
    output: Array,
    factors: Array,
    table: Array,
    target: int,
) -> int:
    """Write the output rows from `row` on whose source rows are there, all if these are the last."""
    height, columns = output[OUTPUT_HEIGHT], output[OUTPUT_WIDTH]
    width = -(-columns // COLOUR_GROUP) * COLOUR_GROUP
    stride = 2 * width
    gray = frame[COMPONENTS] == 1
    own = 3 if gray or frame[LUMA_DOWN] == 2 else 2
    luma_rows = (first_mcu_row + mcu_rows) * 8 * frame[LUMA_DOWN]
    chroma_rows = (first_mcu_row + mcu_rows) * 8
    luma = scratch.planes[0].ctypes.data - first_mcu_row * 8 * frame[LUMA_DOWN] * stride
    chroma_origin = 0 if gray else first_mcu_row * 8 * stride
    blue = scratch.planes[1].ctypes.data - chroma_origin
    red = scratch.planes[2].ctypes.data - chroma_origin
    pixels = scratch.pixels.ctypes.data
    while row < height:
        luma_first, chroma_first = scratch.first[2, row], scratch.first[own, row]
        ready = luma_first + taps[2] <= luma_rows and (gray or chroma_first + taps[3] <= chroma_rows)
        if not (ready or last):
            break
        colour_row(
            luma + luma_first * stride,
            blue + chroma_first * stride,
            red + chroma_first * stride,
            stride,
            scratch.words[2, row].ctypes.data,
            taps[2],
            scratch.words[own, row].ctypes.data,
            taps[3],
            pixels,
            width // COLOUR_GROUP,
        )
        finish_row(pixels, target + row * columns * 3 * output[ITEM_SIZE], columns, output[METHOD], factors, table)
        row += 1
    return row


@merged
def _decode_rows(
    frame: Array, scratch: Scratch, box: Box, output: Array, factors: Array, table: Array, target: int
) -> int:
    """Decode the rows of MCUs down to the crop's last; each is resampled and emitted while it is in the cache."""
    top, left, height, width = box[0], box[1], box[2], box[3]
    across, down = frame[MCUS_ACROSS], frame[MCUS_DOWN]
    mcu_width, mcu_height = 8 * frame[LUMA_ACROSS], 8 * frame[LUMA_DOWN]
    # One pixel around the crop: interpolated chroma reaches that far.
    first_column, first_row = max(0, left - 1) // mcu_width, max(0, top - 1) // mcu_height
    last_column = min(across, (left + width + mcu_width) // mcu_width)
    last_row = min(down, (top + height + mcu_height) // mcu_height)
    interval = frame[RESTART_INTERVAL] if frame[RESTART_INTERVAL] > 0 else across * down
    taps = _fill_taps(frame, box, output, scratch)
    padded = -(-output[OUTPUT_WIDTH] // COLOUR_GROUP) * COLOUR_GROUP
    if frame[COMPONENTS] == 1:
        _paint_neutral(scratch, padded)
    count = _describe_blocks(frame, scratch)
    blocks = scratch.blocks.ctypes.data
    coefficients, zigzag = scratch.coefficients.ctypes.data, scratch.zigzag.ctypes.data
    reader = (0, 0, 0)
    emitted = 0
    # Whole restart intervals above the crop need not be read at all.
    mcu = (first_row * across) // interval * interval
    for row in range(mcu // across, last_row):
        wanted = row >= first_row
        stop = last_column if row == last_row - 1 else across
        column = mcu - row * across
        while column < stop:
            current = mcu // interval
            if mcu % interval == 0:
                reader = (0, 0, scratch.starts[current])
                scratch.predictors[:] = 0
            run = min(stop - column, (current + 1) * interval - mcu)
            reader, sound = decode_mcus(
                reader,
                scratch.ends[current] + PADDING,
                column,
                column + run,
                first_column if wanted else 0,
                last_column if wanted else 0,
                blocks,
                count,
                scratch.tables,
                coefficients,
                zigzag,
            )
            if not sound or reader[2] * 8 - reader[1] > scratch.ends[current] * 8:
                return DAMAGED_SCAN
            column += run
            mcu += run
        mcu = (row + 1) * across
        if wanted:
            _resample_mcu_row(frame, scratch, row - first_row, first_column, taps, padded)
            done = row - first_row + 1
            last = row == last_row - 1
            emitted = _emit_rows(frame, scratch, emitted, first_row, done, last, taps, output, factors, table, target)
    return OK


@merged
def decode_picture(
    address: int,
    size: int,
    height: int,
    width: int,
    box: Box,
    output: Array,
    factors: Array,
    table: Array,
    target: int,
    scratch: Scratch,
) -> int:
    """Decode the crop of one JPEG into the batch.

    Parameters
    ----------
    address, size : int
        The JPEG in memory.
    height, width : int
        What the file's metadata say of it.
    box : tuple of int
        Top, left, height and width of the crop in pixels; flip; shift down and across in output pixels.
    output, factors, table : ndarray
        What the program wants, see `output` and `finish`.
    target : int
        Address of the output image.
    scratch : Scratch
        The worker's memory.

    Returns
    -------
    int
        A code of `codes`; the output image is complete if it is OK, and of no value otherwise.
    """
    frame = scratch.frame
    code = read_headers(address, size, frame, scratch.tables)
    if code != OK:
        return code
    if frame[WIDTH] != width or frame[HEIGHT] != height:
        return WRONG_SIZE
    mcus = frame[MCUS_ACROSS] * frame[MCUS_DOWN]
    intervals = 1 if frame[RESTART_INTERVAL] == 0 else -(-mcus // frame[RESTART_INTERVAL])
    if intervals > scratch.starts.size:
        return MANY_INTERVALS
    scan = scratch.scan.ctypes.data
    code = unstuff(
        address + frame[SCAN], address + size, scan, scan + scratch.scan.size, scratch.starts, scratch.ends, intervals
    )
    if code != OK:
        return code
    return _decode_rows(frame, scratch, box, output, factors, table, target)
