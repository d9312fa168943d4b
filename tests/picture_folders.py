"""Folders of small pictures, to be converted."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from tests.small_files import picture


def write_picture(path: Path, number: int, height: int = 24, width: int = 32) -> Path:
    """Write a picture of its own as a file, of the kind that its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(number, height, width)).save(path)
    return path


def write_folder(root: Path, count: int = 9, classes: tuple[str, ...] = ("cat", "dog", "eel")) -> Path:
    """Write pictures below one folder per class; every fifth is a PNG."""
    for number in range(count):
        suffix = "png" if number % 5 == 4 else "jpg"
        write_picture(root / classes[number % len(classes)] / f"{number:04}.{suffix}", number, 24 + number % 3)
    return root
