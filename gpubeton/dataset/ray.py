"""Ray: tasks of a cluster, and a sink for datasets of Ray Data; needs ``gpubeton[ray]``."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from gpubeton._machine import install
from gpubeton._writing import TargetFolder
from gpubeton.errors import GpubetonError, StorageError, WorkerDiedError
from gpubeton.format.layout import PAGE_SIZE_DEFAULT
from gpubeton.writer import DatasetWriter

try:
    import ray
    from ray.data import Datasink
    from ray.data.block import BlockAccessor
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}. Install it: {install('ray')}", name=error.name) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ray.data._internal.execution.interfaces import TaskContext
    from ray.data.block import Block

    from gpubeton._bytes import RemoteOptions
    from gpubeton.fields.base import Field

__all__ = ["BetonDatasink"]

_T = TypeVar("_T")
#: How often a task is started again whose process was killed, or whose machine was lost.
_RETRIES = 3


def run_tasks(call: Callable[[Any], _T], arguments: Iterable[Any], *, num_cpus: int = 1) -> Iterator[_T]:
    """Call a function that can be pickled for each argument, in tasks of the Ray cluster that ``ray.init()`` finds."""
    # Twice as many tasks at a time as the cluster has room for. A task whose process was killed is started again; an
    # error in one ends all.

    def run(argument: Any) -> _T:  # Ray takes functions only, no partial
        return call(argument)

    remote_run: Any = ray.remote(num_cpus=num_cpus, max_retries=_RETRIES)(run)
    resources: Any = ray.cluster_resources  # it has no types
    running: list[Any] = []
    try:
        for argument in arguments:
            running.append(remote_run.remote(argument))
            while len(running) >= 2 * max(1, int(resources().get("CPU", 1)) // num_cpus):
                yield _next_result(running)
        while running:
            yield _next_result(running)
    finally:
        for task in running:
            ray.cancel(task)


def _next_result(running: list[Any]) -> Any:
    """Wait for a task, remove it and give its result."""
    finished, _ = ray.wait(running)
    running.remove(finished[0])
    try:
        return ray.get(finished[0])
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, GpubetonError) else error) from None
    except ray.exceptions.RayError as error:
        raise WorkerDiedError(f"a task of Ray ended {1 + _RETRIES} times without a result: {error}", None) from error


class BetonDatasink(Datasink[int]):
    """Write a dataset of Ray Data as ``.beton`` files: one for each write task, named after it.

    For rows that are in Ray Data already. Which rows are in which file depends on Ray; a task's rows have to fit in the
    memory of its node, and a task that fails begins again. `gpubeton.dataset.convert_shards` has no such limits.

    Parameters
    ----------
    target : str or path
        A folder that all nodes can reach, or the prefix of an object store. It holds no ``.beton`` file yet.
    fields : mapping of str to Field
        The columns that are stored, and how. Images may be files as bytes, or arrays.
    page_size : int
        Bytes of a page.
    notes : mapping of str to object, optional
        As for `DatasetWriter`.
    remote : RemoteOptions, optional
        How object stores are reached.
    rows_per_file : int, optional
        The number of rows that a file has at least, as far as there are so many; by default Ray's own choice.

    Examples
    --------
    >>> from gpubeton.fields import IntField, RGBImageField
    >>> sink = BetonDatasink("s3://bucket/train/", {"image": RGBImageField(), "label": IntField()})
    >>> ray.data.read_parquet("s3://bucket/rows/").write_datasink(sink)                          # doctest: +SKIP
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        fields: Mapping[str, Field],
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        notes: Mapping[str, Any] | None = None,
        remote: RemoteOptions | None = None,
        rows_per_file: int | None = None,
    ) -> None:
        self._folder = TargetFolder(os.fspath(target), remote)
        self._fields, self._page_size, self._notes = dict(fields), page_size, dict(notes or {})
        self._rows_per_file = rows_per_file

    @property
    def min_rows_per_write(self) -> int | None:
        return self._rows_per_file

    def on_write_start(self, schema: Any = None) -> None:
        names = sorted(name for name in self._folder.names() if name.endswith(".beton"))
        if names:
            raise StorageError(f"{self._folder.address(names[0])}: there are files in the target. Choose an empty one")

    def write(self, blocks: Iterable[Block], ctx: TaskContext) -> int:
        rows: list[Any] = []
        for block in blocks:
            rows += BlockAccessor.for_block(block).iter_rows(public_row_format=True)
        if not rows:
            return 0
        name = f"{ctx.task_idx:05}.beton"
        with TemporaryDirectory() as scratch:
            path = (self._folder.path or Path(scratch)) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            writer = DatasetWriter(
                path, self._fields, self._page_size, num_workers=1, progress=False, notes=self._notes
            )
            writer.from_indexed_dataset(rows)
            if self._folder.path is None:
                self._folder.upload(name, path, overwrite=True)
        return len(rows)
