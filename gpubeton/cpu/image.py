"""One image of a batch, whichever way it is stored."""

from __future__ import annotations

from gpubeton.cpu.colours import change_colours
from gpubeton.cpu.compile import merged, stage
from gpubeton.cpu.finish import finish_row
from gpubeton.cpu.jpeg.codes import OK, WRONG_CROP, WRONG_SIZE
from gpubeton.cpu.jpeg.picture import decode_picture
from gpubeton.cpu.output import EARLY_PAINTS, METHOD, NUM_STEPS, STEPS, Outputs
from gpubeton.cpu.output import HEIGHT as OUTPUT_HEIGHT
from gpubeton.cpu.output import WIDTH as OUTPUT_WIDTH
from gpubeton.cpu.paint import paint
from gpubeton.cpu.rgb import resample_rgb
from gpubeton.cpu.scratch import Scratch
from gpubeton.cpu.types import Array
from gpubeton.plan.draws import FLIP, HEIGHT, LEFT, NUM_PAINTS, SHIFT_X, SHIFT_Y, TOP, WIDTH

# Columns of a task, int64: an image to be made.
ADDRESS = 0
SIZE = 1
IMAGE_HEIGHT = 2  # as the file's metadata have it
IMAGE_WIDTH = 3
MODE = 4
PROGRAM = 5
TARGET = 6  # address of the output image
TASK_FIELDS = 7

# Modes: how the bytes at ADDRESS are to be read. The first two are the file format's, of RGB images.
JPEG = 0
RAW = 1
PLAIN = 2  # raw pixels of another kind, see `plain`
PACKED = 3  # a file that Python unpacks into RAW or PLAIN


@stage
def _finish_colours(
    draw: Array, final: Array, own: Array, factors: Array, table: Array, target: int, scratch: Scratch
) -> None:
    """Change the colours of the levels that were made, and finish them into the batch."""
    rows, columns = final[OUTPUT_HEIGHT], final[OUTPUT_WIDTH]
    image = scratch.levels[: 3 * rows * columns].reshape((rows, columns, 3))
    steps = draw[final[STEPS] : final[STEPS] + 2 * final[NUM_STEPS]]
    change_colours(image, steps, own, scratch.line)
    finish_row(image.ctypes.data, target, rows * columns, final[METHOD], factors, table)


@merged
def make_image(task: Array, draw: Array, outputs: Outputs, scratch: Scratch) -> int:
    """Make one output image.

    Parameters
    ----------
    task : ndarray of int64, shape (TASK_FIELDS,)
        See the names at the top of this file.
    draw : ndarray of int32
        The image's crop, flip, shift and paints, see `gpubeton.plan.draws`; behind them the steps on its colours.
    outputs : Outputs
        What each program wants.
    scratch : Scratch
        The worker's memory.

    Returns
    -------
    int
        A code of `jpeg.codes`; the output image is complete if it is OK, and of no value otherwise.
    """
    program = task[PROGRAM]
    final, factors = outputs.settings[program], outputs.factors[program]
    num_steps = final[NUM_STEPS]
    # Where colours are changed, levels are made first, in memory of the worker's own.
    output, table, target = final, outputs.tables[program], task[TARGET]
    if num_steps > 0:
        output, table, target = outputs.levels[program], outputs.identity, scratch.levels.ctypes.data
    height, width = task[IMAGE_HEIGHT], task[IMAGE_WIDTH]
    top, left, crop_height, crop_width = draw[TOP], draw[LEFT], draw[HEIGHT], draw[WIDTH]
    if top < 0 or left < 0 or crop_height < 1 or crop_width < 1:
        return WRONG_CROP
    if top + crop_height > height or left + crop_width > width:
        return WRONG_CROP
    box = (top, left, crop_height, crop_width, draw[FLIP] != 0, draw[SHIFT_Y], draw[SHIFT_X])
    if task[MODE] == JPEG:
        code = decode_picture(task[ADDRESS], task[SIZE], height, width, box, output, factors, table, target, scratch)
    else:
        code = WRONG_SIZE
        if task[SIZE] == height * width * 3:
            resample_rgb(task[ADDRESS], 3 * width, box, output, factors, table, target, scratch)
            code = OK
    if code == OK:
        paint(draw, output, outputs.fills, table, target, 0, final[EARLY_PAINTS])
        if num_steps > 0:
            _finish_colours(draw, final, outputs.own[program], factors, outputs.tables[program], task[TARGET], scratch)
        paint(draw, final, outputs.fills, outputs.tables[program], task[TARGET], final[EARLY_PAINTS], draw[NUM_PAINTS])
    return code
