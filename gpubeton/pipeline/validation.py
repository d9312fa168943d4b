"""Checks of arguments: each gives the value in a plain type, or raises an `OptionError` that names the argument."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

_T = TypeVar("_T")


def check_whole(name: str, value: Any, least: int = 0, most: int | None = None) -> int:
    """Check a whole number, ``check_whole("batch_size", value, 1)``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise _error(name, value, f"a whole number {limits}")
    return number


def check_number(
    name: str, value: Any, least: float = -math.inf, most: float = math.inf, *, positive: bool = False
) -> float:
    """Check a finite number; `positive` excludes 0."""
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not _is_within(number, number, least, most, positive):
        raise _error(name, value, f"a number{_limits(least, most, positive)}")
    return number


def check_probability(name: str, value: Any) -> float:
    """Check a probability."""
    return check_number(name, value, 0, 1)


def check_range(
    name: str,
    value: Any,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    positive: bool = False,
    takes_one: bool = False,
) -> tuple[float, float]:
    """Check two numbers, the smaller first; with `takes_one` a single number is both of them."""
    numbers = _numbers(value)
    if takes_one and len(numbers) == 1 and np.ndim(value) == 0:
        numbers *= 2
    if len(numbers) == 2 and _is_within(numbers[0], numbers[1], least, most, positive):
        return numbers[0], numbers[1]
    single = "a number or " if takes_one else ""
    raise _error(name, value, f"{single}two numbers{_limits(least, most, positive)}, the smaller first")


def check_pair(name: str, value: Any, least: float, most: float) -> tuple[float, float]:
    """Check two numbers in any order."""
    numbers = _numbers(value)
    if len(numbers) == 2 and _is_within(min(numbers), max(numbers), least, most):
        return numbers[0], numbers[1]
    raise _error(name, value, f"two numbers{_limits(least, most)}")


def check_spread(
    name: str, value: Any, center: float = 0.0, least: float = -math.inf, most: float = math.inf
) -> tuple[float, float]:
    """Check a range that one number gives too: 0.2 with the center 1 means 0.8 to 1.2, but no less than `least`."""
    numbers = _numbers(value)
    if np.ndim(value) == 0 and len(numbers) == 1 and _is_within(numbers[0], numbers[0], 0, most - center):
        return max(center - numbers[0], float(least)), center + numbers[0]
    if np.ndim(value) == 1 and len(numbers) == 2 and _is_within(numbers[0], numbers[1], least, most):
        return numbers[0], numbers[1]
    raise _error(
        name,
        value,
        f"a number{_limits(0, most - center)}, for {center:g} minus and plus that number; "
        f"or two numbers{_limits(least, most)}, the smaller first",
    )


def check_size(name: str, value: Any, *, takes_one: bool = True) -> tuple[int, int]:
    """Check a height and a width in pixels; with `takes_one` a single number is both of them."""
    sides = _array(value)
    if sides.dtype.kind in "iu" and sides.shape in ({(), (2,)} if takes_one else {(2,)}) and sides.min() > 0:
        height, width = np.broadcast_to(sides, 2).tolist()
        return height, width
    single = "32, or " if takes_one else ""
    raise _error(name, value, f"{single}height and width in pixels, at least 1, such as (224, 224)")


def check_fill(name: str, value: Any) -> tuple[float, ...]:
    """Check a color: one, three or four numbers; a single number holds for each of three channels."""
    numbers = _array(value)
    fits = numbers.shape in {(), (1,), (3,), (4,)} and numbers.dtype.kind in "iufb"
    if not fits or not np.isfinite(numbers).all():
        raise _error(name, value, "three numbers, red, green and blue: (0, 0, 0); or one, or one for each channel")
    levels: list[float] = np.atleast_1d(numbers).tolist()
    return tuple(levels * 3 if numbers.shape == () else levels)


def check_choice(name: str, value: Any, choices: Iterable[_T]) -> _T:
    """Check that a value is one of some."""
    candidates = list(choices)
    for choice in candidates:
        if isinstance(value, type(choice)) and value == choice:
            return choice
    raise _error(name, value, f"one of {', '.join(map(repr, candidates))}")


def _error(name: str, value: Any, expected: str) -> OptionError:
    return OptionError(f"{name} is {value!r}; expected {expected}")


def _array(value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Convert to an array, empty for a value that has no shape such as [1, [2, 3]]."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError):
        return np.zeros(0, object)


def _numbers(value: Any) -> list[float]:
    """List the numbers of a value, none if it holds anything else."""
    array = _array(value)
    return [float(number) for number in array.flat] if array.dtype.kind in "iuf" and array.ndim < 2 else []


def _is_within(first: float, last: float, least: float, most: float, positive: bool = False) -> bool:
    """Whether two finite numbers are in order and within limits; False for NaN."""
    if positive and first <= 0:
        return False
    return -math.inf < first <= last < math.inf and least <= first and last <= most


def _limits(least: float, most: float, positive: bool = False) -> str:
    if math.isfinite(least) and math.isfinite(most):
        return f" from {least:g} to {most:g}"
    if math.isfinite(most):
        return f" up to {most:g}"
    if positive:
        return " above 0"
    return f" of at least {least:g}" if math.isfinite(least) else ""
