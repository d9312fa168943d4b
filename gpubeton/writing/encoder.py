"""Encoder: encodes chunks of a dataset and writes them where it is told, in whichever process it lives."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields.base import Field
from gpubeton.format.layout import metadata_dtype
from gpubeton.writing.atomic_file import write_at
from gpubeton.writing.chunk import Chunk, encode_chunk
from gpubeton.writing.extent import Extent

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpubeton.writing.lines import Lines

__all__ = ["Encoder", "Job", "Place", "Placed", "Task"]


@dataclass(frozen=True)
class Job:
    """All that is to be written, and where.

    Parameters
    ----------
    dataset : indexable
        Gives the samples.
    indices : sequence
        Which samples, in the order of the rows of the file.
    fields : mapping of str to Field
        How their values are stored.
    page_size : int
        Bytes of a page.
    metadata_offset : int
        Where the metadata begins.
    file : str
        The file, which exists.
    skip : bool
        Whether a sample that cannot be taken or encoded is left out.
    checksums : bool
        Whether the checksum of each region is wanted.
    remarks : bool
        Whether the dataset is asked for remarks on its samples: by its method ``take_remarks``, which is told which
        ones were left out, and counts them.
    """

    dataset: Any
    indices: Sequence[Any]
    fields: Mapping[str, Field]
    page_size: int
    metadata_offset: int
    file: str
    skip: bool = False
    checksums: bool = False
    remarks: bool = False


@dataclass(frozen=True)
class Placed:
    """Where the samples of a chunk go.

    Parameters
    ----------
    first_row : int
        Row of the file of the first of them; less than the first row of its task if samples were left out.
    offset : ndarray of uint64, shape (N,)
        Where in the file each sample goes.
    """

    first_row: int
    offset: NDArray[np.uint64]


@dataclass(frozen=True)
class Task:
    """The rows of one chunk.

    Parameters
    ----------
    start, stop : int
        First row, and the one behind the last.
    """

    start: int
    stop: int


Place = Callable[[Task, Extent], Placed]
"""Called with each task and the extent of its chunk, in the order of the tasks; says where the samples go."""


class Encoder:
    """Encodes chunks and keeps them until it is told where they go.

    To be used in a ``with`` block, which holds the file open.

    Parameters
    ----------
    job : Job
        What is to be written.
    on_sample : callable, optional
        Called with the row of each sample before it is taken.
    """

    def __init__(self, job: Job, on_sample: Callable[[int], None] | None = None) -> None:
        self._job = job
        self._fields = tuple(job.fields.values())
        self._row_size = metadata_dtype([field.metadata_type for field in self._fields]).itemsize
        self._on_sample = on_sample
        self._chunks: dict[int, Chunk] = {}
        self._descriptor = os.open(job.file, os.O_WRONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def count(self, shards: int) -> list[int]:
        """Count the samples of a dataset in shards.

        Parameters
        ----------
        shards : int
            Number of shards.

        Returns
        -------
        list of int
            Samples of each.
        """
        return [self._job.dataset.count(shard) for shard in range(shards)]

    def run(self, lines: Lines, place: Place, on_written: Callable[[Task], object]) -> None:
        """Carry out tasks one after the other, in this process.

        Parameters
        ----------
        lines : Lines
            The tasks.
        place : callable
            Says where the samples of a chunk go.
        on_written : callable
            Called when a chunk is in the file.

        Raises
        ------
        SampleError
            If a sample could not be taken or encoded.
        StorageError
            If the file could not be written.
        """
        while (task := lines.take(0)) is not None:
            self.write(task, place(task, self.encode(task)))
            on_written(task)

    def encode(self, task: Task) -> Extent:
        """Encode a chunk.

        Parameters
        ----------
        task : Task
            Its rows.

        Returns
        -------
        Extent
            How large its regions are.

        Raises
        ------
        SampleError
            If a sample could not be taken or encoded.
        """
        job = self._job
        indices = job.indices[task.start : task.stop]
        chunk = encode_chunk(
            job.dataset, job.fields, indices, task.start, job.page_size, self._on_sample, skip=job.skip
        )
        self._chunks[task.start] = chunk
        extent = replace(chunk.extent, checksums=chunk.checksums()) if job.checksums else chunk.extent
        if not job.remarks:
            return extent
        return replace(extent, remarks=job.dataset.take_remarks({refusal.index for refusal in extent.refused}))

    def write(self, task: Task, placed: Placed) -> None:
        """Write a chunk that was encoded, and forget it.

        Parameters
        ----------
        task : Task
            Its rows.
        placed : Placed
            Where it goes.

        Raises
        ------
        StorageError
            If the file cannot be written.
        """
        chunk = self._chunks.pop(task.start)
        for place, region in chunk.settle(placed.offset, self._fields):
            write_at(self._descriptor, place, region.data, self._job.file)
        rows = self._job.metadata_offset + placed.first_row * self._row_size
        write_at(self._descriptor, rows, chunk.metadata.tobytes(), self._job.file)
