"""FolderSource: images in a folder, with or without a folder for each class."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from gpubeton.conversion.source import LABEL, Source, stat_identity
from gpubeton.errors import OptionError
from gpubeton.writing.image_folder import IMAGE_SUFFIXES, ImageFolder, count_ending

__all__ = ["FolderSource"]


class FolderSource(Source):
    """Images in a folder.

    With folders in it, each of them is a class, as in torchvision's ImageFolder; with images right in it, there are
    no labels.

    Parameters
    ----------
    root : str or path
        The folder.

    Raises
    ------
    OptionError
        If there are no images.
    """

    kind = "folder"

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).absolute()
        entries = sorted(os.scandir(self._root), key=lambda entry: entry.name)
        flat, passed_over = [], Counter[str]()
        for entry in entries:
            if not entry.is_file():
                continue
            if entry.name.lower().endswith(IMAGE_SUFFIXES):
                flat.append(entry.name)
            else:
                count_ending(passed_over, entry.name)
        self._files: list[str] = flat
        self._labels: list[int] = []
        self.fields = {}
        if any(entry.is_dir() and not entry.name.startswith(".") for entry in entries):
            folder = ImageFolder(self._root)
            pairs = [folder[index] for index in range(len(folder))]
            self._files = [os.fspath(path.relative_to(self._root)) for path, _ in pairs]
            self._labels = [label for _, label in pairs]
            self.fields, self.class_names = {LABEL: "int"}, folder.classes
            # Images beside the folders of the classes are in none.
            passed_over += Counter(Path(name).suffix.lower() for name in flat) + folder.passed_over
        elif not flat:
            raise OptionError(
                f"{self._root}: no images in it ({', '.join(IMAGE_SUFFIXES)}), and no folders of images, one per class"
            )
        self.passed_over = passed_over

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Path, int] | tuple[Path]:
        path = self._root / self._files[index]
        return (path, self._labels[index]) if self._labels else (path,)

    def name(self, index: int) -> str:
        return os.fspath(self._root / self._files[index])

    def identity(self, index: int) -> str:
        label = self._labels[index] if self._labels else ""
        return f"{self._files[index]} {label} {stat_identity(self.name(index))}"
