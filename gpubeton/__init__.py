"""Training batches from FFCV's ``.beton`` files, decoded and augmented in one pass.

Importing the package costs almost nothing: modules that need torch or numba
are imported when they are used, from `gpubeton.loader`, `gpubeton.writer`,
`gpubeton.fields` and `gpubeton.transforms`, or by their name, as in
``gpubeton.transforms.ToTensor()`` after ``import gpubeton``.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from gpubeton._missing_names import MissingNames, missing_attribute

if TYPE_CHECKING:
    from gpubeton.loader import BatchDecoder, Loader, Mixture, RemoteOptions, decode_image
    from gpubeton.writer import DatasetWriter

    __version__: str

__all__ = ["BatchDecoder", "DatasetWriter", "Loader", "Mixture", "RemoteOptions", "__version__", "decode_image"]

#: Modules that scripts may name after ``import ffcv`` alone.
_IMPORTED_BY_FFCV = {"fields", "libffcv", "loader", "pipeline", "reader", "transforms", "traversal_order", "writer"}

if MissingNames not in sys.meta_path:
    sys.meta_path.append(MissingNames)


def __getattr__(name: str) -> Any:
    if name in {"BatchDecoder", "Loader", "Mixture", "RemoteOptions", "decode_image"}:
        return getattr(importlib.import_module("gpubeton.loader"), name)
    if name == "DatasetWriter":
        from gpubeton.writer import DatasetWriter

        return DatasetWriter
    if name == "__version__":  # when it is asked for: the search takes longer than all other imports here
        globals()[name] = _find_version()
        return globals()[name]
    if name in _IMPORTED_BY_FFCV:
        return importlib.import_module(f"gpubeton.{name}")
    raise missing_attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_IMPORTED_BY_FFCV})


def _find_version() -> str:
    """Find the version that was installed; a folder of sources that was not has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("gpubeton")
    except PackageNotFoundError:
        return "0+unknown"
