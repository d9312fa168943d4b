"""Colours of one output image, changed in the worker's memory and finished into the batch.

Vectors do it, and give to the bit what `gpubeton.batch.colour_steps` does where operations are not fused. What
they cannot do goes the way of those lines: users' pixel operations, very large factors, and the few pixels left over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpubeton.batch import colour_steps
from gpubeton.batch.colour_steps import BRIGHTNESS, CONTRAST, HUE, ONE, PARAMETER, PIXEL, SATURATION
from gpubeton.cpu.colour_planes import load_planes, store_planes
from gpubeton.cpu.colour_vectors import (
    GROUP,
    HAS_TABLES,
    KIND,
    LARGEST_FACTOR,
    MOST_PIXELS,
    TABLE,
    begin_table,
    change_groups,
    continue_table,
    write_step,
)
from gpubeton.cpu.compile import inlined, stage
from gpubeton.cpu.finish import finish_row
from gpubeton.cpu.memory import signed
from gpubeton.cpu.output import ITEM_SIZE, METHOD
from gpubeton.cpu.own_pixels import OWN_FIELDS, change_own_line

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array

_BRIGHTNESS = int(BRIGHTNESS)
_CONTRAST = int(CONTRAST)
_HUE = int(HUE)
_SATURATION = int(SATURATION)
_PARAMETER = int(PARAMETER)
_PIXEL = int(PIXEL)
_ONE = int(ONE)


class ColourMemory(NamedTuple):
    """What one worker needs to change colours."""

    rows: Array  # int16 (MAX_COLOUR_STEPS, STEP_FIELDS): see `colour_vectors`
    tables: Array  # uint8 (MAX_COLOUR_STEPS, LEVELS)
    line: Array  # int32 (3 * max(W, GROUP),): channels of some pixels


_blend = stage(colour_steps.blend)
_saturate = stage(colour_steps.saturate)
_turn = stage(colour_steps.turn)
_gray_sum = stage(colour_steps.gray_sum)


@inlined
def _is_idle(kind: int, factor: int) -> bool:
    if kind == _PARAMETER:
        return True
    return factor == 0 if kind in (_HUE, _PIXEL) else factor == _ONE


@stage
def _change_line(line: Array, steps: Array, own: Array, added: int, y: int, height: int) -> None:
    """Carry out steps of which the first alone may be a contrast; `own` begins with their first pixel operation."""
    next_own = 0
    for step in range(0, steps.shape[0], 2):
        kind, factor = steps[step], steps[step + 1]
        if kind == _SATURATION:
            _saturate(line, factor)
        elif kind == _HUE:
            _turn(line, factor)
        elif kind == _PIXEL:
            if factor != 0:
                values = steps.ctypes.data + 4 * (step - 2 * own[next_own + 1] + 1)
                change_own_line(own[next_own], line.ctypes.data, values, y, height, line.shape[1])
            next_own += OWN_FIELDS
        elif kind != _PARAMETER and factor != _ONE:
            _blend(line, factor, added if kind == _CONTRAST else 0)


@inlined
def _is_for_vectors(kind: int, factor: int) -> bool:
    if HAS_TABLES and kind in (_BRIGHTNESS, _CONTRAST):
        return True
    return _is_idle(kind, factor) or (kind != _PIXEL and factor <= LARGEST_FACTOR)


@stage
def _write_steps(steps: Array, added: int, memory: ColourMemory, count: int) -> int:
    """Write steps that change something down for vectors, behind `count` others; return how many there are then.

    Or -1 if vectors cannot do them.
    """
    for step in range(0, steps.shape[0], 2):
        kind, factor = signed(steps[step]), signed(steps[step + 1])
        if not _is_for_vectors(kind, factor):
            return -1
        if _is_idle(kind, factor):
            continue
        own = added if kind == _CONTRAST else 0
        if HAS_TABLES and kind in (_BRIGHTNESS, _CONTRAST):
            if count == 0 or memory.rows[count - 1, KIND] != TABLE:
                begin_table(memory.rows[count], memory.tables[count])
                count += 1
            continue_table(memory.tables[count - 1], factor, own)
        else:
            write_step(memory.rows[count], kind, factor, own)
            count += 1
    return count


@stage
def _change_rest(pixels: Array, line: Array, steps: Array, own: Array, added: int, y: int, height: int) -> int:
    """Do the same with few pixels, or with one line for pixel operations; return the sum of the new gray values."""
    planes = line[: 3 * pixels.shape[0]].reshape((3, pixels.shape[0]))
    load_planes(pixels, planes)
    _change_line(planes, steps, own, added, y, height)
    store_planes(planes, pixels)
    total: int = _gray_sum(planes)
    return total


@stage
def change_colours(
    image: Array,
    steps: Array,
    own: Array,
    memory: ColourMemory,
    target: int,
    final: Array,
    factors: Array,
    table: Array,
) -> None:
    """Carry out the steps of one image and finish it; a contrast, which needs the mean of all pixels, begins anew.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3), C-contiguous
        Its levels, changed.
    steps : ndarray of int32, shape (2 * K,)
        Kind and factor of each step, see `gpubeton.batch.colour_steps`.
    own : ndarray of int64, shape (OWN_FIELDS * MAX_COLOUR_STEPS,)
        The program's pixel operations, see `own_pixels`.
    memory : ColourMemory
        Scratch.
    target : int
        Address of the output image.
    final, factors, table : ndarray
        What the program wants, see `output` and `finish`.
    """
    height, width = image.shape[0], image.shape[1]
    size = height * width
    pixels = image.reshape((size, 3))
    count, stop, first_own, total, waiting, begins_anew = steps.shape[0], 0, 0, 0, 0, False
    is_plain = True
    for step in range(0, count, 2):
        is_plain = is_plain and _is_for_vectors(signed(steps[step]), signed(steps[step + 1]))
    while True:
        start, next_own, added = stop, first_own, 0
        if begins_anew:
            added = (_ONE - signed(steps[start + 1])) * total // size
            stop += 2
        # Up to the next contrast that changes something.
        while stop < count and (steps[stop] != _CONTRAST or _is_idle(steps[stop], steps[stop + 1])):
            next_own += OWN_FIELDS * (steps[stop] == _PIXEL)
            stop += 2
        total, begins_anew = 0, stop < count
        run = steps[start:stop]
        num_rows = _write_steps(run, added, memory, waiting)
        # A table by itself waits for the contrast, and becomes one with it.
        waiting = 1 if begins_anew and is_plain and num_rows == 1 and memory.rows[0, KIND] == TABLE else 0
        # Pixel operations go by rows. Vectors change what fits the nearest cache, and finish it from there.
        chunk = MOST_PIXELS if num_rows >= 0 else width
        for first in range(0, size, chunk):
            part = pixels[first : first + chunk]
            in_vectors = part.shape[0] // GROUP * GROUP if num_rows >= 0 else 0
            if num_rows != 0 or begins_anew:
                stores = num_rows > 0 and waiting == 0
                total += change_groups(part[:in_vectors], memory.rows, memory.tables, num_rows, stores, begins_anew)
                rest = part[in_vectors:]
                if rest.shape[0] > 0:
                    total += _change_rest(rest, memory.line, run, own[first_own:], added, first // width, height)
            if not begins_anew:
                place = target + 3 * final[ITEM_SIZE] * first
                finish_row(part.ctypes.data, place, part.shape[0], final[METHOD], factors, table)
        if not begins_anew:
            return
        first_own = next_own
