"""What a program's output looks like, as numbers that compiled code can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array

# Columns of `Outputs.settings`, int64.
HEIGHT = 0
WIDTH = 1
INTERPOLATION = 2  # see `taps`
METHOD = 3  # see `finish`
ITEM_SIZE = 4  # bytes of an output value
FILLS = 5  # first row of the program's colours in `Outputs.fills`
STEPS = 6  # where in a row of draws the steps on colours begin
NUM_STEPS = 7  # how many there are, each of two numbers
EARLY_PAINTS = 8  # how many paints, of those that a row may have, come before them
IS_GRAY = 9  # 1: one channel is written
FIELDS = 10


class Outputs(NamedTuple):
    """The outputs of a loader's P image programs."""

    settings: Array  # int64 (P, FIELDS)
    levels: Array  # int64 (P, FIELDS): the same, for images whose colours are still to be changed, or become gray
    factors: Array  # float32 (P, 2, 24), see `finish`
    tables: Array  # int64 (P, 256, 3), see `finish`
    identity: Array  # int64 (256, 3): the table of those
    fills: Array  # uint8 (all programs' colours, 3)
    own: Array  # int64 (P, OWN_FIELDS * MAX_COLOUR_STEPS), see `own_pixels`
