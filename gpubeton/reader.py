"""Reader: what a ``.beton`` file holds, under FFCV's names."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields.registry import CustomFields, open_index

__all__ = ["Reader"]


class Reader:
    """What a ``.beton`` file holds, read and checked when it is made.

    FFCV's names; `index` has more.

    Parameters
    ----------
    fname : str or path
        The file.
    custom_handlers : mapping of str to Field class, optional
        The class of each custom field, by its name.

    Attributes
    ----------
    index : Index
        The checked header, metadata and regions.
    handlers : dict of str to Field
        The fields, in the order of the file.

    Raises
    ------
    FormatError
        One of its subclasses for each defect, see `gpubeton.errors`.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> reader = Reader("train.beton")                        # doctest: +SKIP
    >>> reader.num_samples, reader.field_names                # doctest: +SKIP
    (1281167, ['image', 'label'])
    """

    def __init__(self, fname: str | os.PathLike[str], custom_handlers: CustomFields | None = None) -> None:
        self._file_name = fname
        self.index, self.handlers = open_index(fname, custom_handlers)

    @property
    def file_name(self) -> str | os.PathLike[str]:
        """The file, as it was given."""
        return self._file_name

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return self.index.num_samples

    @property
    def num_fields(self) -> int:
        """Number of fields."""
        return len(self.handlers)

    @property
    def page_size(self) -> int:
        """Bytes of a page."""
        return self.index.header.page_size

    @property
    def field_names(self) -> list[str]:
        """Names of the fields, in the order of the file."""
        return list(self.index.names)

    @property
    def metadata(self) -> NDArray[np.void]:
        """Metadata: one structured row per sample, with columns ``f0``, ``f1``, ..."""
        return self.index.metadata

    @property
    def metadata_type(self) -> np.dtype[Any]:
        """Dtype of `metadata`."""
        return self.index.metadata.dtype

    @property
    def alloc_table(self) -> NDArray[np.void]:
        """The allocation table (sample_id, ptr, size), sorted by pointer."""
        return self.index.allocations
