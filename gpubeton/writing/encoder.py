"""Encoder: encodes chunks of a dataset and writes them where it is told, in whichever process it lives."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gpubeton.format.layout import metadata_dtype
from gpubeton.writing.atomic_file import write_at
from gpubeton.writing.chunk import Chunk, encode_chunk

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from gpubeton.writing.extent import Extent
    from gpubeton.writing.tasks import Job, Place, Placed, Task, TaskQueue

__all__ = ["Encoder"]


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

    def run(self, lines: TaskQueue, place: Place, on_written: Callable[[Task], object]) -> None:
        """Carry out tasks one after the other, in this process.

        Parameters
        ----------
        lines : TaskQueue
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
