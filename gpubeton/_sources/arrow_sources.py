"""HuggingFaceSource: Arrow files, as Hugging Face's `datasets` keeps them, read without that library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._bytes.open_files import find_identity
from gpubeton._machine import install
from gpubeton._sources.source import (
    LabelledSource,
    Labels,
    Places,
    choose_column,
    choose_image_column,
    find_files,
    places_of_rows,
    stat_identity,
)
from gpubeton.errors import FormatError, OptionError
from gpubeton.fields.json import parse_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "class")


class HuggingFaceSource(LabelledSource):
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
    ) -> None:
        self._path = Path(path)
        files, info = _list_files(os.fspath(path), split)
        self._state = " ".join(map(stat_identity, files))
        self._arrow = ArrowFiles(files)
        table = self._arrow.table
        columns, metadata = self._arrow.names, (table.schema.metadata or {}).get(b"huggingface", b"{}")
        described: Any = info or _parse(files[0], metadata).get("info")
        features = described.get("features") if isinstance(described, dict) else None
        kinds = {name: kind for name, kind in (features or {}).items() if isinstance(kind, dict)}
        images = [name for name in columns if kinds.get(name, {}).get("_type") == "Image"]
        self._image = choose_image_column(path, columns, image, images)
        label = choose_column(path, columns, label, _LABEL_COLUMNS, "--label")
        self.unused = [name for name in columns if name not in (self._image, label)]
        self._arrow.column(self._image)  # its check
        if label is not None:
            column, names = self._arrow.column(label), class_names or kinds.get(label, {}).get("names")
            self._set_labels(Labels(column.to_pylist(), names, where=os.fspath(path)))

    def __len__(self) -> int:
        return int(self._arrow.table.num_rows)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        value = self._arrow.table.column(self._image)[index].as_py()
        if isinstance(value, dict):
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
        return self._with_label(Path(value) if isinstance(value, str) else value, index)

    def name(self, index: int) -> str:
        return f"row {index} of {self._path}"

    def identity(self, index: int) -> str:
        return f"{index} {self._label_text(index)} {self._state}"

    def input_files(self) -> Sequence[str]:
        return [path for path, _ in self._arrow.containers]

    def places(self) -> Places:
        return places_of_rows(self._arrow.containers, self._arrow.places(self._image))


def _list_files(path: str, split: str | None) -> tuple[list[str], dict[str, Any]]:
    """List the Arrow files of a dataset; give its description, too, if it has one beside them."""
    folder = Path(path)
    if not folder.is_dir():
        return find_files(path, ".arrow"), {}
    if (folder / "dataset_dict.json").is_file():
        splits = _names_in(folder / "dataset_dict.json", "splits")
        if split not in splits and (split is not None or len(splits) > 1):
            reason = "choose one" if split is None else f"there is no {split!r}"
            raise OptionError(f"{path}: the splits are {', '.join(map(repr, splits))}, {reason}: --split NAME")
        folder /= split or splits[0]
    state, info = folder / "state.json", folder / "dataset_info.json"
    if state.is_file():
        files = [os.fspath(folder / name) for name in _names_in(state, "_data_files")]
    elif len(files := find_files(os.fspath(folder), ".arrow")) > 1:
        raise OptionError(
            f"{path}: {len(files)} files, perhaps of several splits; name those of one: 'NAME-train*.arrow'"
        )
    return files, _parse(info, info.read_bytes()) if info.is_file() else {}


def _names_in(path: Path, key: str) -> list[str]:
    """List the names of files or folders beside a description that it has at a key."""
    description = _parse(path, path.read_bytes())
    try:
        values = [value["filename"] if isinstance(value, dict) else value for value in description[key]]
        names = [Path(value).name for value in values]
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path}: no list of names at {key!r} ({error!r})") from error
    if not names:
        raise FormatError(f"{path}: no names at {key!r}; expected at least one")
    return names


def _parse(path: str | os.PathLike[str], content: bytes) -> dict[str, Any]:
    """Parse a description of a dataset; `FormatError` if it is damaged."""
    try:
        values = parse_json(content)
    except ValueError as error:
        raise FormatError(f"{os.fspath(path)}: no description of a dataset ({error})") from error
    if not isinstance(values, dict):
        raise FormatError(f"{os.fspath(path)}: no description of a dataset, but {type(values).__name__}")
    return values


class ArrowFiles:
    """Arrow files with the same columns, of the streaming or the file format, mapped into memory."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.containers = tuple((path, find_identity(path)) for path in paths)
        self._opened = [_open(path) for path in paths]  # tables, and the buffers with the bytes of the files
        import pyarrow as pa

        try:
            self.table: Any = pa.concat_tables([table for table, _ in self._opened])
            self.names: list[str] = self.table.column_names
        except ValueError as error:
            raise FormatError(
                f"{paths[0]}: the other files have other columns, or a name is no text: {error}"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFiles, ([path for path, _ in self.containers],)  # not their memory

    def column(self, name: str) -> Any:
        """Give a column, checked so that no value of it lies outside."""
        column = self.table.column(name)
        try:
            column.validate(full=True)
        except ValueError as error:
            raise FormatError(f"{self.containers[0][0]}: the column {name!r} is damaged ({error})") from error
        return column

    def places(self, name: str) -> NDArray[np.int64]:
        """Find the bytes in a column of images, (N, 3): number of the file, offset, size."""
        rows = [np.zeros((0, 3), np.int64)]
        for number, (table, content) in enumerate(self._opened):
            for chunk in table.column(name).chunks:
                where = f"{self.containers[number][0]}: the column {name!r}"
                offsets, sizes = _find_values(where, chunk, content)
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
