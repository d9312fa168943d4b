"""Assembly: a file while its samples arrive."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gpubeton.fields.registry import type_id_of
from gpubeton.format.file_notes import Notes
from gpubeton.format.header import Descriptor
from gpubeton.format.layout import ARGUMENTS_SIZE, DESCRIPTOR_DTYPE, HEADER_DTYPE, VERSION
from gpubeton.writing.placement import Placement
from gpubeton.writing.tasks import Placed, Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from gpubeton.fields.base import Field
    from gpubeton.writing.extent import Extent, Refusal

__all__ = ["Assembly", "describe"]


class _File(Protocol):
    def write(self, offset: int, content: Buffer) -> None: ...


def describe(fields: Mapping[str, Field]) -> tuple[Descriptor, ...]:
    """Give what a file says about its fields.

    Parameters
    ----------
    fields : mapping of str to Field
        The fields, in their order.

    Returns
    -------
    tuple of Descriptor
        One for each.
    """
    return tuple(
        Descriptor(name, type_id_of(field), field.to_binary().tobytes()[:ARGUMENTS_SIZE])
        for name, field in fields.items()
    )


class Assembly:
    """A file while its samples arrive: gives them rows and places, and puts head and tail around them.

    Parameters
    ----------
    file : AtomicFile or ResumableFile
        Where it is written.
    descriptors : sequence of Descriptor
        Its fields.
    row_size : int
        Bytes of a row of metadata.
    page_size : int
        Bytes of a page.
    max_rows : int
        Samples at most: room is left for the metadata of so many.

    Attributes
    ----------
    metadata_offset : int
        Where the metadata begins.
    rows : int
        Samples so far.
    refused : list of Refusal
        Samples that were left out so far.
    remarks : Counter
        What the dataset had to say of the others so far, and of how many.
    """

    def __init__(
        self, file: _File, descriptors: Sequence[Descriptor], row_size: int, page_size: int, max_rows: int
    ) -> None:
        self._file = file
        self._descriptors = descriptors
        self._page_size = page_size
        self.metadata_offset = HEADER_DTYPE.itemsize + len(descriptors) * DESCRIPTOR_DTYPE.itemsize
        self.rows = 0
        self.refused: list[Refusal] = []
        self.remarks: Counter[str] = Counter()
        self._placement = Placement(self.metadata_offset + max_rows * row_size, page_size)
        self._checksums: list[NDArray[np.uint32]] = []

    @property
    def end(self) -> int:
        """Where the next sample would go if it fits."""
        return self._placement.position

    def place(self, task: Task, extent: Extent) -> Placed:
        """Decide where the next samples go.

        Parameters
        ----------
        task : Task
            Which they are. Its rows are theirs, but for the samples that were left out before.
        extent : Extent
            Sizes of their regions.

        Returns
        -------
        Placed
            Their rows and offsets.
        """
        first_row = task.start - len(self.refused)
        offset = self._placement.place(first_row, extent)
        self.rows += len(extent.counts)
        self.refused += extent.refused
        self.remarks.update(extent.remarks)
        if extent.checksums is not None:
            self._checksums.append(extent.checksums)
        return Placed(first_row, offset)

    def note_checksums(self, checksums: NDArray[np.uint32]) -> None:
        """Take the checksums of regions that were placed without any.

        Parameters
        ----------
        checksums : ndarray of uint32, shape (R,)
            In the order of placing.
        """
        self._checksums.append(checksums)

    def finish(self, content: Mapping[str, Any] | None = None) -> None:
        """Write the header, the notes and the allocation table.

        Parameters
        ----------
        content : mapping of str to object, optional
            What JSON can hold, for the notes. Without it there are none, and the file is FFCV's to the byte.
        """
        table_offset = self._placement.table_offset
        if content is not None:
            sums = np.concatenate([np.empty(0, np.uint32), *self._checksums])
            notes = Notes(content, sums if len(sums) else None).to_bytes()
            self._file.write(table_offset, notes)
            table_offset += len(notes)
        self._file.write(table_offset, self._placement.table.tobytes())
        header = (VERSION, len(self._descriptors), self._page_size, self.rows, table_offset)
        self._file.write(0, np.array([header], HEADER_DTYPE).tobytes() + self._descriptor_bytes())

    def _descriptor_bytes(self) -> bytes:
        rows = np.zeros(len(self._descriptors), DESCRIPTOR_DTYPE)
        for row, descriptor in zip(rows, self._descriptors, strict=True):
            row["type_id"] = descriptor.type_id
            row["name"][: len(descriptor.name)] = np.frombuffer(descriptor.name.encode("ascii"), np.uint8)
            row["arguments"] = np.frombuffer(descriptor.arguments, np.uint8)
        return rows.tobytes()
