"""Filter: which samples of a loader meet a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import NoSuchFieldError
from gpubeton.loader.schedule import OrderOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.loader.config import LoaderConfig
    from gpubeton.loader.iterator import LoaderIterator
    from gpubeton.reader import Reader


def scan_changes(config: LoaderConfig, reader: Reader, field_name: str) -> dict[str, Any]:
    """Change the arguments of a loader into those of one that goes through one of its outputs."""
    if field_name not in config.pipelines and field_name not in reader.handlers:
        known = ", ".join(map(repr, dict.fromkeys([*reader.handlers, *config.pipelines])))
        raise NoSuchFieldError(f"{reader.index.title}: no field {field_name!r}; there are {known}.")
    return {
        "order": OrderOption.SEQUENTIAL,
        "distributed": False,
        "order_kwargs": None,
        # A field that has been switched off gets its default pipeline.
        "pipelines": {**dict.fromkeys(reader.handlers), field_name: config.pipelines.get(field_name) or ()},
        "on_error": "raise" if config.on_error == "raise" else "skip",
    }


def select_samples(batches: LoaderIterator, condition: Callable[[Any], bool]) -> NDArray[np.uint64]:
    """Keep the samples whose value meets the condition, from batches of one output; gives their ids, (N,)."""
    kept: list[int] = []
    for (values,) in batches:
        # The iterator knows the ids, also when samples were left out.
        rows = zip(batches.samples.tolist(), values, strict=True)
        kept.extend(sample for sample, value in rows if condition(value))
    return np.array(kept, np.uint64)
