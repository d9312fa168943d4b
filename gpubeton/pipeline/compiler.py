"""Compiler: turns the functions of operations into machine code."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from gpubeton._machine import count_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LIBRARY = f"{Path(__file__).parents[1]}{os.sep}"


class Compiler:
    """Compile functions of operations with Numba, for the whole process.

    A function that equals an earlier one (same code, same captured values) is not compiled again: asking an operation
    for its code at every epoch costs nothing. `begin` ends that where values that it reads from outside have
    changed, `forget` for all that was compiled until then.

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
    max_compiled: ClassVar[int] = 512  # functions kept for reuse; the least recently used go first
    _last_generation: ClassVar[int] = 0
    _forgotten: ClassVar[int] = 0
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
    def begin(cls) -> int:
        """Compile functions of users again from now on, each once, if the global values that they name have changed.

        Numba copies global values into the machine code: arrays with their contents. Each loader begins so; epoch after
        epoch it reuses its compiled functions.

        Returns
        -------
        int
            To be assigned to ``Compiler.generation``, to reuse later the functions compiled from now on.

        Examples
        --------
        >>> import numpy as np
        >>> def weighted(x):
        ...     return x * WEIGHTS[0]
        >>> WEIGHTS = np.array([2])
        >>> before = Compiler.compile(weighted)(10)
        >>> WEIGHTS[0] = 3
        >>> still = Compiler.compile(weighted)(10)
        >>> _ = Compiler.begin()
        >>> before, still, Compiler.compile(weighted)(10)
        (20, 20, 30)
        """
        cls._last_generation += 1
        cls.generation = cls._last_generation
        return cls.generation

    @classmethod
    def forget(cls) -> int:
        """Compile functions of users again from now on, each once: the values that they read may have changed in place.

        Returns
        -------
        int
            As of `begin`, after which functions whose values are equal are still the same.
        """
        cls._forgotten += 1
        return cls.begin()

    @classmethod
    def compile(
        cls, code: Callable[..., Any], signature: Any = None, *, generation: int | None = None
    ) -> Callable[..., Any]:
        """Compile a function; it runs without the interpreter's lock.

        Parameters
        ----------
        code : callable
            A function that Numba can compile. If it has a true attribute ``is_parallel`` and more than one thread is
            set, its loops over ``Compiler.get_iterator()`` run in parallel.
        signature : optional
            Numba signature; by default types are taken from the first call.
        generation : int, optional
            Result of `begin`, to reuse the functions compiled after it; by default ``Compiler.generation``.

        Returns
        -------
        callable
            The compiled function, or `code` itself while compilation is switched off.
        """
        if not cls.is_enabled:
            return code
        import numba

        is_parallel = bool(getattr(code, "is_parallel", False)) and cls.num_threads > 1

        def make(code: Callable[..., Any]) -> Any:
            return numba.njit(signature, nogil=True, fastmath=True, error_model="numpy", parallel=is_parallel)(code)

        return cls._once(code, (signature, is_parallel), make, generation)

    @classmethod
    def compile_exact(cls, code: Callable[..., Any]) -> Callable[..., Any]:
        """Compile a function all of whose arithmetic rounds by IEEE 754, as on a GPU; even if switched off.

        Parameters
        ----------
        code : callable
            A function that Numba can compile. It runs without the interpreter's lock.

        Returns
        -------
        callable
            The compiled function.

        Examples
        --------
        >>> Compiler.compile_exact(lambda x: x + 1)(1)
        2
        """
        import numba

        return cls._once(code, ("exact",), numba.njit(nogil=True, error_model="numpy"))

    @classmethod
    def _once(
        cls,
        code: Callable[..., Any],
        options: tuple[Any, ...],
        make: Callable[..., Any],
        generation: int | None = None,
    ) -> Callable[..., Any]:
        """Compile a function, or give the result of an earlier call."""
        key = _identity(code, options)
        if key is None:
            return cast("Callable[..., Any]", make(code))
        # The library's own functions read nothing that changes, and take long to compile.
        is_ours = code.__code__.co_filename.startswith(_LIBRARY)
        key = (*key, 0 if is_ours else cls.generation if generation is None else generation)
        dispatcher: Callable[..., Any] | None = cls._compiled.get(key)
        if dispatcher is not None:
            return cls._remember(key, dispatcher)
        if is_ours:
            from gpubeton._compile.compile import keep

            dispatcher = make(code)
            keep(dispatcher)
        else:
            contents = (*key[:-1], "forgotten", cls._forgotten, *_read_from_outside(code.__code__, code.__globals__))
            dispatcher = cls._compiled.get(contents) or make(code)
            cls._remember(contents, dispatcher)
        return cls._remember(key, dispatcher)

    @classmethod
    def _remember(cls, key: Any, compiled: Callable[..., Any]) -> Callable[..., Any]:
        cls._compiled.pop(key, None)  # to the end, as used last
        # Of a list: other threads may change the dictionary meanwhile.
        for oldest in list(cls._compiled)[: max(len(cls._compiled) - cls.max_compiled + 1, 0)]:
            cls._compiled.pop(oldest, None)
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


def _identity(code: Callable[..., Any], options: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Key that two functions share only if they compile to the same; None if that is not known."""
    try:
        values = tuple(cell.cell_contents for cell in code.__closure__ or ())
        defaults = (code.__defaults__, tuple((code.__kwdefaults__ or {}).items()))
        called = tuple(_Same(code.__globals__.get(name)) for name in code.__code__.co_names)
        key = (code.__code__, _typed(values), _typed(defaults), called, *options)
        hash(key)
    except (AttributeError, TypeError, ValueError):
        return None
    return key


def _typed(value: Any) -> Any:
    """A value that equals another only if both compile to the same: 1 is not 1.0, and 0.0 is not -0.0."""
    if isinstance(value, tuple):
        return type(value), *map(_typed, value)
    return type(value), value.hex() if isinstance(value, float) else value


def _read_from_outside(code: CodeType, values: dict[str, Any]) -> Iterator[Any]:
    """The values of a function's names: global values, attributes of global modules; also in functions within it."""
    for name in code.co_names:
        if name in values:
            yield name, _frozen(values[name])
            if isinstance(values[name], ModuleType):
                yield from _read_from_module(code, values[name], set())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _read_from_outside(constant, values)


def _read_from_module(code: CodeType, module: ModuleType, seen: set[int]) -> Iterator[Any]:
    """What of a module a function may read, also by way of modules in it."""
    seen.add(id(module))
    attributes = vars(module)
    for name in code.co_names:
        if name in attributes:
            yield name, _frozen(attributes[name])
            if isinstance(attributes[name], ModuleType) and id(attributes[name]) not in seen:
                yield from _read_from_module(code, attributes[name], seen)


def _frozen(value: Any) -> Any:
    """What of a value goes into machine code: of an array its contents."""
    if isinstance(value, tuple):
        return tuple(map(_frozen, value))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.strides, hashlib.blake2b(value.tobytes(), digest_size=16).digest()
    return _Same(value)
