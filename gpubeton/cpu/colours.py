"""Colours of one output image, changed in the worker's memory before it is finished into the batch.

The loops over pixels are those of `gpubeton.transforms.colour_lines`: what is fused and what is not agree to the bit.
"""

from __future__ import annotations

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

_load = stage(colour_lines.load_line)
_store = stage(colour_lines.store_line)
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
def _added(image: Array, line: Array, factor: int) -> int:
    """What a contrast adds to every level: the share of the mean of all gray values."""
    total = 0
    for y in range(image.shape[0]):
        _load(image[y], line)
        total += _gray_sum(line)
    share: int = (_ONE - factor) * total // (image.shape[0] * image.shape[1])
    return share


@stage
def change_colours(image: Array, steps: Array, own: Array, line: Array) -> None:
    """Carry out the steps of one image, row by row; a contrast, which needs the mean of all rows, begins anew.

    Parameters
    ----------
    image : ndarray of uint8, shape (H, W, 3)
        Its levels, changed.
    steps : ndarray of int32, shape (2 * K,)
        Kind and factor of each step, see `gpubeton.transforms.colour`.
    own : ndarray of int64, shape (OWN_FIELDS * MAX_COLOUR_STEPS,)
        The program's pixel operations, see `own_pixels`.
    line : ndarray of int32, shape (3, W)
        Scratch.
    """
    stop, first_own = 0, 0
    while stop < steps.shape[0]:
        start = stop
        stop += 2
        idle = _is_idle(steps[start], steps[start + 1])
        while stop < steps.shape[0] and steps[stop] != _CONTRAST:
            idle = idle and _is_idle(steps[stop], steps[stop + 1])
            stop += 2
        if idle:
            for step in range(start, stop, 2):
                first_own += OWN_FIELDS * (steps[step] == _PIXEL)
            continue
        added = 0
        if steps[start] == _CONTRAST and not _is_idle(_CONTRAST, steps[start + 1]):
            added = _added(image, line, signed(steps[start + 1]))
        next_own = first_own
        for y in range(image.shape[0]):
            _load(image[y], line)
            next_own = first_own
            for step in range(start, stop, 2):
                kind, factor = steps[step], steps[step + 1]
                if kind == _SATURATION:
                    _saturate(line, factor)
                elif kind == _HUE:
                    _turn(line, factor)
                elif kind == _PIXEL:
                    if factor != 0:
                        values = steps[step - 2 * own[next_own + 1] + 1 :].ctypes.data
                        size = image.shape[:2]
                        change_own_line(own[next_own], line.ctypes.data, values, y, size[0], size[1])
                    next_own += OWN_FIELDS
                elif kind != _PARAMETER and factor != _ONE:
                    _blend(line, factor, added if kind == _CONTRAST else 0)
            _store(line, image[y])
        first_own = next_own
