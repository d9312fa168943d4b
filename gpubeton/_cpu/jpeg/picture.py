"""One JPEG: decode its crops, resample each to its output's size, and store the rows in the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._compile.compile import compiled, device_function, inline_untyped
from gpubeton._compile.intrinsics import signed
from gpubeton._cpu.epilogue import BYTES, INTERPOLATION, ITEM_SIZE, METHOD, OUT_HEIGHT, OUT_WIDTH, Outputs, store_row
from gpubeton._cpu.image_tasks import (
    ADDRESS,
    EMITTED,
    ENTRIES,
    FIRST_COLUMN,
    FIRST_ROW,
    IMAGE_HEIGHT,
    IMAGE_WIDTH,
    LAST_COLUMN,
    LAST_ROW,
    NUM_ENTRIES,
    SEAL,
    SIZE,
    TAPS,
    VIEW_HEIGHT,
    VIEW_LEFT,
    VIEW_PROGRAM,
    VIEW_TARGET,
    VIEW_TOP,
    VIEW_WIDTH,
    Scratch,
    allocate,
    box_of,
    epilogue_of,
    next_stretch,
)
from gpubeton._cpu.jpeg.codes import DAMAGED_HEADER, DAMAGED_SCAN, ODD_SAMPLING, OK, WRONG_SIZE
from gpubeton._cpu.jpeg.huffman import (
    AC_LOOKUP,
    AC_SLOT,
    DC_LOOKUP,
    DC_SLOT,
    MAX_BLOCKS,
    MULTIPLIERS,
    PAIR_LOOKUP,
    PREDICTOR,
    SKIP_LOOKUP,
    STRIP,
    STRIP_STEP,
)
from gpubeton._cpu.jpeg.idct import COLUMN_BYTES
from gpubeton._cpu.jpeg.intervals import find_intervals, is_index_of, read_mcus, take_index
from gpubeton._cpu.jpeg.markers import (
    AC_TABLE,
    COMPONENTS,
    DC_TABLE,
    HEIGHT,
    LUMA_ACROSS,
    LUMA_DOWN,
    MCUS_ACROSS,
    MCUS_DOWN,
    QUANTIZATION,
    SAMPLING,
    WIDTH,
    read_headers,
)
from gpubeton._cpu.jpeg.ycbcr import COLUMNS, PIXELS, resample_pair, resample_single, rgb_row
from gpubeton._cpu.taps import BICUBIC, SIGNED_BITS, TapCounts, effective, fill_axis, fill_axis_pair

if TYPE_CHECKING:
    from gpubeton._compile.intrinsics import Array

# Cb or Cr of a gray image, times 256.
_NEUTRAL = 128 << 8
_HALF, _SIGNED_HALF = (1 << 15) * 65537, (1 << (SIGNED_BITS - 1)) * 65537


@device_function
def _describe_block(frame: Array, scratch: Scratch, component: int, row: Array) -> None:
    """Fill one row of `scratch.blocks`, except for the addresses of its samples."""
    tables = scratch.tables
    dc, ac = frame[DC_TABLE + component], frame[AC_TABLE + component]
    row[DC_SLOT] = dc
    row[AC_SLOT] = 4 + ac
    row[DC_LOOKUP] = tables.single[dc].ctypes.data
    row[AC_LOOKUP] = tables.single[4 + ac].ctypes.data
    row[PAIR_LOOKUP] = tables.pair[ac].ctypes.data
    row[SKIP_LOOKUP] = tables.skip[ac].ctypes.data
    row[MULTIPLIERS] = tables.multipliers[frame[QUANTIZATION + component]].ctypes.data
    row[PREDICTOR] = scratch.predictors.ctypes.data + 8 * component


@device_function
def describe_blocks(frame: Array, scratch: Scratch) -> int:
    """Describe all blocks of an MCU of usual sampling; return their number."""
    luma_blocks = frame[LUMA_ACROSS] * frame[LUMA_DOWN]
    count: int = luma_blocks + frame[COMPONENTS] - 1
    for i in range(count):
        _describe_block(frame, scratch, max(0, i - luma_blocks + 1), scratch.blocks[i])
    return count


@device_function
def _place_blocks(frame: Array, scratch: Scratch) -> int:
    """Describe the blocks of an MCU, and where their samples go; return their number."""
    across = frame[LUMA_ACROSS]
    luma_blocks = across * frame[LUMA_DOWN]
    luma, chroma = scratch.strips[0].ctypes.data, scratch.strips[1].ctypes.data
    count: int = describe_blocks(frame, scratch)
    for i in range(count):
        row = scratch.blocks[i]
        # Two blocks share a column: luma blocks one below the other, Cb and Cr.
        if i < luma_blocks:
            row[STRIP] = luma + (i // across) * (COLUMN_BYTES // 2) + (i % across) * 8 * COLUMN_BYTES
            row[STRIP_STEP] = across * 8 * COLUMN_BYTES
        else:
            row[STRIP] = chroma + (i - luma_blocks) * (COLUMN_BYTES // 2)
            row[STRIP_STEP] = 8 * COLUMN_BYTES
    return count


@device_function
def _fill_taps(frame: Array, scratch: Scratch, place: int, output: Array) -> TapCounts:
    """Compute a view's taps across and down; return the numbers of luma and chroma taps across, and down."""
    top, left, height, width, flip, shift_y, shift_x, resized_height, resized_width = box_of(scratch.views[place])
    first, words, row = scratch.first[place], scratch.words[place], scratch.row
    rows, columns = output[OUT_HEIGHT], output[OUT_WIDTH]
    rule = effective(output[INTERPOLATION], height, width, resized_height, resized_width)
    halves_across, halves_down = frame[LUMA_ACROSS] == 2, frame[LUMA_DOWN] == 2
    chroma_width, chroma_height = (frame[WIDTH] + 1) // 2, (frame[HEIGHT] + 1) // 2
    # libjpeg repeats the chroma samples of images up to four pixels wide instead of interpolating them.
    fancy = not halves_across or chroma_width > 2
    if halves_across:
        across, chroma_across = fill_axis_pair(
            rule, left, width, columns, resized_width, shift_x, flip, chroma_width, fancy, first[0:2], words[0:2], row
        )
    else:
        across = fill_axis(rule, left, width, columns, resized_width, shift_x, flip, first[0], words[0], row)
        chroma_across = across
    if halves_down:
        down, chroma_down = fill_axis_pair(
            rule, top, height, rows, resized_height, shift_y, False, chroma_height, fancy, first[2:4], words[2:4], row
        )
    else:
        down = fill_axis(rule, top, height, rows, resized_height, shift_y, False, first[2], words[2], row)
        # A gray image has two rows of neutral chroma for all its rows.
        chroma_down = down if frame[COMPONENTS] == 3 else 2
    # The unrolled loops begin with two taps; the weight of an unused one is zero.
    return max(across, 2), max(chroma_across, 2), max(down, 2), max(chroma_down, 2)


