"""Image tasks: a task is one stored image, a view is one output of it with its crop.

A worker makes all views of an image in one pass over its compressed bits. The crop decoder gives each view the same
bits as if it were alone. libjpeg-turbo, if the crop decoder refuses the image, decodes it once for all views, and
rounds some values differently by one or two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gpubeton._compile.compile import stage
from gpubeton._cpu.epilogue import IS_GRAY, NUM_STEPS, Outputs

if TYPE_CHECKING:
    from gpubeton._cpu.intrinsics import Array

# Columns of a task, int64: an image to be made.
ADDRESS = 0
SIZE = 1
IMAGE_HEIGHT = 2  # from the file's metadata
IMAGE_WIDTH = 3
MODE = 4
PROGRAM = 5
TARGET = 6  # address of the output image; 0: nothing to do
NEXT_VIEW = 7  # next image of the batch with the same stored image; 0: none
IS_LATER_VIEW = 8  # 1: it is made together with an earlier task
ENTRIES = 9  # address of the JPEG's entry points, see `gpubeton.format.entry_points`
NUM_ENTRIES = 10  # 0: none; -1: they do not fit the JPEG
SEAL = 11  # of the JPEG and its entry points, see `jpeg.intervals.seal_of`
CHECKSUM = 12  # CRC-32 that the bytes are compared with; 0: none
TASK_FIELDS = 13

# MODE: the format of the bytes at ADDRESS. The first two are the file format's, of RGB images.
JPEG = 0
RAW = 1
RAW_OTHER = 2  # raw pixels of another kind, see `other_kinds`
PACKED = 3  # a file that Python decodes into RAW or RAW_OTHER

# Columns of a view, int64; the first nine are those of a row of draws.
VIEW_TOP = 0  # the crop, in source pixels
VIEW_LEFT = 1
VIEW_HEIGHT = 2
VIEW_WIDTH = 3
VIEW_FLIP = 4
VIEW_SHIFT_Y = 5  # in output pixels
VIEW_SHIFT_X = 6
VIEW_RESIZED_HEIGHT = 7  # what the crop is resized to: the output, or less if it is padded
VIEW_RESIZED_WIDTH = 8
VIEW_IMAGE = 9  # its number in the batch
VIEW_PROGRAM = 10
VIEW_TARGET = 11  # address of the output image, or of its u8 staging image
FIRST_ROW = 12  # the MCUs that it needs
LAST_ROW = 13
FIRST_COLUMN = 14
LAST_COLUMN = 15
TAPS = 16  # four, see `taps.TapCounts`
EMITTED = 20  # output rows that are written
VIEW_FIELDS = 21

# Top, left, height and width of a crop in source pixels; whether the result is mirrored; its shift down and across in
# output pixels; the height and width that it is resized to.
Box: TypeAlias = tuple[int, int, int, int, bool, int, int, int, int]


@stage
def box_of(view: Array) -> Box:
    """Return the crop and the placement of a view."""
    return (
        view[VIEW_TOP],
        view[VIEW_LEFT],
        view[VIEW_HEIGHT],
        view[VIEW_WIDTH],
        view[VIEW_FLIP] != 0,
        view[VIEW_SHIFT_Y],
        view[VIEW_SHIFT_X],
        view[VIEW_RESIZED_HEIGHT],
        view[VIEW_RESIZED_WIDTH],
    )


@stage
def needs_staging(settings: Array) -> bool:
    """Return True if a u8 image comes first: for color steps, and for gray, which is made of three channels."""
    return bool(settings[NUM_STEPS] > 0 or settings[IS_GRAY] != 0)


@stage
def epilogue_of(view: Array, outputs: Outputs) -> tuple[Array, Array, Array]:
    """Return how a view's resampled pixels are stored: settings, factors and table, see `epilogue.store_row`."""
    program = view[VIEW_PROGRAM]
    settings = outputs.staging if needs_staging(outputs.settings[program]) else outputs.settings
    return settings[program], outputs.factors[program], outputs.tables[program]


@stage
def next_stretch(
    views: Array,  # (V, VIEW_FIELDS) int64
    count: int,  # how many of them are in use
    row: int,
    column: int,
) -> tuple[int, int]:
    """Return the first and last + 1 of the next adjacent MCUs of a row, from `column` on, that some view needs."""
    # They are equal if there are none.
    begin, end = 0, 0
    for i in range(count):
        is_left = end == 0 or views[i, FIRST_COLUMN] < begin
        if is_left and views[i, FIRST_ROW] <= row < views[i, LAST_ROW] and views[i, LAST_COLUMN] > column:
            begin, end = views[i, FIRST_COLUMN], views[i, LAST_COLUMN]
    grows = end > 0
    while grows:
        grows = False
        for i in range(count):
            is_in_row = views[i, FIRST_ROW] <= row < views[i, LAST_ROW]
            if is_in_row and views[i, FIRST_COLUMN] <= end < views[i, LAST_COLUMN]:
                end = views[i, LAST_COLUMN]
                grows = True
    return begin, end
