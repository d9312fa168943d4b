"""The images of the benchmarks: JPEG files, and .beton files that store them as JPEG and as raw pixels."""

from __future__ import annotations

import io
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from gpubeton.fields import Field, IntField, RGBImageField
from gpubeton.format.dataset import open_dataset
from gpubeton.writer import DatasetWriter

__all__ = ["IMAGENET_QUALITY", "Corpus", "add_file", "full_size_raw", "make_corpus", "tars_of", "write_tars"]

_QUALITY = 90  # 55 kB
IMAGENET_QUALITY = 97  # 110 kB, as ImageNet's files
_PHOTOS_OF_TAR = 128
_RAW_SIDE = 256


@dataclass(frozen=True)
class Corpus:
    """Paths of the images, and facts about them."""

    folder: str  # JPEG files, one sub-folder per class
    jpg: str  # .beton file with the same JPEG files
    raw: str  # .beton file with raw pixels, at most 256 a side; not of the large JPEG files
    facts: dict[str, dict[str, Any]]  # of "jpg" and "raw"


def make_corpus(data: Path, images: int, console: Console, quality: int = _QUALITY) -> Corpus:
    """Make the images, or use existing ones. The files are as FFCV writes them: without entry points."""
    name = f"{images}" if quality == _QUALITY else f"{images}-q{quality}"
    folder = data / f"photos-{name}"
    with console.status(f"Making {images} photos in {folder}"):
        write_photos(folder, PhotoSet(images, (quality, quality)))
    fields = {"jpg": RGBImageField(write_mode="jpg", jpeg_quality=quality)}
    if quality == _QUALITY:
        fields["raw"] = RGBImageField(write_mode="raw", max_resolution=_RAW_SIDE)
    paths = {storage: data / f"{storage}-{name}.beton" for storage in fields}
    for storage, path in paths.items():
        columns: dict[str, Field] = {"image": fields[storage], "label": IntField()}
        if not path.exists():
            console.print(f"Writing {path}")
            DatasetWriter(path, columns, index=False).from_image_folder(folder)
    count = len(list_photos(folder))
    if count != images:
        raise RuntimeError(f"{folder}: {count} images, expected {images}. Remove the folder and start again.")
    raw = str(paths["raw"]) if "raw" in paths else ""
    return Corpus(str(folder), str(paths["jpg"]), raw, {storage: _facts(path) for storage, path in paths.items()})


def full_size_raw(corpus: Corpus, data: Path, console: Console) -> tuple[str, dict[str, Any]]:
    """Make or use a file with raw pixels in the original size; return its path and facts."""
    path = data / f"raw-full-{corpus.facts['raw']['images']}.beton"
    if not path.exists():
        console.print(f"Writing {path}")
        DatasetWriter(
            path, {"image": RGBImageField(write_mode="raw"), "label": IntField()}, index=False
        ).from_image_folder(corpus.folder)
    return str(path), _facts(path)


def tars_of(corpus: Corpus, photos_each: int = _PHOTOS_OF_TAR) -> str:
    """Make or use tar files of the photos; return their folder."""
    folder = Path(f"{corpus.folder}-tars-of-{photos_each}")
    if not folder.exists():
        unfinished = Path(f"{corpus.folder}-unfinished-tars")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        write_tars(Path(corpus.folder), unfinished, photos_each)
        unfinished.rename(folder)
    return str(folder)


def write_tars(photos: Path, folder: Path, photos_each: int = _PHOTOS_OF_TAR) -> None:
    """Write the photos as webdataset does, in the order of their classes."""
    listed = list_photos(photos)
    classes = sorted({name for _, name in listed})
    for start in range(0, len(listed), photos_each):
        with tarfile.open(folder / f"train-{start // photos_each:04}.tar", "w") as tar:
            for number, (path, name) in enumerate(listed[start : start + photos_each], start):
                add_file(tar, f"{number:08}.jpg", Path(path).read_bytes())
                add_file(tar, f"{number:08}.cls", str(classes.index(name)).encode())


def add_file(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a file to a tar file."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


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
