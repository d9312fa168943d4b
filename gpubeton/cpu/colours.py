"""Colours of one output image, changed in the worker's memory before it is finished into the batch.

The loops over pixels are those of `gpubeton.transforms.colour_lines`: what is fused and what is not agree to the bit.
"""

from __future__ import annotations

from gpubeton.cpu.colour_planes import load_planes, store_planes
from gpubeton.cpu.compile import inlined, stage
from gpubeton.cpu.memory import signed
from gpubeton.cpu.own_pixels import OWN_FIELDS, change_own_line
from gpubeton.cpu.types import Array
from gpubeton.transforms import colour_lines
from gpubeton.transforms.colour_kinds import CONTRAST, HUE, ONE, PARAMETER, PIXEL, SATURATION

_CONTRAST = int(CONTRAST)
_HUE = int(HUE)
_SATURATION = int(SATURATION)
_PARAMETER = int(PARAMETER)
_PIXEL = int(PIXEL)
_ONE = int(ONE)

# Pixels worked on at a time: their channels stay in the nearest cache, and what a call costs is small beside them.
CHUNK = 1024

_blend = stage(colour_lines.blend)
_saturate = stage(colour_lines.saturate)
_turn = stage(colour_lines.turn)
_gray_sum = stage(colour_lines.gray_sum)


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


@stage
def change_colours(image: Array, steps: Array, own: Array, line: Array) -> None:
    """Carry out the steps of one image, piece by piece; a contrast, which needs the mean of all pixels, begins anew.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3), C-contiguous
        Its levels, changed.
    steps : ndarray of int32, shape (2 * K,)
        Kind and factor of each step, see `gpubeton.transforms.colour`.
    own : ndarray of int64, shape (OWN_FIELDS * MAX_COLOUR_STEPS,)
        The program's pixel operations, see `own_pixels`.
    line : ndarray of int32, shape (3 * max(W, CHUNK),)
        Scratch.
    """
    height, width = image.shape[0], image.shape[1]
    size = height * width
    pixels = image.reshape((size, 3))
    # Pixel operations go by rows.
    chunk = CHUNK if own[0] == 0 else width
    count, stop, first_own, total, begins_anew = steps.shape[0], 0, 0, 0, False
    while True:
        start, next_own, idle, added = stop, first_own, True, 0
        if begins_anew:
            added = (_ONE - signed(steps[start + 1])) * total // size
            idle = False
            stop += 2
        # Up to the next contrast that changes something.
        while stop < count and (steps[stop] != _CONTRAST or _is_idle(steps[stop], steps[stop + 1])):
            idle = idle and _is_idle(steps[stop], steps[stop + 1])
            next_own += OWN_FIELDS * (steps[stop] == _PIXEL)
            stop += 2
        total, begins_anew = 0, stop < count
        if begins_anew or not idle:
            for first in range(0, size, chunk):
                part = pixels[first : first + chunk]
                planes = line[: 3 * part.shape[0]].reshape((3, part.shape[0]))
                load_planes(part, planes)
                if not idle:
                    _change_line(planes, steps[start:stop], own[first_own:], added, first // width, height)
                    store_planes(planes, part)
                if begins_anew:
                    total += _gray_sum(planes)
        if not begins_anew:
            return
        first_own = next_own
