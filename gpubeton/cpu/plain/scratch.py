"""The memory that one worker needs to resample images that are not RGB of 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gpubeton.cpu.plain.output import MAX_CHANNELS
from gpubeton.cpu.taps import most_taps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.cpu.types import Array
    from gpubeton.plan.program import ImageProgram

# Four numbers are written at a time: rows are this much longer than their pixels need.
_SLACK = 16


class PlainScratch(NamedTuple):
    """One worker's working memory."""

    capacity: Array  # int64 (1,): longest side in pixels that it is for
    first: Array  # int32 (2, outputs): first source pixel of each output pixel, across and down
    counts: Array  # int32 (2, outputs): how many there are
    weights: Array  # float32 (2, outputs, taps)
    row: Array  # float64 (taps,)
    line: Array  # float32: one source row, vertically resampled
    pixels: Array  # float32: one output row


def allocate_plain(source_side: int, programs: Sequence[ImageProgram]) -> PlainScratch:
    """Allocate one worker's memory.

    Parameters
    ----------
    source_side : int
        Longest side of any image, in pixels.
    programs : sequence of ImageProgram
        The loader's image programs.

    Returns
    -------
    PlainScratch
        Memory that only one thread may use at a time.
    """
    sides = [side for program in programs for side in (program.height, program.width)]
    taps = most_taps(source_side, min(sides))
    return PlainScratch(
        capacity=np.array([source_side], np.int64),
        first=np.zeros((2, max(sides)), np.int32),
        counts=np.zeros((2, max(sides)), np.int32),
        weights=np.zeros((2, max(sides), taps), np.float32),
        row=np.zeros(taps, np.float64),
        line=np.zeros(source_side * MAX_CHANNELS + _SLACK, np.float32),
        pixels=np.zeros(max(sides) * MAX_CHANNELS + _SLACK, np.float32),
    )
