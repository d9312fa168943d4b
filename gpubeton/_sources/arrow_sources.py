"""HuggingFaceSource: Arrow files, as Hugging Face's `datasets` keeps them, read without that library."""

from __future__ import annotations

import mmap
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.open_files import is_folder, open_bytes
from gpubeton._bytes.store_client import RemoteOptions
from gpubeton._machine import install
from gpubeton._sources.archive_sources import ArchiveSource
from gpubeton._sources.small_reads import SmallReads
from gpubeton._sources.source import Labels, Places, choose_column, choose_image_column, find_files
from gpubeton.errors import FormatError, OptionError, StorageError
from gpubeton.fields.json import parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "class")
_MAGIC, _TAIL = b"ARROW1", 64 << 10  # of the file format, at both ends; bytes in which most footers lie
_MARK, _HEADER, _NUMBER = 0xFFFFFFFF, struct.Struct("<II"), struct.Struct("<I")


class HuggingFaceSource(ArchiveSource):
    """A dataset of Hugging Face in Arrow files: of ``save_to_disk``, alone in a folder of the cache, or named."""

    # Image files in it are stored as they are. By default the image is the first column of images, and the label the
    # column ``label`` or of a similar name.

    kind = "huggingface"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str | None = None,
        image: str | None = None,
        label: str | None = None,
        class_names: Sequence[str] | None = None,
        remote: RemoteOptions | None = None,
    ) -> None:
        files, info = _list_files(os.fspath(path), split, remote)
        arrow = ArrowFiles(files, remote)
        columns, metadata = arrow.names, (arrow.table.schema.metadata or {}).get(b"huggingface", b"{}")
        described: Any = info or _parse(files[0], metadata).get("info")
        features = described.get("features") if isinstance(described, dict) else None
        kinds = {name: kind for name, kind in (features or {}).items() if isinstance(kind, dict)}
        images = [name for name in columns if kinds.get(name, {}).get("_type") == "Image"]
        self._image = choose_image_column(path, columns, image, images)
        label = choose_column(path, columns, label, _LABEL_COLUMNS, "--label")
        self.unused = [name for name in columns if name not in (self._image, label)]
        if label is not None:
            column, names = arrow.column(label), class_names or kinds.get(label, {}).get("names")
            self.set_labels(Labels(column.to_pylist(), names, where=os.fspath(path)))
        arrow.column(self._image, but_bytes=True)  # its check
        self._containers, self._names = arrow.containers, range(arrow.table.num_rows)
        self._arrow: ArrowFiles | None = None  # if images cannot be read in place
        try:
            self._places = arrow.places(self._image)
        except OptionError:
            if any("://" in file for file in files):
                raise
            self._arrow, self._places = arrow, np.zeros((len(self._names), 3), np.int64)
            self._places[:, 0] = np.repeat(range(len(files)), arrow.counts)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if self._arrow is None:
            return super().__getitem__(index)
        value = self._arrow.table.column(self._image)[index].as_py()
        if isinstance(value, dict):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        return self._with_label(Path(value) if isinstance(value, str) else value, index)

    def name(self, index: int) -> str:
        return f"row {index} of {self._container(index)[0]}"

    def places(self) -> Places:
        if self._arrow is not None:
            self._arrow.places(self._image)  # its error
        return super().places()


def _list_files(path: str, split: str | None, remote: RemoteOptions | None) -> tuple[list[str], dict[str, Any]]:
    """List the Arrow files of a dataset; give its description, too, if it has one beside them."""
    if not is_folder(path):
        return find_files(path, ".arrow", remote), {}
    folder = path.rstrip("/")
    if splits := _names_in(f"{folder}/dataset_dict.json", "splits", remote):
        if split not in splits and (split is not None or len(splits) > 1):
            reason = "choose one" if split is None else f"there is no {split!r}"
            raise OptionError(f"{path}: the splits are {', '.join(map(repr, splits))}, {reason}: --split NAME")
        folder = f"{folder}/{split or splits[0]}"
    files = [f"{folder}/{name}" for name in _names_in(f"{folder}/state.json", "_data_files", remote)]
    if not files and len(files := find_files(f"{folder}/", ".arrow", remote)) > 1:
        raise OptionError(
            f"{path}: {len(files)} files, perhaps of several splits; name those of one: 'NAME-train*.arrow'"
        )
    return files, _read(f"{folder}/dataset_info.json", remote) or {}


def _read(path: str, remote: RemoteOptions | None) -> dict[str, Any] | None:
    """Read a description of a dataset; None if there is none."""
    try:
        with open_bytes(path, remote=remote) as source:
            return _parse(path, source.read_exactly(0, source.size))
    except FileNotFoundError:
        return None


def _names_in(path: str, key: str, remote: RemoteOptions | None) -> list[str]:
    """List the names of files or folders beside a description that it has at a key; none if there is no description."""
    if (description := _read(path, remote)) is None:
        return []
    try:
        names = [Path(value["filename"] if isinstance(value, dict) else value).name for value in description[key]]
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path}: no list of names at {key!r} ({error!r})") from error
    if not names:
        raise FormatError(f"{path}: no names at {key!r}; expected at least one")
    return names


def _parse(path: str, content: bytes) -> dict[str, Any]:
    """Parse a description of a dataset; `FormatError` if it is damaged."""
    try:
        values = parse_json(content)
    except ValueError as error:
        raise FormatError(f"{path}: no description of a dataset ({error})") from error
    if not isinstance(values, dict):
        raise FormatError(f"{path}: no description of a dataset, but {type(values).__name__}")
    return values


