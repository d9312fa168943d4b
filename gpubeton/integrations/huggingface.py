"""Datasets of Hugging Face, written with their features; needs ``gpubeton[huggingface]``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import NotesError, OptionError
from gpubeton.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField
from gpubeton.fields.image_field import ImageField
from gpubeton.installation import install
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from gpubeton.fields.base import Field
    from gpubeton.format.data_files import Paths

try:
    import datasets
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}. Install it: {install('huggingface')}", name=error.name) from error

__all__ = ["read_features", "write_dataset"]

_NOTE = "features"
_LIST = getattr(datasets, "List", datasets.Sequence)  # its name before datasets 4


def write_dataset(
    dataset: Any, path: str | os.PathLike[str], fields: Mapping[str, Field] | None = None, **options: Any
) -> None:
    """Write a dataset of Hugging Face as a ``.beton`` file, with its features in the notes.

    Every column becomes a field. Image files are stored as they are, if they fit the field. ``gpubeton convert`` is for
    large datasets of images and labels: it continues after an interruption, but leaves out all other columns.

    Parameters
    ----------
    dataset : datasets.Dataset
        One split, in memory or on disk. ``dataset.select_columns`` chooses columns, ``rename_column`` shortens names.
    path : str or path
        The file.
    fields : mapping of str to Field, optional
        How some columns are stored. By default images are an `RGBImageField` of mode "jpg", whole numbers, truth values
        and class labels an `IntField`, other numbers a `FloatField`, arrays and lists of fixed shape an `NDArrayField`,
        bytes a `BytesField`, and texts, lists and dicts a `JSONField`.
    **options : object
        Other arguments of `DatasetWriter`.

    Raises
    ------
    OptionError
        If it is no single split, or a column cannot be stored.
    SampleError
        If a value cannot be stored: a missing number, for example, which a `JSONField` could hold.

    Examples
    --------
    >>> import datasets
    >>> rows = datasets.Dataset.from_dict({"caption": ["a cat", "an owl"], "label": [1, 0]})
    >>> rows = rows.cast_column("label", datasets.ClassLabel(names=["owl", "cat"]))
    >>> write_dataset(rows, "captions.beton", num_workers=1, progress=False)
    >>> read_features("captions.beton")["label"].int2str(1)
    'cat'
    """
    if not isinstance(dataset, datasets.Dataset):
        found = type(dataset).__name__
        found += f" with {', '.join(map(repr, dataset))}" if isinstance(dataset, dict) else ""
        raise OptionError(f"dataset is {found}; expected one split, a datasets.Dataset, such as dataset['train']")
    features, given = dataset.features, dict(fields or {})
    if unknown := [name for name in given if name not in features]:
        raise OptionError(f"fields has {unknown}; expected columns of the dataset: {', '.join(map(repr, features))}")
    chosen = {name: given.get(name) or _field(name, kind) for name, kind in features.items()}
    labels = {name: kind for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)}
    label = labels.get("label") or next(iter(labels.values()), None)
    notes: dict[str, Any] = {_NOTE: features.to_dict()}
    if label is not None:
        notes["class_names"] = list(label.names)
    options["notes"] = {**notes, **(options.get("notes") or {})}
    DatasetWriter(path, chosen, **options).from_indexed_dataset(_Rows(dataset, chosen))


def read_features(fname: Paths) -> Any:
    """Read the features of a ``.beton`` file, for names of classes and types of columns.

    Parameters
    ----------
    fname : str, path, or sequence of them
        As for `Reader`.

    Returns
    -------
    datasets.Features
        Those of `write_dataset`; for other files those that follow from the fields and the names of the classes.

    Raises
    ------
    NotesError
        If the file's notes are damaged.

    Examples
    --------
    >>> read_features("train.beton")["label"].names
    ['class_0', 'class_1', 'class_2']
    """
    reader = Reader(fname)
    noted = reader.notes.get(_NOTE)
    if noted is None:
        return datasets.Features({name: _feature(name, each, reader) for name, each in reader.handlers.items()})
    try:
        found = datasets.Features.from_dict(noted)
        features = datasets.Features({name: found.pop(name) for name in reader.field_names})  # notes sort their keys
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotesError(
            f"{reader.index.title}: its notes hold no features that datasets {datasets.__version__} knows ({error}), "
            f"expected those of the fields {reader.field_names}. Try a newer datasets"
        ) from error
    return features


class _Rows:
    """The samples for a writer: image files as they are, arrays as arrays."""

    def __init__(self, dataset: Any, fields: Mapping[str, Field]) -> None:
        for name, kind in dataset.features.items():
            if isinstance(kind, datasets.Image):
                dataset = dataset.cast_column(name, datasets.Image(decode=False))
        self._dataset = dataset.with_format(None)
        self._fields = fields

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        row = self._dataset[int(index)]
        return tuple(self._value(row[name], name, field) for name, field in self._fields.items())

    def _value(self, value: Any, name: str, field: Field) -> Any:
        if isinstance(self._dataset.features[name], datasets.Image) and value is not None:
            return value["bytes"] if value["bytes"] is not None else Path(value["path"])
        return np.asarray(value, field.dtype) if isinstance(field, NDArrayField) else value


def _field(name: str, kind: Any) -> Field:
    """Choose the field of a column."""
    dtype = getattr(kind, "dtype", "")
    if isinstance(kind, datasets.Image):
        return RGBImageField("jpg")
    if isinstance(kind, datasets.ClassLabel):
        return IntField()
    if isinstance(kind, datasets.Value):
        if dtype in ("binary", "large_binary"):
            return BytesField()
        if _is_number(dtype) and dtype != "uint64":
            return FloatField() if dtype.startswith("float") else IntField()
    if (array := _array(kind)) is not None:
        return NDArrayField(*array)
    if not _fits_json(kind):
        raise OptionError(
            f"column {name!r} is of type {kind}, for which there is no field. Leave it out, "
            f"dataset.remove_columns({name!r}), or name a field: fields={{{name!r}: ...}}"
        )
    return JSONField()


def _array(kind: Any) -> tuple[str, tuple[int, ...]] | None:
    """Give dtype and shape of a column of arrays of one shape; None for others."""
    shape: tuple[int, ...] = ()
    while isinstance(kind, _LIST) and kind.length > 0:
        kind, shape = kind.feature, (*shape, kind.length)
    if isinstance(kind, datasets.Array2D | datasets.Array3D | datasets.Array4D | datasets.Array5D):
        shape = (*shape, *kind.shape)
    elif not isinstance(kind, datasets.Value):
        return None
    fits = shape and None not in shape and _is_number(kind.dtype)
    return (kind.dtype, shape) if fits else None


def _is_number(dtype: str) -> bool:
    return dtype == "bool" or dtype.rstrip("0123456789") in ("int", "uint", "float")


def _fits_json(kind: Any) -> bool:
    if isinstance(kind, dict):
        return all(map(_fits_json, kind.values()))
    if isinstance(kind, list):
        return all(map(_fits_json, kind))
    if isinstance(kind, _LIST | datasets.LargeList):
        return _fits_json(kind.feature)
    return isinstance(kind, datasets.ClassLabel) or (
        isinstance(kind, datasets.Value) and (_is_number(kind.dtype) or kind.dtype in ("string", "large_string"))
    )


def _feature(name: str, field: Field, reader: Reader) -> Any:
    """Give the feature of a field of a file without features."""
    if isinstance(field, RGBImageField | ImageField):
        return datasets.Image()
    if isinstance(field, IntField):
        names = reader.class_names if name == "label" else None
        return datasets.Value("int64") if names is None else datasets.ClassLabel(names=list(names))
    if isinstance(field, FloatField):
        return datasets.Value("float64")
    if isinstance(field, NDArrayField):
        feature = datasets.Value(field.dtype.name)
        for length in reversed(field.shape):
            feature = _LIST(feature, length)
        return feature
    return datasets.Value("string" if isinstance(field, JSONField) else "binary")
