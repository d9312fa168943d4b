"""Open a dataset: a file, several, a folder of them, a pattern or a manifest, on this machine or in an object store."""

from __future__ import annotations

import itertools
import math
import os
import re
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpubeton._bytes.object_store import ObjectFile
from gpubeton._bytes.open_files import is_folder, list_shards, open_bytes, source_type
from gpubeton.errors import (
    FieldArgumentsError,
    FieldMismatchError,
    FormatError,
    OptionError,
    RemoteDeniedError,
)
from gpubeton.format.data_files import DESCRIPTION, INDEX_SUFFIX, MAX_FILES, first_offset, split_offsets
from gpubeton.format.field_arguments import ArrayArguments, ImageKind
from gpubeton.format.index import Index, read_index
from gpubeton.format.layout import IMAGE_DTYPE, FieldType
from gpubeton.format.regions import FieldRows, offsets_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from numpy.typing import NDArray

    from gpubeton._bytes.store_client import RemoteOptions
    from gpubeton.format.header import Descriptor
    from gpubeton.format.index import CustomTypes
    from gpubeton.format.index_file import IndexFile
    from gpubeton.format.manifest import StoredIndex

    _Part: TypeAlias = str | StoredIndex | IndexFile

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
"""One file, or several that make one dataset, in this order."""

# Files that are opened at once: most of the time is spent waiting for the disk or the network.
_NUM_THREADS = 8
# Braces with alternatives or numbers; others are part of a name, as for shells.
_BRACES = re.compile(r"\{([^{}]*(?:,|\.\.)[^{}]*)\}")


def open_dataset(
    paths: Paths,
    custom_types: CustomTypes | None = None,
    *,
    remote: RemoteOptions | None = None,
    containers: Sequence[str] = (),
) -> Index:
    """Read and check all of a dataset but its data pages.

    The samples of several files follow each other. A folder with a manifest (``index.json``) that describes its files
    as they are is opened by the manifest alone; otherwise each of its files is opened.

    Parameters
    ----------
    paths : str, path, or sequence of them
        A ``.beton`` file of version 2, written by FFCV or gpubeton; a folder of such files, or its ``index.json``;
        several files by a pattern with braces, such as ``"train-{000..146}.beton"``; or a list of all these. URLs
        such as ``s3://bucket/train.beton``, too; that of a folder ends in a slash.
    custom_types : mapping of str to dtype, optional
        Metadata dtype of each custom field (type 255), by its name; `Reader` finds them by the classes of the fields.
    remote : RemoteOptions, optional
        How the store of a URL is reached.
    containers : sequence of str
        Folders and URLs, besides that of an index file, whose files it may name.

    Returns
    -------
    Index
        Holds no file open.

    Raises
    ------
    FormatError
        One of its subclasses for each defect, see `gpubeton.errors`.
    StorageError
        If a file is written to meanwhile.
    OSError
        If a file cannot be opened or read.

    Examples
    --------
    >>> index = open_dataset(["train.beton", "train.beton"])
    >>> index.names, index.num_samples
    (('image', 'label'), 600)
    """
    parts = [part for name in list_paths(paths) for part in _find_parts(name, remote, containers)]
    _check_count(tuple(chain.from_iterable([part] if isinstance(part, str) else part.files for part in parts)))
    return _open_parts(parts, custom_types or {}, remote)


def list_paths(paths: Any) -> tuple[str, ...]:
    """List the names that a dataset is opened by: those of a pattern, but a folder is one."""
    if isinstance(paths, str | os.PathLike):
        paths = (paths,)
    if isinstance(paths, bytes) or not isinstance(paths, Sequence):
        advice = "Make a list in a fixed order of any other iterable: sorted(folder.glob('*.beton'))."
        if isinstance(root := getattr(paths, "root", None), str):  # as torchvision's datasets have
            advice = f"Of an ImageFolder, that is {root!r}."
        raise OptionError(f"the file is {paths!r}; expected a path, or a list of paths. {advice}")
    wrong = [path for path in paths if not isinstance(path, str | os.PathLike)]
    if wrong:
        raise OptionError(f"the files of the dataset: one of them is {wrong[0]!r}; expected 1 to {MAX_FILES} paths")
    return _check_count(tuple(chain.from_iterable(map(_expand, map(os.fspath, paths)))))


def list_files(paths: Paths, remote: RemoteOptions | None = None) -> tuple[str, ...]:
    """List the files of a dataset: folders are the files in them."""
    folders = ((name, _folder_of(name)) for name in list_paths(paths))
    return _check_count(
        tuple(chain.from_iterable([name] if folder is None else _list(folder, remote) for name, folder in folders))
    )


