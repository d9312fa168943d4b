"""The images of the benchmarks: JPEG files, and .beton files that store them as JPEG and as raw pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from gpubeton.fields import Field, IntField, RGBImageField
from gpubeton.format.dataset import open_dataset
from gpubeton.writer import DatasetWriter

__all__ = ["Corpus", "full_size_raw", "make_corpus"]

_QUALITY = 90
_RAW_SIDE = 256


@dataclass(frozen=True)
class Corpus:
    """Paths of the images, and facts about them."""

    folder: str  # JPEG files, one sub-folder per class
    jpg: str  # .beton file with the same JPEG files
    raw: str  # .beton file with raw pixels, at most 256 a side
    facts: dict[str, dict[str, Any]]  # of "jpg" and "raw"


def make_corpus(data: Path, images: int, console: Console) -> Corpus:
    """Make the images, or use existing ones. The files are as FFCV writes them: without entry points."""
    folder = data / f"photos-{images}"
    with console.status(f"Making {images} photos in {folder}"):
        write_photos(folder, PhotoSet(images, (_QUALITY, _QUALITY)))
    paths = {name: data / f"{name}-{images}.beton" for name in ("jpg", "raw")}
    fields = {
        "jpg": RGBImageField(write_mode="jpg", jpeg_quality=_QUALITY),
        "raw": RGBImageField(write_mode="raw", max_resolution=_RAW_SIDE),
    }
    for name, path in paths.items():
        columns: dict[str, Field] = {"image": fields[name], "label": IntField()}
        if not path.exists():
            console.print(f"Writing {path}")
            DatasetWriter(path, columns, index=False).from_image_folder(folder)
    count = len(list_photos(folder))
    if count != images:
        raise RuntimeError(f"{folder}: {count} images, expected {images}. Remove the folder and start again.")
    return Corpus(
        str(folder), str(paths["jpg"]), str(paths["raw"]), {name: _facts(path) for name, path in paths.items()}
    )


def full_size_raw(corpus: Corpus, data: Path, console: Console) -> tuple[str, dict[str, Any]]:
    """Make or use a file with raw pixels in the original size; return its path and facts."""
    path = data / f"raw-full-{corpus.facts['raw']['images']}.beton"
    if not path.exists():
        console.print(f"Writing {path}")
        DatasetWriter(
            path, {"image": RGBImageField(write_mode="raw"), "label": IntField()}, index=False
        ).from_image_folder(corpus.folder)
    return str(path), _facts(path)


def _facts(path: Path) -> dict[str, Any]:
    index = open_dataset(path)
    column = index.column("image")
    return {
        "images": index.num_samples,
        "file_bytes": index.file_size,
        "image_bytes": int(index.regions("image").size.sum()),
        "median_width": int(np.median(column["width"])),
        "median_height": int(np.median(column["height"])),
    }
