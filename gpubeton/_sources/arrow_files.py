"""Arrow files, as Hugging Face's `datasets` keeps them: their columns, and where in the files the images lie."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.open_files import find_identity
from gpubeton._machine import install
from gpubeton.errors import FormatError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class ArrowFiles:
    """Arrow files with the same columns, of the streaming or the file format, mapped into memory."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths, self._columns = tuple(paths), dict[str, Any]()
        self.containers = tuple((path, find_identity(path)) for path in paths)
        self.names: tuple[str, ...] = tuple(self._tables[0][0].column_names)
        for path, (table, _) in zip(paths, self._tables, strict=True):
            if tuple(table.column_names) != self.names:
                raise FormatError(
                    f"{path}: the columns are {table.column_names}, but those of {paths[0]} are {list(self.names)}"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFiles, (self.paths,)  # not its memory

    def __len__(self) -> int:
        return sum(table.num_rows for table, _ in self._tables)

    @cached_property
    def _tables(self) -> list[tuple[Any, Any]]:
        """Tables, and the buffers with the bytes of their files."""
        return [_open(path) for path in self.paths]

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """What the first file says about its columns."""
        return self._tables[0][0].schema.metadata or {}

    def column(self, name: str) -> Any:
        """Give a column of all files, checked so that no value of it lies outside."""
        import pyarrow as pa

        if name in self._columns:
            return self._columns[name]
        columns = [
            _checked(path, name, table.column(name)) for path, (table, _) in zip(self.paths, self._tables, strict=True)
        ]
        try:
            self._columns[name] = pa.chunked_array(
                [chunk for column in columns for chunk in column.chunks], columns[0].type
            )
        except (TypeError, ValueError) as error:
            raise FormatError(f"{self.paths[0]}: the files differ in the column {name!r} ({error})") from error
        return self._columns[name]

    def places(self, name: str) -> NDArray[np.int64]:
        """Find the bytes in a column of images, (N, 3): number of the file, offset, size."""
        self.column(name)  # its check
        rows = [np.zeros((0, 3), np.int64)]
        for number, (path, (table, content)) in enumerate(zip(self.paths, self._tables, strict=True)):
            for chunk in table.column(name).chunks:
                offsets, sizes = _find_values(f"{path}: the column {name!r}", chunk, content)
                rows.append(np.column_stack([np.full(len(sizes), number), offsets, sizes]))
        return np.concatenate(rows)


def _open(path: str) -> tuple[Any, Any]:
    """Map an Arrow file; its table lies in the map, which is given, too, as a buffer."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise OptionError(
            f"{path}: Arrow files need {error.name}, which is not installed. Try: {install('parquet')}"
        ) from error
    try:
        content = pa.memory_map(path).read_buffer()
        is_file = content[:6].to_pybytes() == b"ARROW1"
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(content).read_all(), content
    except (OSError, ValueError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, and not of the content
            raise
        raise FormatError(f"{path}: no Arrow file that can be read ({error})") from error


def _checked(path: str, name: str, column: Any) -> Any:
    try:
        column.validate(full=True)
    except ValueError as error:
        raise FormatError(f"{path}: the column {name!r} is damaged ({error})") from error
    return column


def _find_values(where: str, chunk: Any, content: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the offsets in the file and the sizes of the values of a part of a column, of which both are (N,)."""
    from pyarrow import types

    values, no_value = chunk, chunk.is_null().to_numpy(zero_copy_only=False)
    if types.is_struct(chunk.type) and chunk.type.get_field_index("bytes") >= 0:
        values = chunk.field("bytes")
        no_value |= values.is_null().to_numpy(zero_copy_only=False)
        if chunk.type.get_field_index("path") >= 0:
            has_path = ~chunk.field("path").is_null().to_numpy(zero_copy_only=False)
            if (has_path & no_value).any():
                raise OptionError(
                    f"{where} has the path of image {chunk.field('path')[int((has_path & no_value).argmax())]}, and "
                    "not its bytes. Save the dataset by save_to_disk, which stores them"
                )
    if not (types.is_binary(values.type) or types.is_large_binary(values.type)):
        raise OptionError(f"{where} has values of type {values.type}; expected binary, or a struct of bytes and path")
    _, stops, data = values.buffers()
    if not len(values) or data is None:
        return np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    start = data.address - content.address
    if not 0 <= start <= content.size - data.size:
        raise OptionError(
            f"{where} is compressed, so that its images do not lie in the file as they are. Write the file without "
            "compression, or convert the dataset: gpubeton convert"
        )
    width = np.int32 if types.is_binary(values.type) else np.int64
    ends = np.frombuffer(stops, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return start + ends[:-1], np.where(no_value, 0, np.diff(ends))
