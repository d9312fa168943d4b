"""How the CPU executor's functions become machine code: one place for Numba's options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., object])

# "numpy" divides by zero as C does instead of raising: nothing here raises, every fault is a returned status.
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False}


# What only compiled code calls needs no way in from Python or C; for functions with this much memory to name, those would
# take longer to compile than the functions.
_INNER = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: _F) -> _F:
    """Compile a function that Python calls; its machine code is kept on disk between runs.

    Parameters
    ----------
    function : callable
        A function in Numba's subset of Python. It runs without the GIL.

    Returns
    -------
    callable
        The compiled function, called like the original.

    Examples
    --------
    >>> @compiled
    ... def double(value: int) -> int:
    ...     return 2 * value
    >>> double(21)
    42
    """
    return cast(_F, numba.njit(cache=True, no_cfunc_wrapper=True, **_OPTIONS)(function))


def stage(function: _F) -> _F:
    """Compile a function that only compiled functions call; it travels inside their machine code.

    Parameters
    ----------
    function : callable
        A function in Numba's subset of Python.

    Returns
    -------
    callable
        The compiled function.
    """
    return cast(_F, numba.njit(**_INNER)(function))


def inlined(function: _F) -> _F:
    """Compile a function into the body of each caller.

    For the few that run once per JPEG block: a call and a tuple returned through memory would cost a tenth of them.

    Parameters
    ----------
    function : callable
        A function in Numba's subset of Python.

    Returns
    -------
    callable
        The compiled function.
    """
    return cast(_F, numba.njit(forceinline=True, **_INNER)(function))


def merged(function: _F) -> _F:
    """Compile a function as part of its one caller's body, before types are known.

    Each level of compiled calls is optimised again with all the levels below it. The few large functions that only pass
    the work on therefore become one with their caller, which halves the time that everything takes to compile.

    Parameters
    ----------
    function : callable
        A function in Numba's subset of Python, called from one place.

    Returns
    -------
    callable
        The compiled function.
    """
    return cast(_F, numba.njit(inline="always", **_INNER)(function))