@device_function
def _padded(output: Array) -> int:
    """Return the width of an output's planes."""
    width: int = -(-output[OUT_WIDTH] // PIXELS) * PIXELS
    return width


@device_function
def _prepare_view(frame: Array, scratch: Scratch, place: int, output: Array) -> None:
    """Compute the MCUs that a view needs, and its taps."""
    view = scratch.views[place]
    mcu_width, mcu_height = 8 * frame[LUMA_ACROSS], 8 * frame[LUMA_DOWN]
    # One pixel around the crop: interpolated chroma reaches that far.
    view[FIRST_COLUMN] = max(0, view[VIEW_LEFT] - 1) // mcu_width
    view[FIRST_ROW] = max(0, view[VIEW_TOP] - 1) // mcu_height
    view[LAST_COLUMN] = min(frame[MCUS_ACROSS], (view[VIEW_LEFT] + view[VIEW_WIDTH] + mcu_width) // mcu_width)
    view[LAST_ROW] = min(frame[MCUS_DOWN], (view[VIEW_TOP] + view[VIEW_HEIGHT] + mcu_height) // mcu_height)
    view[TAPS], view[TAPS + 1], view[TAPS + 2], view[TAPS + 3] = _fill_taps(frame, scratch, place, output)
    view[EMITTED] = 0
    if frame[COMPONENTS] == 1:
        # A gray image: two rows of neutral chroma, and each output row takes half of both.
        scratch.planes[place, 1:3, : 2 * _padded(output)] = _NEUTRAL
        scratch.first[place, 3, :] = 0
        scratch.words[place, 3, :, :] = 0
        scratch.words[place, 3, :, 0:2] = _SIGNED_HALF if output[INTERPOLATION] == BICUBIC else _HALF


@device_function
def _resample_mcu_row(
    frame: Array, scratch: Scratch, place: int, row: int, origin: int, width: int, is_signed: int
) -> None:
    """Resample one row of MCUs, `row` counted from the view's first, into the view's planes."""
    view, planes = scratch.views[place], scratch.planes[place]
    stride = 2 * width
    groups = width // COLUMNS
    words, word_stride = scratch.words[place].ctypes.data, scratch.words.strides[2]
    step = scratch.words.strides[1]
    first, first_step = scratch.first[place].ctypes.data, scratch.first.strides[1]
    luma = scratch.strips[0].ctypes.data - origin * frame[LUMA_ACROSS] * 8 * COLUMN_BYTES
    rows = planes[0].ctypes.data + row * frame[LUMA_DOWN] * 8 * stride
    if frame[LUMA_DOWN] == 2:
        resample_pair(luma, rows, rows + 8 * stride, stride, first, words, word_stride, view[TAPS], groups, is_signed)
    else:
        resample_single(luma, rows, stride, first, words, word_stride, view[TAPS], groups, is_signed)
    if frame[COMPONENTS] == 3:
        chroma_axis = frame[LUMA_ACROSS] - 1
        chroma = scratch.strips[1].ctypes.data - origin * 8 * COLUMN_BYTES
        blue = planes[1].ctypes.data + row * 8 * stride
        red = planes[2].ctypes.data + row * 8 * stride
        first, words = first + chroma_axis * first_step, words + chroma_axis * step
        resample_pair(chroma, blue, red, stride, first, words, word_stride, view[TAPS + 1], groups, is_signed)


@device_function
def _emit_rows(frame: Array, scratch: Scratch, place: int, stop: int, outputs: Outputs) -> None:
    """Write the output rows of a view whose source rows are decoded: those in the MCU rows before `stop`."""
    # Taps may reach past the view's last MCU row, with weights of zero: then all rows are written.
    view, first, words, planes = scratch.views[place], scratch.first[place], scratch.words[place], scratch.planes[place]
    output, factors, table = epilogue_of(view, outputs)
    first_mcu_row, last = view[FIRST_ROW], stop == view[LAST_ROW]
    luma_taps, chroma_taps = view[TAPS + 2], view[TAPS + 3]
    height, columns = output[OUT_HEIGHT], output[OUT_WIDTH]
    width = _padded(output)
    stride = 2 * width
    gray = frame[COMPONENTS] == 1
    chroma_axis = 3 if gray or frame[LUMA_DOWN] == 2 else 2
    luma_rows, chroma_rows = stop * 8 * frame[LUMA_DOWN], stop * 8
    luma = planes[0].ctypes.data - first_mcu_row * 8 * frame[LUMA_DOWN] * stride
    chroma_origin = 0 if gray else first_mcu_row * 8 * stride
    blue = planes[1].ctypes.data - chroma_origin
    red = planes[2].ctypes.data - chroma_origin
    pixels, is_signed = signed(scratch.pixels.ctypes.data), int(output[INTERPOLATION] == BICUBIC)
    row = view[EMITTED]
    while row < height:
        luma_first, chroma_first = first[2, row], first[chroma_axis, row]
        ready = luma_first + luma_taps <= luma_rows and (gray or chroma_first + chroma_taps <= chroma_rows)
        if not (ready or last):
            break
        target = view[VIEW_TARGET] + row * columns * 3 * output[ITEM_SIZE]
        # Bytes go to the output directly if those written after the row, less than PIXELS, belong to the next row.
        at_once = output[METHOD] == BYTES and columns >= PIXELS and row < height - 1
        rgb_row(
            luma + luma_first * stride,
            blue + chroma_first * stride,
            red + chroma_first * stride,
            stride,
            words[2, row].ctypes.data,
            luma_taps,
            words[chroma_axis, row].ctypes.data,
            chroma_taps,
            target if at_once else pixels,
            width // PIXELS,
            is_signed,
        )
        if not at_once:
            store_row(pixels, target, columns, output[METHOD], factors, table)
        row += 1
    view[EMITTED] = row


@device_function
def _decode_row(frame: Array, scratch: Scratch, count: int, row: int, blocks: int, origin: int) -> int:
    """Decode the MCUs of one row that the first `count` views need; return a code of `codes`."""
    start = row * frame[MCUS_ACROSS]
    column = 0
    while True:
        begin, column = next_stretch(scratch.views, count, row, column)
        if begin == column:
            return OK
        code = read_mcus(start + begin, start + column, True, start, origin, blocks, scratch)
        if code != OK:
            return code


@inline_untyped
def _decode_rows(frame: Array, scratch: Scratch, count: int, outputs: Outputs) -> int:
    """Decode the rows of MCUs that are needed; views resample each row while it is in the cache."""
    views = scratch.views
    origin, first_row, last_row = frame[MCUS_ACROSS], frame[MCUS_DOWN], 0
    for place in range(count):
        _prepare_view(frame, scratch, place, outputs.settings[views[place, VIEW_PROGRAM]])
        origin = min(origin, views[place, FIRST_COLUMN])
        first_row, last_row = min(first_row, views[place, FIRST_ROW]), max(last_row, views[place, LAST_ROW])
    blocks = _place_blocks(frame, scratch)
    for row in range(first_row, last_row):
        code = _decode_row(frame, scratch, count, row, blocks, origin)
        if code != OK:
            return code
        for place in range(count):
            if views[place, FIRST_ROW] <= row < views[place, LAST_ROW]:
                output = outputs.settings[views[place, VIEW_PROGRAM]]
                padded, is_signed = _padded(output), int(output[INTERPOLATION] == BICUBIC)
                _resample_mcu_row(frame, scratch, place, row - views[place, FIRST_ROW], origin, padded, is_signed)
                _emit_rows(frame, scratch, place, row + 1, outputs)
    return OK


@inline_untyped
def decode_picture(
    task: Array,  # (TASK_FIELDS,) int64: a JPEG; NUM_ENTRIES is set to -1 if its entry points are wrong
    count: int,  # number of views: the first rows of `scratch.views`
    outputs: Outputs,
    scratch: Scratch,
) -> int:
    """Decode all crops of one JPEG into the batch, in one pass; return a code of `codes`."""
    frame = scratch.frame
    address, size = task[ADDRESS], task[SIZE]
    code = read_headers(address, size, frame, scratch.tables)
    if code != OK:
        return code
    if frame[WIDTH] != task[IMAGE_WIDTH] or frame[HEIGHT] != task[IMAGE_HEIGHT]:
        return WRONG_SIZE
    mcus = frame[MCUS_ACROSS] * frame[MCUS_DOWN]
    while True:
        has_index = task[NUM_ENTRIES] > 0
        if has_index:
            is_used = is_index_of(address, frame, size, task[ENTRIES], task[NUM_ENTRIES], task[SEAL])
            code = OK if is_used else DAMAGED_SCAN
            take_index(address, size, frame, mcus, task[ENTRIES], scratch)
        else:
            code = find_intervals(address, size, frame, mcus, scratch)
        if code == OK:
            code = _decode_rows(frame, scratch, count, outputs)
        if code == OK or not has_index:
            return code
        # Without the index, its contents do not matter.
        task[NUM_ENTRIES] = -1


# --- a whole scan, without pixels -------------------------------------------------------------------------------------


def check_scan(data: bytes) -> int:
    """Check the data of a baseline JPEG of unusual sampling; return a code of `codes`."""
    scratch = allocate((8, 8, len(data)), (8, 8), 1)
    content = np.frombuffer(data, np.uint8)
    return int(_check(content.ctypes.data, len(data), scratch))


@device_function
def _describe_mcu(frame: Array, scratch: Scratch) -> tuple[int, int, int]:
    """Fill `scratch.blocks`; return the blocks of an MCU (0: too many) and its width and height."""
    count, across, down = 0, 1, 1
    for component in range(frame[COMPONENTS]):
        factor_across, factor_down = frame[SAMPLING + component] >> 4, frame[SAMPLING + component] & 15
        is_known = 1 <= factor_across <= 4 and 1 <= factor_down <= 4
        if not is_known or count + factor_across * factor_down > MAX_BLOCKS:
            return 0, 0, 0
        for _ in range(factor_across * factor_down):
            _describe_block(frame, scratch, component, scratch.blocks[count])
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
    code = find_intervals(address, size, frame, mcus, scratch)
    return read_mcus(0, mcus, False, 0, 0, blocks, scratch) if code == OK else code
