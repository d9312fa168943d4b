"""How functions become machine code: one place for Numba's options."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.typed_passes import NopythonRewrites
from numba.core.types.functions import BaseFunction
from numba.core.untyped_passes import InlineClosureLikes

from gpubeton._compile.kept import SOURCES, KeptCode, folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import FunctionType

_F = TypeVar("_F", bound=Callable[..., object])

# Numba's own annotations leave out some of its options.
_njit: Any = numba.njit
_config: Any = numba.config
_types: Any = types
_Library: Any = JITCodeLibrary
_Compiler: Any = Compiler
_BaseFunction: Any = BaseFunction

# "numpy" divides by zero as C does: nothing here raises, every fault is a returned status.
# Nothing here allocates either. Without Numba's runtime, arrays are passed on without counting references to them,
# which for the dozens of arrays in a worker's memory would cost more than the decoding.
_OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False}

# What only compiled code calls needs no way in from Python or C; with this much memory to name, those would take longer
# to compile than the functions.
_INNER = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_OPERATORS = {value for value in vars(operator).values() if callable(value)}
_FOLDERS = folders()


class _Part(_Library):  # type: ignore[misc]  # Numba has no types
    """The code of a function that only compiled functions call: linked, and left to its callers to be optimized."""

    # Numba's own libraries are optimized, and made into machine code, with all that they call: again at each level.

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: object) -> None:
        """Leave out the Python objects that code names: there is no machine code yet, and no stage names any."""


class _ShortCompiler(_Compiler):  # type: ignore[misc]  # Numba has no types
    """Compile without Numba's passes for array expressions and closures: no function here has any."""

    def define_pipelines(self) -> Any:
        """List the passes."""
        (pipeline,) = super().define_pipelines()
        pipeline.passes = [one for one in pipeline.passes if one[0] not in (NopythonRewrites, InlineClosureLikes)]
        return [pipeline]


class _PartCompiler(_ShortCompiler):
    """Compile into a `_Part`."""

    def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
        super().__init__(typing, target, library or _Part(target.codegen(), "part"), *others)


class _WholeCompiler(_ShortCompiler):
    """Compile a function with all that it calls; what slows Numba down with so many of them is left out."""

    def compile_extra(self, function: Any) -> Any:
        """Compile `function`."""
        with _no_garbage_collected(), _signatures_remembered():
            return super().compile_extra(function)


@contextlib.contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Let Python's garbage collector pass over older objects: there are millions, and none is garbage."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _signatures_remembered() -> Iterator[None]:
    """Let Numba find the signature of each call once; it compiles in one thread at a time."""
    # For each `a + b` Numba tries some twenty overloads of `+`, three times over: a quarter of the time to compile.
    find = _BaseFunction.get_call_type
    found: dict[Any, Any] = {}

    def remembering(function: Any, context: Any, arguments: Any, names: Any) -> Any:
        if names:
            return find(function, context, arguments, names)
        numbers = tuple(map(_types.unliteral, arguments))
        # An operator's result does not depend on the values of numbers, also where they are known.
        if function.key[0] in _OPERATORS and all(isinstance(number, _types.Number) for number in numbers):
            arguments = numbers
        key = function, tuple(arguments)
        if key not in found:
            found[key] = find(function, context, arguments, names)
        return found[key]

    _BaseFunction.get_call_type = remembering
    try:
        yield
    finally:
        _BaseFunction.get_call_type = find


def _part(function: Callable[..., object], **options: bool) -> Any:
    """Compile a function into its callers, once for all numbers that they pass as constants."""
    dispatcher = _njit(pipeline_class=_PartCompiler, **_INNER, **options)(function)
    if _config.DISABLE_JIT:
        return dispatcher
    template = dispatcher.get_call_template
    dispatcher.get_call_template = lambda arguments, names: template(tuple(map(_types.unliteral, arguments)), names)
    return dispatcher


def compiled(function: _F, *, has_notice: bool = False, folders: Sequence[Path] = _FOLDERS) -> _F:
    """Compile a function that Python calls; `folders` keep its machine code between runs, see `KeptCode`."""
    dispatcher = _njit(no_cfunc_wrapper=True, pipeline_class=_WholeCompiler, **_OPTIONS)(function)
    # Numba has no option for a cache of another kind.
    dispatcher._cache = KeptCode(cast("FunctionType", function), folders, has_notice)  # noqa: SLF001  as above
    return cast("_F", dispatcher)


def keep(dispatcher: Any) -> None:
    """Keep the machine code of a function that Numba compiled for `Compiler`, if it is the package's own."""
    # It may capture numbers, strings, and functions that are kept: all else may differ in the next process.
    function = dispatcher.py_func
    top, _, room = function.__module__.partition(".")
    captured = [_described(cell.cell_contents) for cell in function.__closure__ or ()]
    if top != "gpubeton" or room.partition(".")[0] not in SOURCES or None in captured:
        return
    if captured and "#" not in function.__qualname__:
        # Also its name in machine code, where functions with the same name would be taken for each other.
        function.__qualname__ += f"#{hashlib.sha256(repr(captured).encode()).hexdigest()[:16]}"
    options = repr(sorted(dispatcher.targetoptions.items()))
    dispatcher._cache = KeptCode(function, _FOLDERS, has_notice=False, options=options)  # noqa: SLF001  see `compiled`


def _described(value: Any) -> object:
    """Describe a captured value as in every other process; None if that is not possible."""
    if isinstance(getattr(value, "_cache", None), KeptCode):
        return value.py_func.__module__, value.py_func.__qualname__, sorted(value.targetoptions.items())
    if isinstance(value, tuple):
        parts = tuple(map(_described, value))
        return None if None in parts else parts
    return (type(value).__name__, repr(value)) if isinstance(value, (int, float, str)) else None


def compiled_with_notice(function: _F) -> _F:
    """Compile a function as `compiled` does, and log a line before: it takes long."""
    return compiled(function, has_notice=True)


def stage(function: _F) -> _F:
    """Compile a function that only compiled functions call; it travels inside their machine code."""
    # Python must not call it: there is no way in, and Numba does not check. A test calls its `py_func`, or compiles a
    # function that calls it.
    return cast("_F", _part(function))


def inlined(function: _F) -> _F:
    """Compile a function into the body of each caller."""
    # For the few that run once per JPEG block: a call and a tuple returned through memory would cost a tenth of them.
    return cast("_F", _part(function, forceinline=True))


def merged(function: _F) -> _F:
    """Compile a function as part of its one caller's body, before types are known."""
    # For the few large functions that only pass the work on: the code is a little faster than with calls.
    return cast("_F", _njit(inline="always", **_INNER)(function))
