"""One JPEG: its crops, each resampled to its output's size, as rows of 8-bit RGB finished into the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from gpubeton.cpu.output import INTERPOLATION, ITEM_SIZE, METHOD, Outputs
from gpubeton.cpu.output import WIDTH as OUTPUT_WIDTH
from gpubeton.cpu.taps import effective, fill_axis, fill_axis_pair
from gpubeton.cpu.views import (
    EMITTED,
    FIRST_COLUMN,
    FIRST_ROW,
    LAST_COLUMN,
    LAST_ROW,
    LEFT,
    PROGRAM,
    TAPS,
    TARGET,
    TOP,
    box_of,
    finish_of,
    last_column,
    next_stretch,
)
from gpubeton.cpu.views import HEIGHT as CROP_HEIGHT
from gpubeton.cpu.views import WIDTH as CROP_WIDTH

if TYPE_CHECKING:
    from gpubeton.cpu.scratch import Scratch
    from gpubeton.cpu.types import Array, Reader, TapCounts

# Cb or Cr of a gray image, times 256.
_NEUTRAL = 128 << 8
_HALF = (1 << 15) * 65537


@stage
def describe_block(frame: Array, scratch: Scratch, component: int, row: Array) -> None:
    """Fill one row of `scratch.blocks`, but for where its samples go."""
    tables = scratch.tables
    dc, ac = frame[DC_TABLE + component], frame[AC_TABLE + component]
    row[DC_SLOT] = dc
    row[AC_SLOT] = 4 + ac
    row[DC_LOOKUP] = tables.single[dc].ctypes.data
    row[AC_LOOKUP] = tables.single[4 + ac].ctypes.data
    row[PAIR_LOOKUP] = tables.pair[ac].ctypes.data
    row[SKIP_LOOKUP] = tables.skip[ac].ctypes.data
    row[MULTIPLIERS] = tables.multipliers[frame[QUANTISATION + component]].ctypes.data
    row[PREDICTOR] = scratch.predictors.ctypes.data + 8 * component


@stage
def _describe_blocks(frame: Array, scratch: Scratch) -> int:
    """Fill `scratch.blocks` and return how many blocks an MCU has."""
    across = frame[LUMA_ACROSS]
    luma_blocks = across * frame[LUMA_DOWN]
    count: int = luma_blocks + frame[COMPONENTS] - 1
    luma, chroma = scratch.strips[0].ctypes.data, scratch.strips[1].ctypes.data
    for i in range(count):
        component = max(0, i - luma_blocks + 1)
        row = scratch.blocks[i]
        describe_block(frame, scratch, component, row)
        # Two blocks share a column: luma blocks one below the other, Cb and Cr.
        if component == 0:
            row[STRIP] = luma + (i // across) * (COLUMN_BYTES // 2) + (i % across) * 8 * COLUMN_BYTES
            row[STRIP_STEP] = across * 8 * COLUMN_BYTES
        else:
            row[STRIP] = chroma + (component - 1) * (COLUMN_BYTES // 2)
            row[STRIP_STEP] = 8 * COLUMN_BYTES
    return count


@stage
def _fill_taps(frame: Array, scratch: Scratch, place: int, output: Array) -> TapCounts:
    """Compute a view's taps across and down; return the numbers of luma and chroma taps across, and down."""
    top, left, height, width, flip, shift_y, shift_x = box_of(scratch.views[place])
    first, words, row = scratch.first[place], scratch.words[place], scratch.row
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
def _padded(output: Array) -> int:
    """Return how many pixels the rows of an output's planes have."""
    width: int = -(-output[OUTPUT_WIDTH] // COLOUR_GROUP) * COLOUR_GROUP
    return width


@stage
def _paint_neutral(scratch: Scratch, place: int, width: int) -> None:
    """Give a view of a gray image two rows of neutral chroma, and each output row half of both."""
    scratch.planes[place, 1:3, : 2 * width] = _NEUTRAL
    scratch.first[place, 3, :] = 0
    scratch.words[place, 3, :, :] = 0
    scratch.words[place, 3, :, 0:2] = _HALF


@stage
def _begin_view(frame: Array, scratch: Scratch, place: int, output: Array) -> None:
    """Find out which MCUs a view needs, and its weights."""
    view = scratch.views[place]
    mcu_width, mcu_height = 8 * frame[LUMA_ACROSS], 8 * frame[LUMA_DOWN]
    # One pixel around the crop: interpolated chroma reaches that far.
    view[FIRST_COLUMN] = max(0, view[LEFT] - 1) // mcu_width
    view[FIRST_ROW] = max(0, view[TOP] - 1) // mcu_height
    view[LAST_COLUMN] = min(frame[MCUS_ACROSS], (view[LEFT] + view[CROP_WIDTH] + mcu_width) // mcu_width)
    view[LAST_ROW] = min(frame[MCUS_DOWN], (view[TOP] + view[CROP_HEIGHT] + mcu_height) // mcu_height)
    view[TAPS], view[TAPS + 1], view[TAPS + 2], view[TAPS + 3] = _fill_taps(frame, scratch, place, output)
    view[EMITTED] = 0
    if frame[COMPONENTS] == 1:
        _paint_neutral(scratch, place, _padded(output))


@stage
def _resample_mcu_row(frame: Array, scratch: Scratch, place: int, row: int, origin: int, width: int) -> None:
    """Resample one row of MCUs, `row` counted from the view's first, into the view's planes."""
    view, planes = scratch.views[place], scratch.planes[place]
    stride = 2 * width
    groups = width // STRIP_GROUP
    words, word_stride = scratch.words[place].ctypes.data, scratch.words.strides[2]
    step = scratch.words.strides[1]
    first, first_step = scratch.first[place].ctypes.data, scratch.first.strides[1]
    luma = scratch.strips[0].ctypes.data - origin * frame[LUMA_ACROSS] * 8 * COLUMN_BYTES
    rows = planes[0].ctypes.data + row * frame[LUMA_DOWN] * 8 * stride
    if frame[LUMA_DOWN] == 2:
        resample_pair(luma, rows, rows + 8 * stride, stride, first, words, word_stride, view[TAPS], groups)
    else:
        resample_single(luma, rows, stride, first, words, word_stride, view[TAPS], groups)
    if frame[COMPONENTS] == 3:
        own = frame[LUMA_ACROSS] - 1
        chroma = scratch.strips[1].ctypes.data - origin * 8 * COLUMN_BYTES
        blue = planes[1].ctypes.data + row * 8 * stride
        red = planes[2].ctypes.data + row * 8 * stride
        resample_pair(
            chroma, blue, red, stride, first + own * first_step, words + own * step, word_stride, view[TAPS + 1], groups
        )


@stage
def _emit_rows(frame: Array, scratch: Scratch, place: int, stop: int, outputs: Outputs) -> None:
    """Write the output rows of a view whose source rows are there, those of the MCU rows before `stop`.

    If that is where the view's own end, all are written.
    """
    view, first, words, planes = scratch.views[place], scratch.first[place], scratch.words[place], scratch.planes[place]
    output, factors, table = finish_of(view, outputs)
    first_mcu_row, last = view[FIRST_ROW], stop == view[LAST_ROW]
    luma_taps, chroma_taps = view[TAPS + 2], view[TAPS + 3]
    height, columns = output[OUTPUT_HEIGHT], output[OUTPUT_WIDTH]
    width = _padded(output)
    stride = 2 * width
    gray = frame[COMPONENTS] == 1
    own = 3 if gray or frame[LUMA_DOWN] == 2 else 2
    luma_rows, chroma_rows = stop * 8 * frame[LUMA_DOWN], stop * 8
    luma = planes[0].ctypes.data - first_mcu_row * 8 * frame[LUMA_DOWN] * stride
    chroma_origin = 0 if gray else first_mcu_row * 8 * stride
    blue = planes[1].ctypes.data - chroma_origin
    red = planes[2].ctypes.data - chroma_origin
    pixels = scratch.pixels.ctypes.data
    row = view[EMITTED]
    while row < height:
        luma_first, chroma_first = first[2, row], first[own, row]
        ready = luma_first + luma_taps <= luma_rows and (gray or chroma_first + chroma_taps <= chroma_rows)
        if not (ready or last):
            break
        colour_row(
            luma + luma_first * stride,
            blue + chroma_first * stride,
            red + chroma_first * stride,
            stride,
            words[2, row].ctypes.data,
            luma_taps,
            words[own, row].ctypes.data,
            chroma_taps,
            pixels,
            width // COLOUR_GROUP,
        )
        target = view[TARGET] + row * columns * 3 * output[ITEM_SIZE]
        finish_row(pixels, target, columns, output[METHOD], factors, table)
        row += 1
    view[EMITTED] = row


@stage
def fits(reader: Reader, end: int, at_end: bool) -> bool:
    """Return whether a reader is inside a restart interval that ends at an address, and has left no byte at its end.

    Whole bytes that no MCU took: a wrong code earlier made the decoder lose step. libjpeg-turbo warns of them, too.
    """
    left = end * 8 - (reader[2] * 8 - reader[1])
    return left >= 0 and not (at_end and left >= 8)


@stage
def _decode_row(
    frame: Array, scratch: Scratch, count: int, reader: Reader, blocks: int, origin: int, first: int, last: int
) -> tuple[Reader, bool]:
    """Read the MCUs `first` to `last`, which are of one row, and decode those that the first `count` views want.

    Returns the reader, and whether the data were sound.
    """
    across = frame[MCUS_ACROSS]
    interval = frame[RESTART_INTERVAL] if frame[RESTART_INTERVAL] > 0 else across * frame[MCUS_DOWN]
    row = first // across
    mcu = first
    while mcu < last:
        current = mcu // interval
        if mcu % interval == 0:
            reader = (0, 0, scratch.starts[current])
            scratch.predictors[:] = 0
        column = mcu - row * across
        begin, end, more = next_stretch(scratch.views, count, row, column)
        run = min(last, (current + 1) * interval) - mcu
        if more:
            run = min(run, end - column)
        reader, sound = decode_mcus(
            reader,
            scratch.ends[current] + PADDING,
            column,
            column + run,
            begin,
            end,
            origin,
            scratch.blocks.ctypes.data,
            blocks,
            scratch.tables,
            scratch.coefficients.ctypes.data,
            scratch.zigzag.ctypes.data,
        )
        mcu += run
        at_end = mcu == min((current + 1) * interval, across * frame[MCUS_DOWN])
        if not sound or not fits(reader, scratch.ends[current], at_end):
            return reader, False
    return reader, True


@merged
def _decode_rows(frame: Array, scratch: Scratch, count: int, outputs: Outputs) -> int:
    """Decode the rows of MCUs down to the last that is wanted; views take what they need while it is in the cache."""
    across = frame[MCUS_ACROSS]
    interval = frame[RESTART_INTERVAL] if frame[RESTART_INTERVAL] > 0 else across * frame[MCUS_DOWN]
    views = scratch.views
    origin, first_row, last_row = across, frame[MCUS_DOWN], 0
    for place in range(count):
        _begin_view(frame, scratch, place, outputs.settings[views[place, PROGRAM]])
        origin = min(origin, views[place, FIRST_COLUMN])
        first_row, last_row = min(first_row, views[place, FIRST_ROW]), max(last_row, views[place, LAST_ROW])
    blocks = _describe_blocks(frame, scratch)
    reader = (0, 0, 0)
    # Whole restart intervals above the crops need not be read at all.
    mcu = (first_row * across) // interval * interval
    for row in range(mcu // across, last_row):
        stop = last_column(views, count, row) if row == last_row - 1 else across
        reader, sound = _decode_row(frame, scratch, count, reader, blocks, origin, mcu, row * across + stop)
        if not sound:
            return DAMAGED_SCAN
        mcu = (row + 1) * across
        for place in range(count):
            if views[place, FIRST_ROW] <= row < views[place, LAST_ROW]:
                padded = _padded(outputs.settings[views[place, PROGRAM]])
                _resample_mcu_row(frame, scratch, place, row - views[place, FIRST_ROW], origin, padded)
                _emit_rows(frame, scratch, place, row + 1, outputs)
    return OK


@merged
def decode_picture(
    address: int, size: int, height: int, width: int, count: int, outputs: Outputs, scratch: Scratch
) -> int:
    """Decode the crops of one JPEG into the batch, all in one pass over it.

    Parameters
    ----------
    address, size : int
        The JPEG in memory.
    height, width : int
        What the file's metadata say of it.
    count : int
        Number of views: the first rows of ``scratch.views`` say where they are cut and written.
    outputs : Outputs
        What each program wants.
    scratch : Scratch
        The worker's memory.

    Returns
    -------
    int
        A code of `codes`; the output images are complete if it is OK, and of no value otherwise.
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
    return _decode_rows(frame, scratch, count, outputs)