class ArrowFiles:
    """Arrow files with the same columns."""

    def __init__(self, paths: Sequence[str], remote: RemoteOptions | None = None) -> None:
        try:
            import pyarrow as pa
        except ImportError as error:
            raise OptionError(
                f"{paths[0]}: Arrow files need {error.name}, which is not installed. Try: {install('parquet')}"
            ) from error
        self._at_once = (remote or RemoteOptions()).requests
        with ThreadPoolExecutor(self._at_once, "gpubeton-arrow") as threads:
            self._files = list(threads.map(partial(_ArrowFile, remote), paths))
        self.containers = [file.container for file in self._files]
        self.counts = [file.table.num_rows for file in self._files]
        try:
            self.table: Any = pa.concat_tables([file.table for file in self._files])
            self.names: list[str] = self.table.column_names
        except ValueError as error:
            raise FormatError(
                f"{paths[0]}: the other files have other columns, or a name is no text: {error}"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFiles, ([path for path, _ in self.containers],)  # not their memory

    def column(self, name: str, *, but_bytes: bool = False) -> Any:
        """Give a column, checked so that no value of it lies outside; of one of images without the bytes of these."""
        with ThreadPoolExecutor(self._at_once, "gpubeton-arrow") as threads:
            list(threads.map(partial(_ArrowFile.load, name=name, but_bytes=but_bytes), self._files))
        column = self.table.column(name)
        try:
            column.validate(full=True)
        except ValueError as error:
            raise FormatError(f"{self.containers[0][0]}: the column {name!r} is damaged ({error})") from error
        return column

    def places(self, name: str) -> NDArray[np.int64]:
        """Find the bytes in a column of images, (N, 3): number of the file, offset, size."""
        rows = [np.zeros((0, 3), np.int64)]
        for number, file in enumerate(self._files):
            for chunk in file.table.column(name).chunks:
                offsets, sizes = _find_values(f"{file.container[0]}: the column {name!r}", chunk, file.content)
                rows.append(np.column_stack([np.full(len(sizes), number), offsets, sizes]))
        return np.concatenate(rows)


class _ArrowFile:
    """An Arrow file of the streaming or the file format, mapped into memory."""

    # One in a store is mapped as zeros. Those of its bytes that are needed are written over them: first the headers,
    # by which pyarrow finds all else, then those of columns.

    def __init__(self, remote: RemoteOptions | None, path: str) -> None:
        import pyarrow as pa

        source = open_bytes(path, remote=remote)
        self.container = path, source.identity()
        self._memory: mmap.mmap | None = None
        try:
            if source.is_mappable:
                with source:
                    self.content: Any = pa.py_buffer(source.map() if source.size else b"")
            else:
                self._memory, self._reads = mmap.mmap(-1, source.size), SmallReads(source)
                self.content = pa.py_buffer(self._memory)
                self._load_headers()
            is_file = self.content[:6].to_pybytes() == _MAGIC
            self.table: Any = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(self.content).read_all()
        except (OSError, ValueError, OverflowError, pa.ArrowException) as error:
            of_disk = source.is_mappable and getattr(error, "errno", None) is not None  # and not of the content
            if of_disk or isinstance(error, StorageError):
                raise
            hint = "" if source.is_mappable else " in a store; compressed ones cannot"
            raise FormatError(f"{path}: no Arrow file that can be read{hint} ({error})") from error

    def _load(self, start: int, size: int) -> bytes:
        content = self._reads.at(start, size)
        if self._memory is not None:
            self._memory[start : start + len(content)] = content
        return content

    def _load_headers(self) -> None:
        """Load all but the bytes of the columns: the headers of the parts, which follow each other, and the footer."""
        from pyarrow import BufferReader, ipc

        reader, size, at = BufferReader(self.content), self._reads.size, 0
        if self._load(0, 8)[:6] == _MAGIC:
            at = 8
            (footer,) = _NUMBER.unpack_from(self._load(max(0, size - _TAIL), _TAIL)[-10:])
            self._load(max(0, size - 10 - footer), footer)
        while len(header := self._load(at, 8)) == 8:
            mark, length = _HEADER.unpack(header)
            length = length + 4 if mark == _MARK else mark  # files of Arrow before 0.15 have no mark
            if length in (0, 4):
                break
            self._load(at, 4 + length)
            reader.seek(at)
            message = ipc.read_message(reader)
            if message.type == "dictionary" and message.body:
                self._load(message.body.address - self.content.address, message.body.size)
            at = reader.tell()

    def load(self, name: str, *, but_bytes: bool) -> None:
        """Load a column of a file in a store; the bytes of images are left where they are."""
        for chunk in self.table.column(name).chunks if self._memory is not None else ():
            images = _bytes_of(chunk).buffers()[-1] if but_bytes else None
            for buffer in chunk.buffers():
                if buffer and (images is None or buffer.address != images.address):
                    self._load(buffer.address - self.content.address, buffer.size)


def _bytes_of(chunk: Any) -> Any:
    """Give the part of a column of images that has their bytes."""
    from pyarrow import types

    has_bytes = types.is_struct(chunk.type) and chunk.type.get_field_index("bytes") >= 0
    return chunk.field("bytes") if has_bytes else chunk


def _find_values(where: str, chunk: Any, content: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the offsets in the file and the sizes of the values of a part of a column, of which both are (N,)."""
    from pyarrow import types

    values, no_value = _bytes_of(chunk), chunk.is_null().to_numpy(zero_copy_only=False)
    if values is not chunk:
        no_value |= values.is_null().to_numpy(zero_copy_only=False)
        if (number := chunk.type.get_field_index("path")) >= 0:
            has_path = chunk.flatten()[number].is_valid().to_numpy(zero_copy_only=False)
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
