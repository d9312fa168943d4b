"""What programs for other images than RGB of 8 bits want, as numbers that compiled code can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton.format.field_arguments import RGB
from gpubeton.pipeline.interpolation import INTERPOLATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.cpu.types import Array
    from gpubeton.plan.program import ImageProgram

# Columns of `PlainOutputs.settings`, int64.
HEIGHT = 0
WIDTH = 1
INTERPOLATION = 2  # see `taps`
CHANNELS = 3
SOURCE_SIZE = 4  # bytes of a stored number: 1 or 2
ITEM_SIZE = 5  # bytes of an output value: 1, 2 or 4
TABLE = 6  # first row of the program's output values in `PlainOutputs.tables`, -1: levels are the output
FILLS = 7  # first row of the program's colours in `PlainOutputs.fills`
MAX_LEVEL = 8
FIELDS = 9

MAX_CHANNELS = 4


class PlainOutputs(NamedTuple):
    """The outputs of a loader's P image programs; rows of those for RGB images of 8 bits are unused."""

    settings: Array  # int64 (P, FIELDS)
    tables: Array  # uint32 (all programs' levels, MAX_CHANNELS): bit pattern of the output value of each
    fills: Array  # int64 (all programs' colours, MAX_CHANNELS)


def plain_outputs_of(programs: Sequence[ImageProgram]) -> PlainOutputs:
    """Translate programs for compiled code.

    Parameters
    ----------
    programs : sequence of ImageProgram
        The loader's image programs.

    Returns
    -------
    PlainOutputs
        One row for each.
    """
    settings = np.zeros((len(programs), FIELDS), np.int64)
    tables, fills = [np.zeros((0, MAX_CHANNELS), np.uint32)], [np.zeros((0, MAX_CHANNELS), np.int64)]
    for row, program in zip(settings, programs, strict=True):
        if program.kind == RGB:
            continue
        row[HEIGHT], row[WIDTH] = program.height, program.width
        row[INTERPOLATION] = INTERPOLATIONS[program.interpolation]
        row[CHANNELS], row[SOURCE_SIZE] = program.kind.channels, program.kind.dtype.itemsize
        row[MAX_LEVEL] = program.kind.max_level
        row[ITEM_SIZE], row[TABLE] = row[SOURCE_SIZE], -1
        if program.table is not None:
            row[ITEM_SIZE], row[TABLE] = program.table.itemsize, sum(map(len, tables))
            bits = np.ascontiguousarray(program.table).view({1: "u1", 2: "u2", 4: "u4"}[program.table.itemsize])
            tables.append(_widened(bits).astype(np.uint32))
        row[FILLS] = sum(map(len, fills))
        fills.append(_widened(program.fills).astype(np.int64))
    return PlainOutputs(settings, np.concatenate(tables), np.concatenate(fills))


def _widened(rows: Array) -> Array:
    """The same rows with room for as many channels as there may be."""
    return np.pad(rows, ((0, 0), (0, MAX_CHANNELS - rows.shape[1])))