def expand_braces(pattern: str) -> list[str]:
    """Expand braces as shells and webdataset do: ``{a,b}`` are alternatives, ``{000..146}`` numbers of 3 digits."""
    texts = _BRACES.split(pattern)
    choices = [_alternatives(text) if number % 2 else [text] for number, text in enumerate(texts)]
    if math.prod(map(len, choices)) > MAX_FILES:
        raise OptionError(f"{pattern}: names more than {MAX_FILES} files; expected at most so many. Make larger ones")
    return ["".join(choice) for choice in itertools.product(*choices)]


def _alternatives(text: str) -> list[str]:
    bounds = re.fullmatch(r"(\d+)\.\.(\d+)", text)
    if bounds is None:
        return text.split(",")
    first, last = bounds.groups()
    numbers = range(int(first), int(last) + 1)[: MAX_FILES + 1]  # more are refused
    return [str(number).zfill(len(first)) for number in numbers]


def _expand(name: str) -> list[str]:
    """Expand the braces of a path or of a URL of a store, unless there is a file of this name."""
    is_pattern = "{" in name and (
        issubclass(source_type(name), ObjectFile) or not ("://" in name or os.path.exists(name))  # noqa: PTH110  a text
    )
    return expand_braces(name) if is_pattern else [name]


def _check_count(files: tuple[Any, ...]) -> tuple[Any, ...]:
    if not 1 <= len(files) <= MAX_FILES:
        raise OptionError(f"the files of the dataset: {len(files)} files; expected 1 to {MAX_FILES} paths")
    return files


def _folder_of(name: str) -> str | None:
    """Find the folder that a name means: itself, or that of a manifest; None if the name means a file."""
    if os.path.basename(name) == DESCRIPTION:  # noqa: PTH119  a URL, too
        return name.removesuffix(DESCRIPTION) or os.curdir
    return name if is_folder(name) else None


def _list(folder: str, remote: RemoteOptions | None) -> list[str]:
    return list_shards(folder, remote) or [folder]  # the error of opening an empty folder explains


def _find_parts(name: str, remote: RemoteOptions | None, containers: Sequence[str]) -> list[_Part]:
    """Find what a name means: a file, a folder by its manifest, or by its files if it has none that fits."""
    if name.endswith(INDEX_SUFFIX):
        from gpubeton.format.index_file import IndexFile  # not for other files: it takes time

        return [IndexFile(name, remote, containers)]
    folder = _folder_of(name)
    if folder is None:
        return [name]
    from gpubeton.format.manifest import StoredIndex  # not for files: it takes time

    try:
        return [StoredIndex(folder, remote)]
    except (FileNotFoundError, RemoteDeniedError):
        if folder != name:
            raise
        # A store that does not show its list refuses missing objects, too.
    except FormatError as error:
        _warn_of_manifest(folder, error)
    return [*_list(folder, remote)]


def _warn_of_manifest(folder: str, error: FormatError) -> None:
    """Warn that the manifest of a folder cannot be used; raise FormatError if there is no other list of its files."""
    if folder.startswith(("http://", "https://")):
        raise FormatError(f"{folder}{DESCRIPTION}: {error}. Write it again: gpubeton index FOLDER") from error
    warnings.warn(
        f"{folder}: {DESCRIPTION} does not describe the shards as they are now: {error}. Each of them is "
        f"opened, which takes longer. Write it again: gpubeton index {folder}",
        stacklevel=2,
    )


def _open_parts(parts: Sequence[_Part], custom_types: CustomTypes, remote: RemoteOptions | None) -> Index:
    if len(parts) == 1:
        return _open_part(parts[0], custom_types, remote)
    with ThreadPoolExecutor(min(len(parts), _NUM_THREADS), "gpubeton-open") as threads:
        return join(_opened(parts, threads, partial(_open_part, custom_types=custom_types, remote=remote)))


def _opened(
    parts: Sequence[_Part], threads: ThreadPoolExecutor, open_part: Callable[[_Part], Index]
) -> Iterator[Index]:
    """Open the parts, a few ahead: more would take memory until they are joined."""
    waiting: deque[Future[Index]] = deque()
    for part in parts:
        waiting.append(threads.submit(open_part, part))
        if len(waiting) > 2 * _NUM_THREADS:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _open_part(part: _Part, custom_types: CustomTypes, remote: RemoteOptions | None) -> Index:
    if isinstance(part, str):
        with open_bytes(part, remote=remote) as source:
            return read_index(source, custom_types)
    try:
        return part.open(custom_types)
    except FormatError as error:
        if part.manifest.shards[0].is_container:  # an index file
            raise
        _warn_of_manifest(part.folder, error)
        return _open_parts([path for path, _ in part.files], custom_types, remote)


