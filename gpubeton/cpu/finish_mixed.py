"""Mixup and cutmix of a complete batch on the CPU: mixed as levels, then finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.batch.mix import mix_levels
from gpubeton.cpu.finish import Finish, finish_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.cpu.types import Array
    from gpubeton.plan.program import ImageProgram


def finish_mixed(program: ImageProgram, levels: Array, mixes: Array, take: Callable[..., Array]) -> Array:
    """Mix the images of a batch with each other, and write them as what the network reads.

    Parameters
    ----------
    program : ImageProgram
        What is wanted.
    levels : ndarray of uint8, shape (N, height, width, 3), C-contiguous
        What the workers made; changed.
    mixes : ndarray of int32, shape (N, MIX_COLUMNS)
        See `gpubeton.batch.mix`.
    take : callable
        ``take(shape, dtype)`` gives memory.

    Returns
    -------
    ndarray, shape (N, height, width, 3)
        Of the program's type, bfloat16 as uint16; `levels` itself if that is uint8.
    """
    mix_levels(levels, mixes)
    if program.table is None:
        return levels
    mean, std = program.mean_std or (None, None)
    finish = Finish(program.table, mean, std)
    out: Array = take(levels.shape, program.table.dtype)
    _finish(levels, out, finish)
    return out


def _finish(levels: Array, out: Array, finish: Any) -> None:
    finish_rows(levels.reshape(-1, 3), out.view(np.uint8).reshape(-1), finish.method, finish.factors, finish.table)
