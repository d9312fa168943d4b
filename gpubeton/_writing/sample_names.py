"""Names of samples and classes, in datasets that list them as torchvision's do."""

from __future__ import annotations

import os
from typing import Any


def file_of(dataset: Any, index: Any) -> str | None:
    """Find the file of a sample, for errors; None if the dataset does not list its files."""
    try:
        while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):  # torch's Subset
            dataset, index = dataset.dataset, dataset.indices[index]
        for attribute in ("samples", "imgs", "files"):
            listed = getattr(dataset, attribute, None)
            if listed is None:
                continue
            file = listed[index][0] if isinstance(listed[index], tuple | list) else listed[index]
            if isinstance(file, str | os.PathLike) and os.path.isfile(file):  # noqa: PTH113  a text
                return os.fspath(file)
    except (IndexError, KeyError, TypeError, ValueError):
        pass  # the attribute means something else
    return None


def class_names_of(dataset: Any) -> list[str] | None:
    """Read the names of the classes; ImageNet has several names for each."""
    while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):  # torch's Subset
        dataset = dataset.dataset
    names = getattr(dataset, "classes", None)
    if not isinstance(names, list | tuple):
        return None
    return [name if isinstance(name, str) else ", ".join(map(str, name)) for name in names]


def without_place(reason: str) -> str:
    """Leave out the sample's number from a reason: its name is more useful."""
    return reason.partition("the file)")[2].lstrip(":, ") or reason
