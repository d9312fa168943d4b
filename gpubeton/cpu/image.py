"""One image of a batch, whichever way it is stored, and the other views of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.colours import change_colours
from gpubeton.cpu.compile import merged, stage
from gpubeton.cpu.jpeg.codes import OK, WRONG_CROP, WRONG_SIZE
from gpubeton.cpu.jpeg.picture import decode_picture
from gpubeton.cpu.memory import load_u8, store_i16, store_u8
from gpubeton.cpu.output import EARLY_PAINTS, IS_GRAY, ITEM_SIZE, NUM_STEPS, STEPS, Outputs
from gpubeton.cpu.output import HEIGHT as OUTPUT_HEIGHT
from gpubeton.cpu.output import WIDTH as OUTPUT_WIDTH
from gpubeton.cpu.paint import paint
from gpubeton.cpu.rgb import resample_rgb
from gpubeton.cpu.views import IMAGE, box_of, finish_of, makes_levels
from gpubeton.cpu.views import PROGRAM as VIEW_PROGRAM
from gpubeton.cpu.views import TARGET as VIEW_TARGET
from gpubeton.plan.draws import HEIGHT, LEFT, NUM_PAINTS, SHIFT_X, TOP, WIDTH

if TYPE_CHECKING:
    from gpubeton.cpu.scratch import Scratch
    from gpubeton.cpu.types import Array

# Columns of a task, int64: an image to be made.
ADDRESS = 0
SIZE = 1
IMAGE_HEIGHT = 2  # as the file's metadata have it
IMAGE_WIDTH = 3
MODE = 4
PROGRAM = 5
TARGET = 6  # address of the output image
NEXT_VIEW = 7  # the next image of the batch that is made of the same stored one, together with this; 0: none
IS_LED = 8  # 1: it is made together with one before it
TASK_FIELDS = 9

# Modes: how the bytes at ADDRESS are to be read. The first two are the file format's, of RGB images.
JPEG = 0
RAW = 1
PLAIN = 2  # raw pixels of another kind, see `plain`
PACKED = 3  # a file that Python unpacks into RAW or PLAIN


@stage
def _take_views(tasks: Array, draws: Array, codes: Array, image: int, outputs: Outputs, scratch: Scratch) -> int:
    """List an image and its other views in the worker's memory, as far as their crops can be; return their number."""
    height, width = tasks[image, IMAGE_HEIGHT], tasks[image, IMAGE_WIDTH]
    count = 0
    while True:
        draw, program = draws[image], tasks[image, PROGRAM]
        codes[image] = OK
        is_empty = draw[TOP] < 0 or draw[LEFT] < 0 or draw[HEIGHT] < 1 or draw[WIDTH] < 1
        if is_empty or draw[TOP] + draw[HEIGHT] > height or draw[LEFT] + draw[WIDTH] > width:
            codes[image] = WRONG_CROP
        else:
            view = scratch.views[count]
            # Both begin with top, left, height, width, flip and shifts.
            for column in range(SHIFT_X + 1):
                view[column] = draw[column]
            view[IMAGE], view[VIEW_PROGRAM] = image, program
            view[VIEW_TARGET] = tasks[image, TARGET]
            if makes_levels(outputs.settings[program]):
                view[VIEW_TARGET] = scratch.levels[count].ctypes.data
            count += 1
        image = tasks[image, NEXT_VIEW]
        if image == 0:
            return count


@stage
def _finish_gray(final: Array, levels: int, table: Array, target: int) -> None:
    """Finish the levels of a gray JPEG, of three equal channels each, into the batch; of others their brightness."""
    size = final[ITEM_SIZE]
    for i in range(final[OUTPUT_HEIGHT] * final[OUTPUT_WIDTH]):
        pixel = levels + 3 * i
        # Pillow's weights, which add up to one.
        level = (19595 * load_u8(pixel) + 38470 * load_u8(pixel + 1) + 7471 * load_u8(pixel + 2) + 32768) >> 16
        bits = table[level, 0]
        if size == 1:
            store_u8(target + i, bits)
        else:
            store_i16(target + i * size, bits)
            if size == 4:
                store_i16(target + i * size + 2, bits >> 16)


@stage
def _finish_view(draw: Array, place: int, target: int, outputs: Outputs, scratch: Scratch) -> None:
    """Paint a view and change its colours."""
    view = scratch.views[place]
    output, factors, table = finish_of(view, outputs)
    program = view[VIEW_PROGRAM]
    final, own_table = outputs.settings[program], outputs.tables[program]
    paint(draw, output, outputs.fills, table, view[VIEW_TARGET], 0, final[EARLY_PAINTS])
    if final[IS_GRAY] != 0:
        _finish_gray(final, view[VIEW_TARGET], own_table, target)
        return
    if final[NUM_STEPS] > 0:
        rows, columns = final[OUTPUT_HEIGHT], final[OUTPUT_WIDTH]
        image = scratch.levels[place][: 3 * rows * columns].reshape((rows, columns, 3))
        steps = draw[final[STEPS] : final[STEPS] + 2 * final[NUM_STEPS]]
        change_colours(image, steps, outputs.own[program], scratch.colours, target, final, factors, own_table)
    paint(draw, final, outputs.fills, own_table, target, final[EARLY_PAINTS], draw[NUM_PAINTS])


@merged
def make_image(tasks: Array, draws: Array, codes: Array, image: int, outputs: Outputs, scratch: Scratch) -> int:
    """Make one output image, and the other views of what it is made of.

    Parameters
    ----------
    tasks : ndarray of int64, shape (T, TASK_FIELDS)
        The images of a batch, see the names at the top of this file.
    draws : ndarray of int32, shape (T, D)
        Their crops, flips, shifts and paints, see `gpubeton.plan.draws`; behind them the steps on their colours.
    codes : ndarray of int64, shape (T,)
        Written, for the image and its views: codes of `jpeg.codes`. An output image is complete if its own is OK, and
        of no value otherwise.
    image : int
        Which one.
    outputs : Outputs
        What each program wants.
    scratch : Scratch
        The worker's memory.

    Returns
    -------
    int
        What became of the stored image.
    """
    count = _take_views(tasks, draws, codes, image, outputs, scratch)
    task = tasks[image]
    height, width = task[IMAGE_HEIGHT], task[IMAGE_WIDTH]
    code = OK
    if task[MODE] != JPEG and task[SIZE] != height * width * 3:
        code = WRONG_SIZE
    elif task[MODE] == JPEG and count > 0:
        code = decode_picture(task[ADDRESS], task[SIZE], height, width, count, outputs, scratch)
    for place in range(count):
        view = scratch.views[place]
        own = view[IMAGE]
        if code == OK and task[MODE] != JPEG:
            output, factors, table = finish_of(view, outputs)
            box = box_of(view)
            resample_rgb(task[ADDRESS], 3 * width, box, output, factors, table, view[VIEW_TARGET], scratch)
        if code == OK:
            _finish_view(draws[own], place, tasks[own, TARGET], outputs, scratch)
        codes[own] = code
    return code
