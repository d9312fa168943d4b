"""Rows of RGB pixels copied apart into planes of 32-bit levels, and back: what vectors are needed for.

A loop over pixels does the same, but compilers make single bytes of it, which takes longer than most of what is done to
the colours in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.batch import colour_steps
from gpubeton.cpu.compile import stage
from gpubeton.cpu.lanes import I8, I32, Emitter, Lanes, vector_kernel
from gpubeton.cpu.weaving import load_channels, store_channels

if TYPE_CHECKING:
    from gpubeton.cpu.types import Array

# Pixels at a time: three vectors of 16 bytes.
_GROUP = 16

_load_few = stage(colour_steps.load_line)
_store_few = stage(colour_steps.store_line)


def _first(emit: Emitter, group: Lanes, width: Lanes) -> Lanes:
    """The first pixel of a group; the last group overlaps the one before."""
    first, last = group * _GROUP, width - _GROUP
    inside = emit.builder.icmp_signed("<", first.value, last.value)
    return Lanes(emit.builder, emit.builder.select(inside, first.value, last.value))


@vector_kernel
def _load(emit: Emitter, row: Lanes, line: Lanes, width: Lanes, groups: Lanes) -> None:
    with emit.loop(groups) as group:
        first = _first(emit, group, width)
        for number, channel in enumerate(load_channels(emit, row + first * 3, _GROUP, _GROUP)):
            emit.store(channel.zero_extend(I32), line + (width * number + first) * 4, align=4)


@vector_kernel
def _store(emit: Emitter, line: Lanes, row: Lanes, width: Lanes, groups: Lanes) -> None:
    with emit.loop(groups) as group:
        first = _first(emit, group, width)
        channels = [emit.load(line + (width * c + first) * 4, I32, _GROUP, align=4).narrow(I8) for c in range(3)]
        store_channels(emit, channels, row + first * 3, _GROUP)


@stage
def load_planes(row: Array, line: Array) -> None:
    """Copy a row of pixels apart into its channels.

    Parameters
    ----------
    row : ndarray of uint8, shape (W, 3), C-contiguous
        The pixels.
    line : ndarray of int32, shape (3, W), C-contiguous
        Written.
    """
    width = row.shape[0]
    if width < _GROUP:
        _load_few(row, line)
    else:
        _load(row.ctypes.data, line.ctypes.data, width, -(-width // _GROUP))


@stage
def store_planes(line: Array, row: Array) -> None:
    """Copy channels back into a row of pixels.

    Parameters
    ----------
    line : ndarray of int32, shape (3, W), C-contiguous
        Levels from 0 to 255.
    row : ndarray of uint8, shape (W, 3), C-contiguous
        Written.
    """
    width = row.shape[0]
    if width < _GROUP:
        _store_few(line, row)
    else:
        _store(line.ctypes.data, row.ctypes.data, width, -(-width // _GROUP))
