"""Which class each field of a file has."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from gpubeton import fields as all_fields
from gpubeton._bytes.open_files import is_folder, list_shards, open_bytes
from gpubeton.errors import FieldArgumentsError, FormatError, OptionError, RemoteDeniedError
from gpubeton.fields.base import Field
from gpubeton.fields.image_field import ImageField
from gpubeton.fields.ndarray import RaggedField
from gpubeton.format.data_files import Paths, check_number, listed_paths
from gpubeton.format.field_arguments import ImageKind
from gpubeton.format.header import Descriptor, read_fields
from gpubeton.format.index import Index
from gpubeton.format.join import join
from gpubeton.format.layout import FieldType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from gpubeton._bytes.remote_options import RemoteOptions
    from gpubeton.format.manifest import StoredIndex

CustomFields = Mapping[str, type[Field] | Field]
"""The class of each custom field, by its name; an instance will do."""

# Files that are opened at once.
_NUM_THREADS = 8

_CLASSES: dict[FieldType, type[Field]] = {
    found.type_id: found
    for found in (getattr(all_fields, name) for name in all_fields.__all__)
    if "type_id" in vars(found) and found is not Field
}


def type_id_of(field: Field) -> FieldType:
    """Give the type that a descriptor names for a field."""
    if type(field) is RaggedField:
        return FieldType.BYTES
    is_ours = type(field) in _CLASSES.values()
    return field.type_id if is_ours else FieldType.CUSTOM


def open_index(
    path: Paths, custom_fields: CustomFields | None = None, remote: RemoteOptions | None = None
) -> tuple[Index, dict[str, Field]]:
    """Read and check a file, several that make one dataset, or a folder of them, and make its fields."""
    paths = listed_paths(path)
    found = ((name, _find_stored(name, remote)) for name in paths if is_folder(name))
    folders = {name: stored for name, stored in found if stored is not None}
    if len(paths) == 1 and folders:
        stored = folders.pop(paths[0])
        try:
            return _open_stored(stored, custom_fields)
        except FormatError as error:
            _warn_of_index(paths[0], error)
    parts = [part for name in paths for part in ([folders[name]] if name in folders else _files_of(name, remote))]
    files = [[part] if isinstance(part, str) else [name for name, _ in part.files] for part in parts]
    check_number(tuple(chain.from_iterable(files)))
    return _open_parts(parts, custom_fields, remote)


def _find_stored(folder: str, remote: RemoteOptions | None) -> StoredIndex | None:
    """Find the index of a folder; None if it has none for its files."""
    from gpubeton.format.manifest import StoredIndex

    try:
        return StoredIndex.of_folder(folder, remote)
    except (FileNotFoundError, RemoteDeniedError):
        return None  # a store that does not show its list refuses missing objects
    except FormatError as error:
        _warn_of_index(folder, error)
        return None


def _warn_of_index(folder: str, error: FormatError) -> None:
    """Warn that the index of a folder cannot be used; raise FormatError if there is no other list of its files."""
    from gpubeton.format.manifest import DESCRIPTION

    if folder.startswith(("http://", "https://")):
        raise FormatError(f"{folder}{DESCRIPTION}: {error}. Write it again: gpubeton index FOLDER") from error
    warnings.warn(
        f"{folder}: {DESCRIPTION} does not describe the shards as they are now: {error}. Each of them is "
        f"opened, which takes longer. Write it again: gpubeton index {folder}",
        stacklevel=2,
    )


def open_single(path: str | os.PathLike[str], custom_fields: CustomFields | None) -> tuple[Index, dict[str, Field]]:
    """Read and check one file."""
    index, fields = open_index(path, custom_fields)
    if len(index.files) > 1:
        raise OptionError(
            f"{os.fspath(path)}: a folder of {len(index.files)} files; expected one of them, such as "
            f"{index.files[0].path}"
        )
    return index, fields


def listed_files(paths: Paths, remote: RemoteOptions | None = None) -> tuple[str, ...]:
    """List the files of a dataset: folders are the files in them."""
    return check_number(tuple(chain.from_iterable(_files_of(name, remote) for name in listed_paths(paths))))


def _files_of(name: str, remote: RemoteOptions | None) -> list[str]:
    """List the files of a folder; a name that is none is itself."""
    return (list_shards(name, remote) if is_folder(name) else []) or [name]


def _open_parts(
    parts: Sequence[str | StoredIndex], custom_fields: CustomFields | None, remote: RemoteOptions | None
) -> tuple[Index, dict[str, Field]]:
    """Open each of the files, and the indices of folders."""
    if len(parts) == 1:
        return _open_one(parts[0], custom_fields, remote)
    # Most of the time is spent waiting for the disk or the network.
    with ThreadPoolExecutor(min(len(parts), _NUM_THREADS), "gpubeton-open") as threads:
        opened = _open_ahead(threads, partial(_open_one, custom_fields=custom_fields, remote=remote), parts)
        index, fields = next(opened)
        return join(chain([index], (part for part, _ in opened)), len(parts)), fields


def _open_ahead(
    threads: ThreadPoolExecutor,
    open_one: Callable[[str | StoredIndex], tuple[Index, dict[str, Field]]],
    parts: Sequence[str | StoredIndex],
) -> Iterator[tuple[Index, dict[str, Field]]]:
    """Open the parts in their order, a few at a time: those of thousands of files would double the memory."""
    opening: deque[Future[tuple[Index, dict[str, Field]]]] = deque()
    for part in parts:
        opening.append(threads.submit(open_one, part))
        if len(opening) == 2 * _NUM_THREADS:
            yield opening.popleft().result()
    while opening:
        yield opening.popleft().result()


def _open_stored(stored: StoredIndex, custom_fields: CustomFields | None) -> tuple[Index, dict[str, Field]]:
    path, descriptors = stored.files[0][0], stored.manifest.descriptors
    custom = _make_custom(path, descriptors, custom_fields)
    index = stored.open({name: field.metadata_type for name, field in custom.items()})
    return index, _make_all(path, descriptors, custom)


def _open_one(
    path: str | StoredIndex, custom_fields: CustomFields | None, remote: RemoteOptions | None
) -> tuple[Index, dict[str, Field]]:
    if not isinstance(path, str):
        try:
            return _open_stored(path, custom_fields)
        except FormatError as error:
            _warn_of_index(path.folder, error)
            return _open_parts([name for name, _ in path.files], custom_fields, remote)
    with open_bytes(path, remote=remote) as source:
        custom = _make_custom(path, read_fields(source)[1], custom_fields) if custom_fields else {}
        index = Index.read(source, {name: field.metadata_type for name, field in custom.items()})
    return index, _make_all(path, index.descriptors, custom)


def _make_custom(path: str, descriptors: Sequence[Descriptor], custom_fields: CustomFields | None) -> dict[str, Field]:
    """Make the fields whose classes the user names; the types of their metadata are needed to read a file."""
    return {
        descriptor.name: _from_arguments(path, descriptor, custom_fields[descriptor.name])
        for descriptor in descriptors
        if custom_fields is not None and descriptor.name in custom_fields
    }


def _make_all(path: str, descriptors: Sequence[Descriptor], custom: Mapping[str, Field]) -> dict[str, Field]:
    return {
        descriptor.name: custom.get(descriptor.name) or _from_arguments(path, descriptor, _class_of(descriptor))
        for descriptor in descriptors
    }


def _class_of(descriptor: Descriptor) -> type[Field]:
    type_id = FieldType(descriptor.type_id)
    if type_id == FieldType.BYTES and RaggedField.describes(descriptor.arguments):
        return RaggedField
    if type_id == FieldType.CUSTOM and ImageKind.describes(descriptor.arguments):
        return ImageField
    return _CLASSES[type_id]


def _from_arguments(path: str | os.PathLike[str], descriptor: Descriptor, field_class: type[Field] | Field) -> Field:
    try:
        return field_class.from_binary(np.frombuffer(descriptor.arguments, np.uint8))
    except Exception as error:
        raise FieldArgumentsError(
            f"{os.fspath(path)}: field {descriptor.name!r} could not be made from its descriptor: "
            f"{type(error).__name__}: {error}. Is {field_class!r} the class that it was written with?"
        ) from error
