"""One image of a batch, whichever way it is stored."""

from __future__ import annotations

from gpubeton.cpu.compile import merged
from gpubeton.cpu.jpeg.codes import OK, WRONG_CROP, WRONG_SIZE
from gpubeton.cpu.jpeg.picture import decode_picture
from gpubeton.cpu.output import Outputs
from gpubeton.cpu.paint import paint
from gpubeton.cpu.rgb import resample_rgb
from gpubeton.cpu.scratch import Scratch
from gpubeton.cpu.types import Array
from gpubeton.plan.draws import FLIP, HEIGHT, LEFT, SHIFT_X, SHIFT_Y, TOP, WIDTH

# Columns of a task, int64: an image to be made.
ADDRESS = 0
SIZE = 1
IMAGE_HEIGHT = 2  # as the file's metadata have it
IMAGE_WIDTH = 3
MODE = 4
PROGRAM = 5
TARGET = 6  # address of the output image
TASK_FIELDS = 7

# Modes: how the bytes at ADDRESS are to be read. The first two are the file format's.
JPEG = 0
RAW = 1


@merged
def make_image(task: Array, draw: Array, outputs: Outputs, scratch: Scratch) -> int:
    """Make one output image.

    Parameters
    ----------
    task : ndarray of int64, shape (TASK_FIELDS,)
        See the names at the top of this file.
    draw : ndarray of int32
        The image's crop, flip, shift and paints, see `gpubeton.plan.draws`.
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
    output, factors, table = outputs.settings[program], outputs.factors[program], outputs.tables[program]
    height, width, target = task[IMAGE_HEIGHT], task[IMAGE_WIDTH], task[TARGET]
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
        paint(draw, output, outputs.fills, table, target)
    return code
