"""How functions become machine code: one place for Numba's options."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba

from gpubeton._compile import numba_hooks
from gpubeton._compile.kept import KeptCode, folders, is_source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import FunctionType

_F = TypeVar("_F", bound=Callable[..., object])

# Numba's own annotations leave out some of its options.
_njit: Any = numba.njit
_config: Any = numba.config

# "numpy" divides by zero as C does: nothing here raises, every fault is a returned status.
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False}

# What only compiled code calls needs no way in from Python or C; with this much memory to name, those would take longer
# to compile than the functions.
_INNER = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_FOLDERS = folders()


def compiled(function: _F, *, has_notice: bool = False, folders: Sequence[Path] | None = None) -> _F:
    """Compile a function that Python calls; `folders` keep its machine code between runs, see `KeptCode`."""
    dispatcher = _njit(no_cfunc_wrapper=True, **_OPTIONS, **numba_hooks.OUTER_OPTIONS)(function)
    if folders is None and is_source(function.__module__):
        folders = _FOLDERS
    if folders is not None:
        numba_hooks.set_cache(dispatcher, KeptCode(cast("FunctionType", function), folders, has_notice))
    return cast("_F", dispatcher)


def compiled_with_notice(function: _F) -> _F:
    """Compile a function as `compiled` does, and log a line before: it takes long."""
    return compiled(function, has_notice=True)


class AddressedFunction:
    """A function of int64 numbers, which returns one; compiled code calls it by its address."""

    def __init__(self, function: Callable[..., int]) -> None:
        self._function = function

    @cached_property
    def code(self) -> Any:
        """Numba's dispatcher, which owns the machine code."""
        dispatcher = _njit(**_OPTIONS, **numba_hooks.OUTER_OPTIONS)(self._function)
        if is_source(self._function.__module__):
            function = cast("FunctionType", self._function)
            numba_hooks.set_cache(dispatcher, KeptCode(function, _FOLDERS, has_notice=False))
        return dispatcher

    @cached_property
    def address(self) -> int:
        """Address of the machine code; the first use compiles it, or finds it kept."""
        return numba_hooks.address_of(self.code, self._function.__code__.co_argcount)


def device_function(function: _F) -> _F:
    """Compile a function that only compiled functions call; it travels inside their machine code."""
    # Python must not call it: there is no way in, and Numba does not check. A test calls its `py_func`, or compiles a
    # function that calls it.
    return cast("_F", _inner(function))


def inlined(function: _F) -> _F:
    """Compile a function into the body of each caller."""
    # For the few that run once per JPEG block: a call and a tuple returned through memory would cost a tenth of them.
    return cast("_F", _inner(function, forceinline=True))


def inline_untyped(function: _F) -> _F:
    """Compile a function as part of its one caller's body, before types are known."""
    # For the few large functions that only pass the work on: the code is a little faster than with calls.
    return cast("_F", _njit(inline="always", **_INNER, **numba_hooks.INLINED_OPTIONS)(function))


def _inner(function: Callable[..., object], **options: bool) -> Any:
    dispatcher = _njit(**_INNER, **numba_hooks.INNER_OPTIONS, **options)(function)
    if not _config.DISABLE_JIT:
        numba_hooks.compile_once_for_constants(dispatcher)
    return dispatcher


def keep(dispatcher: Any) -> None:
    """Keep the machine code of a function that Numba compiled for `Compiler`, if it is the package's own."""
    # It may capture numbers, strings, and functions that are kept: all else may differ in the next process.
    function = dispatcher.py_func
    captured = [_described(cell.cell_contents) for cell in function.__closure__ or ()]
    if not is_source(function.__module__) or None in captured:
        return
    if captured and "#" not in function.__qualname__:
        # Also its name in machine code, where functions with the same name would be taken for each other.
        function.__qualname__ += f"#{hashlib.sha256(repr(captured).encode()).hexdigest()[:16]}"
    options = repr(sorted(dispatcher.targetoptions.items()))
    numba_hooks.set_cache(dispatcher, KeptCode(function, _FOLDERS, has_notice=False, options=options))


def _described(value: Any) -> object:
    """Describe a captured value as in every other process; None if that is not possible."""
    if isinstance(numba_hooks.cache_of(value), KeptCode):
        return value.py_func.__module__, value.py_func.__qualname__, sorted(value.targetoptions.items())
    if isinstance(value, tuple):
        items = tuple(map(_described, value))
        return None if None in items else items
    return (type(value).__name__, repr(value)) if isinstance(value, (int, float, str)) else None
