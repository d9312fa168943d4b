"""How the CPU executor's functions become machine code: one place for Numba's options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from gpubeton.cpu.kept import KeptCode, folders

_F = TypeVar("_F", bound=Callable[..., object])

# Numba's own annotations leave out some of its options.
_njit: Any = numba.njit

# "numpy" divides by zero as C does: nothing here raises, every fault is a returned status.
# Nothing here allocates either. Without Numba's runtime, arrays are passed on without counting references to them,
# which for the dozens of arrays in a worker's memory would cost more than the decoding.
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False}

# What only compiled code calls needs no way in from Python or C; with this much memory to name, those would take longer
# to compile than the functions.
_INNER = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_FOLDERS = folders()


def compiled(function: _F, *, has_notice: bool = False) -> _F:
    """Compile a function that Python calls; its machine code is kept on disk between runs, see `gpubeton.cpu.kept`.

    Parameters
    ----------
    function : callable
        A function in Numba's subset of Python. It runs without the GIL.
    has_notice : bool
        Whether a line is logged before it is compiled.

    Returns
    -------
    callable
        The compiled function, called like the original.
    """
    dispatcher = _njit(no_cfunc_wrapper=True, **_OPTIONS)(function)
    dispatcher._cache = KeptCode(function, _FOLDERS, has_notice)  # noqa: SLF001 - Numba has no option for it
    return cast(_F, dispatcher)


def compiled_with_notice(function: _F) -> _F:
    """Compile a function as `compiled` does, and log a line before: it takes long.

    Parameters
    ----------
    function : callable
        A function in Numba's subset of Python. It runs without the GIL.

    Returns
    -------
    callable
        The compiled function, called like the original.
    """
    return compiled(function, has_notice=True)


def stage(function: _F) -> _F:
    """Compile a function that only compiled functions call; it travels inside their machine code.

    Python must not call it (there is no way in, and Numba does not check): a test calls its ``py_func``, or compiles a
    function that calls it.

    Parameters
    ----------
    function : callable
        A function in Numba's subset of Python.

    Returns
    -------
    callable
        The compiled function.
    """
    return cast(_F, _njit(**_INNER)(function))


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
    return cast(_F, _njit(forceinline=True, **_INNER)(function))


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
    return cast(_F, _njit(inline="always", **_INNER)(function))
