"""ImageFolder: a dataset from a folder with one folder of images per class."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["IMAGE_SUFFIXES", "ImageFolder"]

#: torchvision's list.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder:
    """The image files below one folder per class, with the number of the class.

    Classes and files come in the order of torchvision's ImageFolder, so that
    labels are the same.

    Parameters
    ----------
    root : str or path
        The folder with the folders of the classes.
    suffixes : sequence of str
        Endings of image files, in lower case; other files are passed over.

    Attributes
    ----------
    classes : tuple of str
        Names of the classes; their position is the label.
    passed_over : Counter
        How many files there are with each other ending, hidden ones apart.

    Raises
    ------
    OptionError
        If there is no class, or a class without images.
    OSError
        If the folder cannot be read.
    """

    def __init__(self, root: str | os.PathLike[str], suffixes: Sequence[str] = IMAGE_SUFFIXES) -> None:
        self.classes = tuple(sorted(entry.name for entry in os.scandir(root) if entry.is_dir()))
        if not self.classes:
            raise OptionError(f"{os.fspath(root)}: no folders in it, expected one folder of images per class")
        self.passed_over: Counter[str] = Counter()
        self._files: list[tuple[Path, int]] = []
        for label, name in enumerate(self.classes):
            before = len(self._files)
            self._files.extend((path, label) for path in self._images(Path(root) / name, tuple(suffixes)))
            if len(self._files) == before:
                raise OptionError(
                    f"{Path(root) / name}: no images in it ({', '.join(suffixes)}). Every folder is a class; remove "
                    "or move those that are none"
                )

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Path, int]:
        """Give one image's file and label.

        Parameters
        ----------
        index : int
            Its position.

        Returns
        -------
        tuple of Path and int
            The file, unread, and the position of its class.
        """
        return self._files[index]

    def _images(self, folder: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
        for parent, _, names in sorted(os.walk(folder, followlinks=True)):
            for name in sorted(names):
                if name.lower().endswith(suffixes):
                    yield Path(parent, name)
                else:
                    count_ending(self.passed_over, name)


def count_ending(endings: Counter[str], name: str) -> None:
    """Count the ending of a file that is no image; hidden files are not counted.

    Parameters
    ----------
    endings : Counter
        How many files there are with each.
    name : str
        The file's name.

    Examples
    --------
    >>> endings = Counter()
    >>> for name in ("a.GIF", "b.gif", "README", ".DS_Store"):
    ...     count_ending(endings, name)
    >>> sorted(endings.items())
    [('', 1), ('.gif', 2)]
    """
    if not name.startswith("."):
        endings[Path(name).suffix.lower()] += 1
