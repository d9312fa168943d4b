"""Registry: the class of each field of a file, by its descriptor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gpubeton import fields as all_fields
from gpubeton.errors import FieldArgumentsError, OptionError
from gpubeton.fields.base import Field
from gpubeton.fields.image_field import ImageField
from gpubeton.fields.ndarray import RaggedField, describes_ragged
from gpubeton.format.dataset import open_dataset
from gpubeton.format.field_arguments import ImageKind
from gpubeton.format.layout import FieldType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton._bytes.store_client import RemoteOptions
    from gpubeton.format.dataset import Paths
    from gpubeton.format.header import Descriptor
    from gpubeton.format.index import Index

CustomFields = Mapping[str, type[Field] | Field]
"""The class of each custom field, by its name; an instance will do."""

_CLASSES: dict[FieldType, type[Field]] = {
    field_class.type_id: field_class
    for field_class in (getattr(all_fields, name) for name in all_fields.__all__)
    if "type_id" in vars(field_class) and field_class is not Field
}


def type_id_of(field: Field) -> FieldType:
    """Give the type that a descriptor names for a field."""
    if type(field) is RaggedField:
        return FieldType.BYTES
    is_ours = type(field) in _CLASSES.values()
    return field.type_id if is_ours else FieldType.CUSTOM


def open_index(
    path: Paths,
    custom_fields: CustomFields | None = None,
    remote: RemoteOptions | None = None,
    containers: Sequence[str] = (),
) -> tuple[Index, dict[str, Field]]:
    """Open a dataset as `open_dataset` does, and make its fields."""
    custom = custom_fields or {}
    types = {name: partial(_metadata_type, field_class) for name, field_class in custom.items()}
    index = open_dataset(path, types, remote=remote, containers=containers)
    return index, fields_of(index, custom)


def open_beton(path: str | os.PathLike[str], custom_fields: CustomFields | None = None) -> Index:
    """Open a file whose bytes are copied or indexed: OptionError if it is an index of containers."""
    index, _ = open_index(path, custom_fields)
    if index.files[0].is_container:
        raise OptionError(
            f"{os.fspath(path)}: an index of images in other files; expected a .beton file. Make one of the same "
            "sources: gpubeton convert"
        )
    return index


def fields_of(index: Index, custom_fields: CustomFields | None = None) -> dict[str, Field]:
    """Make the fields of a dataset."""
    custom, file = custom_fields or {}, index.files[0].path
    return {
        descriptor.name: _make_field(custom.get(descriptor.name) or _class_of(descriptor), file, descriptor)
        for descriptor in index.descriptors
    }


def open_single(path: str | os.PathLike[str], custom_fields: CustomFields | None) -> tuple[Index, dict[str, Field]]:
    """Open one file, which may be an index of containers, and make its fields."""
    index, fields = open_index(path, custom_fields)
    if len(index.files) > 1 and not index.files[0].is_container:
        raise OptionError(
            f"{os.fspath(path)}: a folder of {len(index.files)} files; expected one of them, such as "
            f"{index.files[0].path}"
        )
    return index, fields


def _class_of(descriptor: Descriptor) -> type[Field]:
    type_id = FieldType(descriptor.type_id)
    if type_id == FieldType.BYTES and describes_ragged(descriptor.arguments):
        return RaggedField
    if type_id == FieldType.CUSTOM and ImageKind.describes(descriptor.arguments):
        return ImageField
    return _CLASSES[type_id]


def _metadata_type(field_class: type[Field] | Field, path: str, descriptor: Descriptor) -> np.dtype[np.generic]:
    return _make_field(field_class, path, descriptor).metadata_type


def _make_field(field_class: type[Field] | Field, path: str, descriptor: Descriptor) -> Field:
    try:
        return field_class.from_binary(np.frombuffer(descriptor.arguments, np.uint8))
    except Exception as error:
        raise FieldArgumentsError(
            f"{path}: field {descriptor.name!r} could not be made from its descriptor: "
            f"{type(error).__name__}: {error}. Is {field_class!r} the class that it was written with?"
        ) from error