# --- several as one ---------------------------------------------------------------------------------------------------


def join(parts: Iterable[Index]) -> Index:
    """Make one dataset of several: their samples follow each other, fields are in the order of the first."""
    rest = iter(parts)
    first = next(rest)
    files, class_names = list(first.files), first.class_names
    number, fields = _count_if_converted(first), list[_JoinedRows]()
    for part in rest:
        _check_fields(first, part)
        fields = fields or [_JoinedRows(*pair, first) for pair in zip(first.descriptors, first.rows, strict=True)]
        for rows in fields:
            rows.add(part, first_offset(number), first_offset(len(files)))
        number += _count_if_converted(part)
        for file in part.files:
            files.append(replace(file, first_sample=files[-1].rows.stop))
        if part.class_names is None or class_names is None:
            class_names = None
        elif part.class_names != class_names:
            if class_names and part.class_names:
                warn_of_classes(first.title, class_names, part.title, part.class_names)
            class_names = ()
    if not fields:
        return first
    joined = tuple(rows.finish() for rows in fields)
    return Index(tuple(files), first.header, first.descriptors, joined, class_names=class_names)


def warn_of_classes(title: str, names: Sequence[str], other_title: str, others: Sequence[str]) -> None:
    """Warn that two files give their classes different names, so that labels of one mean others in the second."""
    label = next(number for number, pair in enumerate(zip_longest(names, others)) if pair[0] != pair[1])
    first, second = (repr(listed[label]) if label < len(listed) else "no class" for listed in (names, others))
    warnings.warn(
        f"label {label} is {first} in {title}, and {second} in {other_title}: labels of files with other "
        "class names mean other classes. Index or convert the images of all together, or each with --classes and the "
        "names of all",
        stacklevel=2,
    )


def renew_fingerprint(index: Index, stored: str) -> str:
    """Give the fingerprint of an index for one that it had when metadata had the numbers of containers."""
    rows = index.rows[0]
    is_of_containers = rows.offsets is not None and any(file.is_container for file in index.files)
    if stored == index.fingerprint or not is_of_containers or rows.column.dtype != IMAGE_DTYPE:
        return stored
    assert rows.offsets is not None
    column = rows.column.copy()
    part, pointer = split_offsets(column["data_ptr"])
    first = rows.offsets[np.searchsorted(part, part)]  # of the part, in its first container
    column["data_ptr"] = pointer + first - split_offsets(first)[1]
    old = replace(index, rows=(replace(rows, column=column), *index.rows[1:])).fingerprint
    return index.fingerprint if stored == old else stored


def _count_if_converted(part: Index) -> int:
    """Count the files of a part in metadata: the containers of an index are as the one file that is made of them."""
    return 1 if part.files[0].is_container else len(part.files)


