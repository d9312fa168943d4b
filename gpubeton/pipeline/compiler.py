"""Compiler: turns the functions of operations into machine code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from gpubeton.errors import PipelineError
from gpubeton.machine import count_cores

_LIBRARY = f"{Path(__file__).parents[1]}{os.sep}"
_MAX_REMEMBERED = 256
"""Compiled functions kept for reuse; a process that makes more starts afresh."""


class Compiler:
    """Compile functions of operations with Numba, for the whole process.

    A function that equals an earlier one (same code, same captured values) is not compiled again: asking an operation
    for its code at every epoch costs nothing. `forget` ends that for what was compiled until then.

    Examples
    --------
    >>> Compiler.compile(lambda x: x + 1)(1)
    2
    >>> def double(images):
    ...     for i in Compiler.get_iterator()(len(images)):
    ...         images[i] *= 2
    ...     return images
    """

    is_enabled: ClassVar[bool] = True
    num_threads: ClassVar[int] = 1
    generation: ClassVar[int] = 0
    _compiled: ClassVar[dict[Any, Any]] = {}

    @classmethod
    def set_enabled(cls, enabled: bool) -> None:
        """Switch compilation on or off; off, `compile` returns the function itself, for debugging.

        Parameters
        ----------
        enabled : bool
            Whether to compile.
        """
        cls.is_enabled = enabled

    @classmethod
    def set_num_threads(cls, num_threads: int) -> None:
        """Set how many threads a compiled function with ``is_parallel`` uses.

        Parameters
        ----------
        num_threads : int
            At least 1; less means one per core that this process may use. Numba's own limit holds in any case.
        """
        from numba import config, set_num_threads

        if num_threads < 1:
            num_threads = count_cores()
        cls.num_threads = min(num_threads, vars(config)["NUMBA_NUM_THREADS"])
        set_num_threads(cls.num_threads)

    @classmethod
    def forget(cls) -> None:
        """Compile functions of users anew from now on, each once: what they read may have changed in place.

        Numba copies what a function reads from outside, global arrays among it, into the machine code.

        Examples
        --------
        >>> import numpy as np
        >>> def weighted(x):
        ...     return x * WEIGHTS[0]
        >>> WEIGHTS = np.array([2])
        >>> before = Compiler.compile(weighted)(10)
        >>> WEIGHTS[0] = 3
        >>> Compiler.forget()
        >>> before, Compiler.compile(weighted)(10)
        (20, 30)
        """
        cls.generation += 1

    @classmethod
    def compile(cls, code: Callable[..., Any], signature: Any = None) -> Callable[..., Any]:
        """Compile a function; it runs without the interpreter's lock.

        Parameters
        ----------
        code : callable
            A function that Numba can compile. If it has a true attribute ``is_parallel`` and more than one thread is
            set, its loops over ``Compiler.get_iterator()`` run in parallel.
        signature : optional
            Numba signature; by default types are taken from the first call.

        Returns
        -------
        callable
            The compiled function, or `code` itself while compilation is switched off.
        """
        if not cls.is_enabled:
            return code
        import numba

        is_parallel = bool(getattr(code, "is_parallel", False)) and cls.num_threads > 1
        key = _identity(code, signature, is_parallel, cls.generation)
        compiled: Callable[..., Any] | None = None if key is None else cls._compiled.get(key)
        if compiled is None:
            make = numba.njit(signature, nogil=True, fastmath=True, error_model="numpy", parallel=is_parallel)
            compiled = cls._remember(key, make(code))
        return compiled

    @classmethod
    def compile_exact(cls, code: Callable[..., Any], signature: Any = None) -> Callable[..., Any]:
        """Compile a function all of whose arithmetic rounds as IEEE 754 says, as a GPU's does; even if switched off.

        Parameters
        ----------
        code : callable
            A function that Numba can compile. It runs without the interpreter's lock.
        signature : str, optional
            Types of its arguments, as ``"(float32, float32)"``: it is compiled at once. By default the first call's.

        Returns
        -------
        callable
            The compiled function.

        Raises
        ------
        PipelineError
            If it cannot be compiled for that signature; with Numba's own words, which show the line.

        Examples
        --------
        >>> Compiler.compile_exact(lambda x: x + 1, "(int64,)")(1)
        2
        """
        import numba
        from numba.core.errors import NumbaError

        key = _identity(code, signature, False, cls.generation)
        key = None if key is None else ("exact", *key)
        compiled: Callable[..., Any] | None = None if key is None else cls._compiled.get(key)
        if compiled is not None:
            return compiled
        try:
            compiled = numba.njit(signature, nogil=True, error_model="numpy")(code)
        except NumbaError as error:
            where = f"{code.__code__.co_filename}:{code.__code__.co_firstlineno}"
            raise PipelineError(
                f"Numba could not compile {code.__name__} ({where}) for {signature}: {error}"
            ) from error
        return cls._remember(key, compiled)

    @classmethod
    def _remember(cls, key: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
        if key is None:
            return compiled
        if len(cls._compiled) >= _MAX_REMEMBERED:
            cls._compiled.clear()
        cls._compiled[key] = compiled
        return compiled

    @classmethod
    def get_iterator(cls) -> Any:
        """Return what a loop of compiled code runs over: ``numba.prange``, or ``range`` with one thread."""
        if cls.num_threads == 1:
            return range
        import numba

        return numba.prange


class _Same:
    """Key that equals another only if both hold the very same object; it keeps that object alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _identity(code: Callable[..., Any], signature: Any, is_parallel: bool, generation: int) -> Any:
    """Key that two functions share only if they compile to the same; None if that cannot be told."""
    try:
        cells = tuple(cell.cell_contents for cell in code.__closure__ or ())
        called = tuple(_Same(code.__globals__.get(name)) for name in code.__code__.co_names)
        # The library's own functions read nothing that changes, and take long to compile.
        since = 0 if code.__code__.co_filename.startswith(_LIBRARY) else generation
        key = (code.__code__, cells, tuple(map(type, cells)), code.__defaults__, called, signature, is_parallel, since)
        hash(key)
    except (AttributeError, TypeError, ValueError):
        return None
    return key
