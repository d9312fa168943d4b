"""Write all columns of a Hugging Face dataset as a .beton file, with its features in the notes.

`gpubeton convert` is for large datasets of images and labels: it continues after an interruption, but stores the images
and one column of labels only. Here every column becomes a field, also texts, arrays and lists.

python examples/hugging_face.py saved_dataset train.beton --json age
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from gpubeton.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField
from gpubeton.fields.base import Field
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter

_LIST = getattr(datasets, "List", datasets.Sequence)  # its name before datasets 4


def write_dataset(
    dataset: datasets.Dataset,
    path: str | os.PathLike[str],
    fields: Mapping[str, Field] | None = None,
    **options: Any,
) -> None:
    """Write a dataset; `fields` chooses how some columns are stored, `options` are other arguments of DatasetWriter."""
    features = dataset.features
    chosen = {name: (fields or {}).get(name) or choose_field(name, kind) for name, kind in features.items()}
    notes: dict[str, Any] = {"features": features.to_dict()}
    labels = {name: kind for name, kind in features.items() if isinstance(kind, datasets.ClassLabel)}
    if labels:
        notes["class_names"] = list(labels.get("label", next(iter(labels.values()))).names)
    DatasetWriter(path, chosen, notes=notes, **options).from_indexed_dataset(Rows(dataset, chosen))


def read_features(path: str | os.PathLike[str]) -> Any:
    """Read the features of a file by `write_dataset`, for names of classes and types of columns."""
    reader = Reader(path)
    features = datasets.Features.from_dict(reader.notes["features"])
    return datasets.Features({name: features[name] for name in reader.field_names})  # notes sort their keys


class Rows:
    """The samples for a writer: image files as they are, arrays as arrays."""

    def __init__(self, dataset: datasets.Dataset, fields: Mapping[str, Field]) -> None:
        for name, kind in dataset.features.items():
            if isinstance(kind, datasets.Image):
                dataset = dataset.cast_column(name, datasets.Image(decode=False))
        self._dataset: Any = dataset.with_format(None)
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


def choose_field(name: str, kind: Any) -> Field:
    """Choose the field of a column."""
    if isinstance(kind, datasets.Image):
        return RGBImageField("jpg")
    if isinstance(kind, datasets.ClassLabel):
        return IntField()
    if isinstance(kind, datasets.Value):
        if kind.dtype in ("binary", "large_binary"):
            return BytesField()
        if is_number(kind.dtype) and kind.dtype != "uint64":
            return FloatField() if kind.dtype.startswith("float") else IntField()
    if (array := dtype_and_shape(kind)) is not None:
        return NDArrayField(*array)
    if not fits_json(kind):
        raise SystemExit(f"column {name!r} is of type {kind}, for which there is no field: leave it out (--without)")
    return JSONField()


def dtype_and_shape(kind: Any) -> tuple[str, tuple[int, ...]] | None:
    """Give dtype and shape of a column of arrays of one shape; None for others."""
    shape: tuple[int, ...] = ()
    while isinstance(kind, _LIST) and kind.length > 0:
        kind, shape = kind.feature, (*shape, kind.length)
    if isinstance(kind, datasets.Array2D | datasets.Array3D | datasets.Array4D | datasets.Array5D):
        shape = (*shape, *kind.shape)
    elif not isinstance(kind, datasets.Value):
        return None
    return (kind.dtype, shape) if shape and None not in shape and is_number(kind.dtype) else None


def is_number(dtype: str) -> bool:
    """Whether values of a type are numbers or truth values."""
    return dtype == "bool" or dtype.rstrip("0123456789") in ("int", "uint", "float")


def fits_json(kind: Any) -> bool:
    """Whether JSON can hold the values of a column."""
    if isinstance(kind, dict):
        return all(map(fits_json, kind.values()))
    if isinstance(kind, list):
        return all(map(fits_json, kind))
    if isinstance(kind, _LIST | datasets.LargeList):
        return fits_json(kind.feature)
    is_text = getattr(kind, "dtype", "") in ("string", "large_string")
    return isinstance(kind, datasets.ClassLabel) or (
        isinstance(kind, datasets.Value) and (is_text or is_number(kind.dtype))
    )


def main() -> None:
    """Write a dataset that `save_to_disk` has written, and print the features of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="a folder by save_to_disk")
    parser.add_argument("out", help="the .beton file")
    parser.add_argument("--split", help="of a folder with several")
    parser.add_argument("--without", nargs="*", default=[], help="columns to leave out")
    parser.add_argument(
        "--json", nargs="*", default=[], help="columns stored as JSON: numbers of which some are missing"
    )
    parser.add_argument("--workers", type=int, default=-1, help="processes; by default one for each core")
    options = parser.parse_args()

    loaded = datasets.load_from_disk(options.dataset)
    if isinstance(loaded, datasets.DatasetDict):
        if options.split not in loaded:
            parser.error(f"--split is {options.split!r}; expected one of {', '.join(map(repr, loaded))}")
        loaded = loaded[options.split]
    rows = loaded.remove_columns(options.without)
    fields = {name: JSONField() for name in options.json}
    write_dataset(rows, options.out, fields, num_workers=options.workers, progress=False)
    for name, kind in read_features(options.out).items():
        print(f"{name}: {kind}")


if __name__ == "__main__":
    main()