class _JoinedRows:
    """The rows of a field of several files. They grow in place: all files together need no second copy of them."""

    def __init__(self, descriptor: Descriptor, rows: FieldRows, part: Index) -> None:
        self._descriptor, self._has_regions = descriptor, True
        self._count = 0  # of rows
        self._arrays: dict[str, NDArray[Any]] = {}  # of `FieldRows`, with room at their ends
        self._shape, self._dtype = rows.column.shape[1:], rows.column.dtype
        self._row_size = self._dtype.itemsize * math.prod(self._shape)
        self.add(part, np.uint64(0), np.uint64(0))

    def add(self, part: Index, pointer: np.uint64, first: np.uint64) -> None:
        """Add the rows of a part whose first byte has a global offset, in metadata another one."""
        rows = part.rows[part.names.index(self._descriptor.name)]
        start, count = self._count, len(rows.column)
        # As bytes: structs would take five times as long.
        self._grow("column", start * self._row_size, np.ascontiguousarray(rows.column).reshape(-1).view(np.uint8))
        self._count += count
        _move_pointers(self._column()[start:], self._descriptor, part, pointer)
        self._has_regions &= rows.has_regions
        if not self._has_regions:
            return
        if rows.sizes is not None:
            self._grow("sizes", start, rows.sizes)
        if rows.offsets is not None or pointer != first or "offsets" in self._arrays:
            if start and "offsets" not in self._arrays:
                self._grow("offsets", 0, offsets_in(self._descriptor, FieldRows(self._column()[:start])))
            self._grow("offsets", start, offsets_in(self._descriptor, rows) + first)
        if rows.checksums is not None or "checksums" in self._arrays:
            if start and "checksums" not in self._arrays:
                self._grow("checksums", 0, np.zeros(start, np.uint32))
            self._grow("checksums", start, np.zeros(count, np.uint32) if rows.checksums is None else rows.checksums)

    def finish(self) -> FieldRows:
        """Give the joined rows; without regions if one of the parts has none."""
        for name, array in self._arrays.items():
            array.resize(self._count * (self._row_size if name == "column" else 1), refcheck=False)
        column = self._column()
        arrays = {name: array for name, array in self._arrays.items() if name != "column"}
        return FieldRows(column, has_regions=True, **arrays) if self._has_regions else FieldRows(column)

    def _column(self) -> NDArray[Any]:  # a view, to be let go before the array grows
        stored = self._arrays["column"][: self._count * self._row_size]
        return stored.view(self._dtype).reshape(-1, *self._shape)

    def _grow(self, name: str, start: int, values: NDArray[Any]) -> None:
        """Write values to an array from `start` on; if it has to grow, it gets room for an eighth more."""
        stop = start + len(values)
        if name not in self._arrays:
            self._arrays[name] = np.empty(stop, values.dtype)
        elif stop > len(self._arrays[name]):
            # The system moves its pages; no view of it is in use.
            self._arrays[name].resize(stop + stop // 8, refcheck=False)
        self._arrays[name][start:stop] = values


def _move_pointers(column: NDArray[Any], descriptor: Descriptor, part: Index, first: np.uint64, name: str = "") -> None:
    """Turn the offsets in a column of metadata into global offsets."""
    has_kind = descriptor.type_id != FieldType.CUSTOM or ImageKind.describes(descriptor.arguments)
    if column.dtype.names is not None:
        for inner in column.dtype.names:
            _move_pointers(column[inner], descriptor, part, first, inner)
    elif column.dtype != np.dtype("<u8"):
        return
    elif has_kind:
        if name in ("", "ptr", "data_ptr"):
            column += first
    elif len(allocations := part.allocations):
        # Only the class of a custom field knows what its numbers mean: a number is a pointer if a region of the same
        # sample begins there in the table.
        sample = np.arange(len(column), dtype=np.uint64).reshape(-1, *[1] * (column.ndim - 1))
        row = np.maximum(np.searchsorted(allocations["ptr"], column, side="right"), 1) - 1
        column[(allocations["ptr"][row] == column) & (allocations["sample_id"][row] == sample)] += first


def _check_fields(first: Index, other: Index) -> None:
    """Refuse files that differ in their fields."""
    where = f"{first.title} and {other.title} cannot be one dataset"
    if set(first.names) != set(other.names):
        odd = next(name for name in (*first.names, *other.names) if (name in first.names) != (name in other.names))
        has, has_not = (first, other) if odd in first.names else (other, first)
        raise FieldMismatchError(
            f"{where}: field {odd!r} is in {has.title}, but not in {has_not.title}, which has "
            f"{', '.join(map(repr, has_not.names))}. Write both with the same fields."
        )
    for descriptor in first.descriptors:
        twin = other.descriptors[other.names.index(descriptor.name)]
        kind, other_kind = _describe(descriptor, first), _describe(twin, other)
        if kind != other_kind:
            raise FieldMismatchError(
                f"{where}: field {descriptor.name!r} is {kind} in the first and {other_kind} in the second. "
                "Write both with the same fields."
            )
        if descriptor.arguments != twin.arguments:
            pairs = enumerate(zip(descriptor.arguments, twin.arguments, strict=True))
            raise FieldMismatchError(
                f"{where}: field {descriptor.name!r} ({kind} in both) was written with different arguments: the 1024 "
                f"bytes of its descriptor differ from byte {next(at for at, (a, b) in pairs if a != b)} on. "
                "Write both with the same fields."
            )


def _describe(descriptor: Descriptor, index: Index) -> str:
    """Describe the kind of a field."""
    type_id = FieldType(descriptor.type_id)
    if type_id in (FieldType.NDARRAY, FieldType.TORCH_TENSOR):
        with suppress(FieldArgumentsError):  # a class of the user may store anything
            arguments = ArrayArguments.from_bytes(descriptor.arguments)
            return f"of shape {arguments.shape} and {arguments.dtype} (type {int(type_id)}, {type_id.name})"
    if type_id == FieldType.CUSTOM and ImageKind.describes(descriptor.arguments):
        return f"of images of kind {ImageKind.from_bytes(descriptor.arguments).name}"
    if type_id == FieldType.CUSTOM:
        return f"a custom field with metadata {index.column(descriptor.name).dtype}"
    return f"a field of type {int(type_id)} ({type_id.name})"
