"""Folders of small pictures, to be converted."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

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


def write_tars(
    folder: Path, count: int, samples: int = 3, label: Callable[[int], Any] = lambda number: number % 2
) -> Path:
    """Write tar files of webdataset, each with so many samples."""
    folder.mkdir(parents=True)
    for shard in range(count):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as tar:
            for number in range(shard * samples, (shard + 1) * samples):
                image = write_picture(folder.parent / "one.jpg", number).read_bytes()
                for ending, content in (("jpg", image), ("cls", str(label(number)).encode())):
                    member = tarfile.TarInfo(f"{number:05}.{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return folder
