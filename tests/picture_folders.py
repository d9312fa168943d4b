"""Folders of small pictures, to be converted."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from gpubeton.dataset import Settings, convert, open_source
from gpubeton.format import open_dataset
from tests.small_files import picture


def write_picture(path: Path, number: int, height: int = 24, width: int = 32) -> Path:
    """Write a picture that differs by number, as a file of the kind that its name has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(number, height, width)).save(path)
    return path


def write_folder(root: Path, count: int = 9, classes: tuple[str, ...] = ("cat", "dog", "eel")) -> Path:
    """Write pictures below one folder per class; every fifth is a PNG."""
    for number in range(count):
        suffix = "png" if number % 5 == 4 else "jpg"
        write_picture(root / classes[number % len(classes)] / f"{number:04}.{suffix}", number, 24 + number % 3)
    return root


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    """Write a tar file of these names and contents."""
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write_tars(
    folder: Path, count: int, samples: int = 3, label: Callable[[int], Any] = lambda number: number % 2
) -> Path:
    """Write tar files of webdataset, each with so many samples."""
    folder.mkdir(parents=True)
    for shard in range(count):
        members = []
        for number in range(shard * samples, (shard + 1) * samples):
            members.append((f"{number:05}.jpg", write_picture(folder.parent / "one.jpg", number).read_bytes()))
            members.append((f"{number:05}.cls", str(label(number)).encode()))
        write_tar(folder / f"{shard:03}.tar", members)
    return folder


def images_and_labels(*files: Path) -> list[tuple[bytes, int]]:
    """List the images of files as they are stored, and the labels."""
    results: list[tuple[bytes, int]] = []
    for path in files:
        index, content = open_dataset(path), path.read_bytes()
        places = index.regions("image")
        images = [content[start : start + size] for start, size in zip(places.offset, places.size, strict=True)]
        results += zip(images, index.column("label").tolist(), strict=True)
    return results


def write_converted(folder: Path, count: int = 9) -> Path:
    """Convert such a folder."""
    source = open_source(write_folder(folder / "photos", count))
    return convert(source, folder / "a.beton", Settings(page_size=1 << 21), num_workers=1).path
