"""Which samples of a loader meet a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import NoSuchFieldError
from gpubeton.loader.order_option import OrderOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.loader.loader import Loader


def scanning_arguments(loader: Loader, field_name: str) -> dict[str, Any]:
    """Give the arguments of a loader that goes through one output of another.

    Parameters
    ----------
    loader : Loader
        The other.
    field_name : str
        Name of the field, or of another output.

    Returns
    -------
    dict
        What differs from the other's arguments.

    Raises
    ------
    NoSuchFieldError
        If there is no such output.
    """
    if field_name not in loader.pipelines and field_name not in loader.reader.handlers:
        known = ", ".join(map(repr, dict.fromkeys([*loader.reader.handlers, *loader.pipelines])))
        raise NoSuchFieldError(f"{loader.reader.index.title}: no field {field_name!r}; there are {known}.")
    return {
        "order": OrderOption.SEQUENTIAL,
        "distributed": False,
        "drop_last": False,
        "order_kwargs": None,
        # Whoever asks for a field that has been switched off gets what it would be by default.
        "pipelines": {**dict.fromkeys(loader.reader.handlers), field_name: loader.pipelines.get(field_name) or ()},
        "on_error": "raise" if loader.on_error == "raise" else "skip",
    }


def select_samples(scan: Loader, condition: Callable[[Any], bool]) -> NDArray[np.uint64]:
    """Go through a loader of one output, and keep the samples whose value meets a condition.

    Parameters
    ----------
    scan : Loader
        Gives the values; it is closed afterwards.
    condition : callable
        Called with the value of each sample, a row of the output.

    Returns
    -------
    ndarray of uint64, shape (N,)
        Ids of those for which it returned something true, in the loader's order.
    """
    kept: list[int] = []
    batches = iter(scan)
    try:
        for (values,) in batches:
            # The iterator knows the ids, whatever the indices are and whichever samples were left out.
            rows = zip(batches.samples.tolist(), values, strict=True)
            kept.extend(sample for sample, value in rows if condition(value))
    finally:
        scan.close()
    return np.array(kept, np.uint64)
