"""All private parts of Numba that gpubeton uses, and one switch that does without them.

Numba's public interface compiles the same functions to the same results. The hooks do it several times faster, and keep
machine code for the next process. Any release of Numba may change what they touch: pyproject.toml has an upper bound,
one above the newest version with which the tests passed. With ``GPUBETON_NUMBA_HOOKS=0`` in the environment, none is
used: every process compiles for itself, for minutes.
"""

from __future__ import annotations

import contextlib
import gc
import operator
import os
from typing import TYPE_CHECKING, Any

from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.serialize import dumps
from numba.core.typed_passes import NopythonRewrites
from numba.core.types.functions import BaseFunction
from numba.core.untyped_passes import InlineClosureLikes

if TYPE_CHECKING:
    from collections.abc import Iterator

# Numba has no types.
_types: Any = types
_Library: Any = JITCodeLibrary
_Compiler: Any = Compiler
_BaseFunction: Any = BaseFunction
_Result: Any = CompileResult
_dumps: Any = dumps

IS_ENABLED = os.environ.get("GPUBETON_NUMBA_HOOKS") != "0"

# Python's operators, which Numba types as functions.
_OPERATORS = {value for value in vars(operator).values() if callable(value)}

# Passes that no function here needs: they are for array expressions and closures.
_IDLE_PASSES = NopythonRewrites, InlineClosureLikes


class _LinkedLibrary(_Library):  # type: ignore[misc]  # Numba has no types
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
        """Leave out the Python objects that code names: there is no machine code yet, and no such function has any."""


class _ShortCompiler(_Compiler):  # type: ignore[misc]  # Numba has no types
    """Compile without the passes that find nothing to do."""

    # Each pass reads the whole function, and there are hundreds of functions.

    def define_pipelines(self) -> Any:
        """List the passes."""
        (pipeline,) = super().define_pipelines()
        pipeline.passes = [entry for entry in pipeline.passes if entry[0] not in _IDLE_PASSES]
        return [pipeline]


class _InnerCompiler(_ShortCompiler):
    """Compile into a `_LinkedLibrary`."""

    def __init__(self, typing: Any, target: Any, library: Any, *others: Any) -> None:
        super().__init__(typing, target, library or _LinkedLibrary(target.codegen(), "part"), *others)


class _OuterCompiler(_ShortCompiler):
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
    signatures: dict[Any, Any] = {}

    def remembering(function: Any, context: Any, arguments: Any, names: Any) -> Any:
        if names:
            return find(function, context, arguments, names)
        numbers = tuple(map(_types.unliteral, arguments))
        # An operator's result does not depend on the values of numbers, also where they are constants.
        if function.key[0] in _OPERATORS and all(isinstance(number, _types.Number) for number in numbers):
            arguments = numbers
        key = function, tuple(arguments)
        if key not in signatures:
            signatures[key] = find(function, context, arguments, names)
        return signatures[key]

    _BaseFunction.get_call_type = remembering
    try:
        yield
    finally:
        _BaseFunction.get_call_type = find


# Without Numba's runtime, arrays are passed on without counting references to them, which for the dozens of arrays in a
# worker's memory would cost more than the decoding. Nothing here allocates.
_NO_RUNTIME = {"_nrt": False}

INNER_OPTIONS: dict[str, Any] = {**_NO_RUNTIME, "pipeline_class": _InnerCompiler} if IS_ENABLED else {}
"""Options of `numba.njit` for functions that only compiled functions call."""

OUTER_OPTIONS: dict[str, Any] = {**_NO_RUNTIME, "pipeline_class": _OuterCompiler} if IS_ENABLED else {}
"""Options of `numba.njit` for functions that Python calls."""

INLINED_OPTIONS: dict[str, Any] = _NO_RUNTIME if IS_ENABLED else {}
"""Options of `numba.njit` for functions that have no machine code of their own."""


def compile_once_for_constants(dispatcher: Any) -> None:
    """Let a function be compiled for the type of a constant argument, not for each of its values."""
    if IS_ENABLED:
        template = dispatcher.get_call_template
        dispatcher.get_call_template = lambda arguments, names: template(tuple(map(_types.unliteral, arguments)), names)


def set_cache(dispatcher: Any, cache: Any) -> None:
    """Replace the cache of a dispatcher: Numba has no option for one of another kind."""
    # `cache` has the methods of Numba's own: `cache_path`, `load_overload` and `save_overload`.
    if IS_ENABLED:
        dispatcher._cache = cache  # noqa: SLF001  as above


def cache_of(dispatcher: Any) -> Any:
    """Return the cache of a dispatcher; None if the function was not compiled."""
    return getattr(dispatcher, "_cache", None)


def dump_code(code: Any) -> bytes:
    """Write the machine code of one signature, as Numba's own cache does."""
    data: bytes = _dumps(code._reduce())  # noqa: SLF001  as above
    return data


def load_code(target: Any, values: Any) -> Any:
    """Return the machine code that `dump_code` wrote and pickle read."""
    return _Result._rebuild(target, *values)  # noqa: SLF001  as above


def address_of(dispatcher: Any, num_arguments: int) -> int:
    """Compile a function of int64 numbers, which returns one, and return the address of its machine code."""
    dispatcher.compile(_types.int64(*[_types.int64] * num_arguments))
    (result,) = dispatcher.overloads.values()
    address: int = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    return address
