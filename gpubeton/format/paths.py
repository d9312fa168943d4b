"""Paths: the files of a dataset, as a user names them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from gpubeton.errors import OptionError
from gpubeton.format.places import MAX_FILES

__all__ = ["Paths", "listed_paths"]

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""One file, or several that make one dataset, in this order."""


def listed_paths(paths: Any) -> tuple[str, ...]:
    """List the files of a dataset.

    Parameters
    ----------
    paths : str, path, or sequence of them
        One file, or several.

    Returns
    -------
    tuple of str
        Each of them, in the order given. A string is one file, whatever stars it holds.

    Raises
    ------
    OptionError
        If there is none, or something else than paths.

    Examples
    --------
    >>> listed_paths("train.beton"), listed_paths(["a.beton", "b.beton"])
    (('train.beton',), ('a.beton', 'b.beton'))
    """
    if isinstance(paths, str | os.PathLike):
        return (os.fspath(paths),)
    if isinstance(paths, bytes) or not isinstance(paths, Sequence):
        raise OptionError(
            f"the file is {paths!r}; expected a path, or a list of paths. "
            "Of whatever finds files, make a list in an order that stays: sorted(folder.glob('*.beton'))."
        )
    wrong = [path for path in paths if not isinstance(path, str | os.PathLike)]
    if wrong or not 1 <= len(paths) <= MAX_FILES:
        found = f"one of them is {wrong[0]!r}" if wrong else f"a list of {len(paths)} files"
        raise OptionError(f"the files of the dataset: {found}; expected 1 to {MAX_FILES} paths")
    return tuple(os.fspath(path) for path in paths)
