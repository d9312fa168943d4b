"""Reader: the content of ``.beton`` files, under FFCV's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.fields.registry import CustomFields, fields_of, open_index
from gpubeton.format.data_files import find_file
from gpubeton.format.dataset import warn_of_classes
from gpubeton.format.file_notes import Notes, read_notes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._bytes.store_client import RemoteOptions
    from gpubeton.fields.base import Field
    from gpubeton.format.dataset import Paths
    from gpubeton.format.index import Index

__all__ = ["Reader"]


class Reader:
    """Read and check a ``.beton`` file, or several that make one dataset.

    The attributes have FFCV's names; `index` has more. Errors are those of `open_dataset`.

    Parameters
    ----------
    fname : str, path, or sequence of them
        The file, or several with the same fields, whose samples follow each other; also a folder, a pattern or a URL,
        as in `open_dataset`.
    custom_handlers : mapping of str to Field class, optional
        The class of each custom field, by its name.
    remote : RemoteOptions, optional
        How the store of files such as ``s3://bucket/train.beton`` is reached.
    containers : sequence of str
        Folders and URLs, besides that of an index file, whose files it may name.

    Notes
    -----
    In one file, pointers in the metadata and in the allocation table are offsets. With several files they also name the
    file, see `gpubeton.format.data_files`.

    Examples
    --------
    >>> reader = Reader("train.beton")
    >>> reader.num_samples, reader.field_names
    (300, ['image', 'label'])
    >>> Reader(["train.beton", "train.beton"]).locate(310)
    ('train.beton', 10)
    """

    def __init__(
        self,
        fname: Paths,
        custom_handlers: CustomFields | None = None,
        *,
        remote: RemoteOptions | None = None,
        containers: Sequence[str] = (),
    ) -> None:
        self._file_name = fname
        self._notes: tuple[Notes, ...] | None = None
        self.index: Index  #: the checked header, metadata and regions
        self.handlers: dict[str, Field]  #: the fields, in the order of the file
        self.index, self.handlers = open_index(fname, custom_handlers, remote, containers)

    @property
    def file_name(self) -> Paths:
        """The file, or the files, as given."""
        return self._file_name

    @property
    def notes(self) -> dict[str, Any]:
        """The ``notes`` of `DatasetWriter` in the (first) file; empty for files that FFCV wrote."""
        return dict(self._read_notes()[0].content)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, in the order of the labels; None if a file has none, or files differ."""
        if self.index.class_names is not None:  # of a manifest
            return self.index.class_names or None
        notes = self._read_notes()
        names = {file.class_names: number for number, file in enumerate(notes) if file.class_names}
        if len(names) > 1:
            (first, at), (second, other), *_ = names.items()
            betons = [file.path for file in self.index.files if not file.is_container]
            warn_of_classes(betons[at], first, betons[other], second)
        return next(iter(names)) if len(names) == 1 and all(file.class_names for file in notes) else None

    @property
    def checksums(self) -> NDArray[np.uint32] | None:
        """CRC-32 of each region, in the order of `alloc_table`; None if a file has none."""
        notes = self._read_notes()
        checksums = [file.checksums for file in notes if file.checksums is not None]
        return np.concatenate(checksums) if len(checksums) == len(notes) else None

    def _read_notes(self) -> tuple[Notes, ...]:
        # Not in the constructor: a loader works with damaged notes, too.
        if self._notes is None:
            betons = (file for file in self.index.files if not file.is_container)
            self._notes = tuple(read_notes(file.path, file.identity) or Notes({}) for file in betons) or (Notes({}),)
        return self._notes

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
        """Bytes of a page; the largest, if files differ."""
        return max(file.page_size for file in self.index.files)

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
        return self.index.metadata_type

    @property
    def alloc_table(self) -> NDArray[np.void]:
        """The allocation table (sample_id, ptr, size), sorted by pointer."""
        return self.index.allocations

    def locate(self, sample: int) -> tuple[str, int]:
        """Find the file of a sample.

        Parameters
        ----------
        sample : int
            Its id.

        Returns
        -------
        tuple of str and int
            The file, and the number of the sample in it, from 0; of loose images their path, and 0. IndexError if there
            is no such sample.
        """
        file = find_file(self.index.files, sample)
        if file.is_list:
            return self.index.origin(sample), 0
        return file.path, sample - file.first_sample


def reader_of(fname: Paths, index: Index, custom_handlers: CustomFields | None = None) -> Reader:
    """Make the reader of files whose index is in memory, as if they had been opened."""
    reader = Reader.__new__(Reader)
    vars(reader).update(_file_name=fname, _notes=None, index=index, handlers=fields_of(index, custom_handlers))
    return reader
