"""Small ``.beton`` files of every kind of field, and their contents."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpubeton.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField
from gpubeton.writer import DatasetWriter


def picture(number: int, height: int, width: int) -> np.ndarray:
    """A smooth picture that no other number has: uint8 (height, width, 3)."""
    y, x = np.mgrid[0:height, 0:width]
    phases = np.random.default_rng(number).uniform(0, 6, 3)
    waves = [np.sin(y / 17 + phase) + np.cos(x / 23 - phase) for phase in phases]
    return (127.5 + 60 * np.stack(waves, axis=-1)).astype(np.uint8)


class Photos:
    """Samples of varying size with a value in every field."""

    def __init__(self, length: int, size: tuple[int, int] | None = None) -> None:
        self.length = length
        self.size = size

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int):
        rng = np.random.default_rng(number)
        height, width = self.size or rng.integers(40, 90, 2).tolist()
        return (
            picture(number, height, width),
            number * 10,
            number / 4,
            rng.integers(0, 256, number % 5, dtype=np.uint8),
            {"number": number},
            np.full((2, 3), number, np.float32),
        )


def photo_fields(write_mode: str = "jpg"):
    return {
        "image": RGBImageField(write_mode=write_mode),
        "label": IntField(),
        "weight": FloatField(),
        "note": BytesField(),
        "info": JSONField(),
        "vector": NDArrayField(np.float32, (2, 3)),
    }


class Stretch:
    """Some samples of another dataset, from one number on."""

    def __init__(self, dataset, start: int, stop: int) -> None:
        self.dataset, self.start, self.stop = dataset, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, number: int):
        return self.dataset[self.start + number]


def write(path: Path, fields, dataset, *, page_size: int = 1 << 21) -> Path:
    DatasetWriter(path, fields, num_workers=1, progress=False, page_size=page_size).from_indexed_dataset(dataset)
    return path


def write_photos(path: Path, length: int = 50, *, write_mode: str = "jpg", size=None) -> Path:
    return write(path, photo_fields(write_mode), Photos(length, size))


def damage(path: Path, sample: int, *, field: str = "image", at: int = 0, content: bytes = bytes(400)) -> None:
    """Overwrite a part of the stored bytes of a sample."""
    from gpubeton.fields.registry import open_index

    regions = open_index(path)[0].regions(field)
    assert at + len(content) <= int(regions.size[sample])
    with path.open("r+b") as file:
        file.seek(int(regions.offset[sample]) + at)
        file.write(content)
