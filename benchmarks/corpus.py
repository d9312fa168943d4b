"""The images of the benchmarks: as files, and as .beton files that store them as JPEG and as raw pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from gpubeton.fields import Field, IntField, RGBImageField
from gpubeton.format.index import Index
from gpubeton.writer import DatasetWriter

__all__ = ["Corpus", "full_size_raw", "make_corpus"]

_QUALITY = 90
_RAW_SIDE = 256


@dataclass(frozen=True)
class Corpus:
    """Where the images are, and facts about them.

    Parameters
    ----------
    folder : str
        JPEG files, one sub-folder per class.
    jpg : str
        The same files in a ``.beton`` file.
    raw : str
        The same images, at most 256 pixels a side, as raw pixels in a ``.beton`` file.
    facts : dict of str to dict
        For "jpg" and "raw": number, bytes and median size of the images.
    """

    folder: str
    jpg: str
    raw: str
    facts: dict[str, dict[str, Any]]


def make_corpus(data: Path, images: int, console: Console) -> Corpus:
    """Make the images, or use those that are there.

    Parameters
    ----------
    data : Path
        Where they go.
    images : int
        How many.
    console : Console
        Where to say what is being done.

    Returns
    -------
    Corpus
        The images.
    """
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
            DatasetWriter(path, columns).from_image_folder(folder)
    count = len(list_photos(folder))
    if count != images:
        raise RuntimeError(f"{folder}: {count} images, expected {images}. Remove the folder and start again.")
    return Corpus(
        str(folder), str(paths["jpg"]), str(paths["raw"]), {name: _facts(path) for name, path in paths.items()}
    )


def full_size_raw(corpus: Corpus, data: Path, console: Console) -> tuple[str, dict[str, Any]]:
    """Store the images as raw pixels of their own size, or use the file that is there.

    Parameters
    ----------
    corpus : Corpus
        The images.
    data : Path
        Where the file goes.
    console : Console
        Where to say what is being done.

    Returns
    -------
    str
        The ``.beton`` file.
    dict
        Its facts, like those of a corpus.
    """
    path = data / f"raw-full-{corpus.facts['raw']['images']}.beton"
    if not path.exists():
        console.print(f"Writing {path}")
        DatasetWriter(path, {"image": RGBImageField(write_mode="raw"), "label": IntField()}).from_image_folder(
            corpus.folder
        )
    return str(path), _facts(path)


def _facts(path: Path) -> dict[str, Any]:
    index = Index.open(path)
    column = index.column("image")
    return {
        "images": index.num_samples,
        "file_bytes": index.file_size,
        "image_bytes": int(index.regions("image").size.sum()),
        "median_width": int(np.median(column["width"])),
        "median_height": int(np.median(column["height"])),
    }
