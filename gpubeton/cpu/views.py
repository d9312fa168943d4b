"""Views: the outputs that are made of one stored image, each with its own crop, in one pass over the compressed bits.

A worker makes the views of an image together. An image that the crop decoder takes has the same pixels for any number
of views, so each view has the same bits as if it were alone. One that it refuses is decoded by libjpeg-turbo for all
views, which rounds differently by a level or two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.cpu.compile import stage
from gpubeton.cpu.output import IS_GRAY, NUM_STEPS, Outputs

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array, Box

# Columns of `Scratch.views`, int64: a row for each view.
TOP = 0  # the crop, in source pixels
LEFT = 1
HEIGHT = 2
WIDTH = 3
FLIP = 4
SHIFT_Y = 5
SHIFT_X = 6
IMAGE = 7  # which image of the batch it is
PROGRAM = 8
TARGET = 9  # address of the output image, or of its levels while their colours are still to be changed
FIRST_ROW = 10  # of the MCUs that it needs
LAST_ROW = 11
FIRST_COLUMN = 12
LAST_COLUMN = 13
TAPS = 14  # four, see `types.TapCounts`
EMITTED = 18  # output rows that are written
VIEW_FIELDS = 19


@stage
def box_of(view: Array) -> Box:
    """Return what a view shows."""
    return view[TOP], view[LEFT], view[HEIGHT], view[WIDTH], view[FLIP] != 0, view[SHIFT_Y], view[SHIFT_X]


@stage
def makes_levels(settings: Array) -> bool:
    """Return whether levels are made first: where colours are changed, or gray is made of three channels."""
    return bool(settings[NUM_STEPS] > 0 or settings[IS_GRAY] != 0)


@stage
def finish_of(view: Array, outputs: Outputs) -> tuple[Array, Array, Array]:
    """Return how a view's pixels are finished: settings, factors and table, see `output`."""
    program = view[PROGRAM]
    if makes_levels(outputs.settings[program]):
        return outputs.levels[program], outputs.factors[program], outputs.identity
    return outputs.settings[program], outputs.factors[program], outputs.tables[program]


@stage
def next_stretch(views: Array, count: int, row: int, column: int) -> tuple[int, int, bool]:
    """Find the MCUs of a row that are wanted next.

    Parameters
    ----------
    views : ndarray of int64, shape (V, VIEW_FIELDS)
        Who wants them.
    count : int
        How many of them count.
    row : int
        The row.
    column : int
        MCUs before it are done.

    Returns
    -------
    tuple of int, int and bool
        First and last + 1 of the next MCUs that lie side by side and that some view wants, equal if there are none; and
        whether others follow behind a gap.
    """
    begin, end = 0, 0
    for i in range(count):
        is_left = end == 0 or views[i, FIRST_COLUMN] < begin
        if is_left and views[i, FIRST_ROW] <= row < views[i, LAST_ROW] and views[i, LAST_COLUMN] > column:
            begin, end = views[i, FIRST_COLUMN], views[i, LAST_COLUMN]
    more = end > 0
    grows = more
    while grows:
        grows = more = False
        for i in range(count):
            if views[i, FIRST_ROW] <= row < views[i, LAST_ROW] and views[i, LAST_COLUMN] > end:
                if views[i, FIRST_COLUMN] <= end:
                    end = views[i, LAST_COLUMN]
                    grows = True
                else:
                    more = True
    return begin, end, more


@stage
def last_column(views: Array, count: int, row: int) -> int:
    """Return the last + 1 MCU of a row that some view wants; 0 if none does."""
    column = 0
    for i in range(count):
        if views[i, FIRST_ROW] <= row < views[i, LAST_ROW]:
            column = max(column, views[i, LAST_COLUMN])
    return column
