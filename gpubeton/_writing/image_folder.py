"""ImageFolder: image files in one folder per class."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._bytes.descriptors import open_regular
from gpubeton.errors import OptionError
from gpubeton.fields.jpeg_markers import read_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: torchvision's list.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder:
    """Image files in one folder per class, in the order of torchvision's ImageFolder, so that labels are the same."""

    # With `flat`, a folder of images without folders of classes is allowed: its images have no labels. Hidden files and
    # folders, whose names begin with a dot, are none of them: notebooks, macOS and version control leave such things.
    # No file is opened.

    def __init__(
        self, root: str | os.PathLike[str], suffixes: Sequence[str] = IMAGE_SUFFIXES, *, flat: bool = False
    ) -> None:
        self._suffixes = tuple(suffixes)
        self.files: list[str] = []  # paths as text: there may be millions
        self.labels: list[int] | None = None
        self.passed_over: Counter[str] = Counter()  # number of other entries, by their ending or kind
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
        folders = [entry.name for entry in entries if entry.is_dir() and not self._is_hidden(entry.name)]
        self.classes = tuple(folders)  # the position of a name is the label
        if flat:
            images = self._images(os.fspath(root), [entry.name for entry in entries if entry.is_file()])
            if not folders:
                self.files = images
                if not images:
                    raise OptionError(
                        f"{os.fspath(root)}: no images in it ({', '.join(suffixes)}), and no folders of images, one "
                        "per class"
                    )
                return
            # Images beside the folders of the classes have no class.
            self.passed_over.update(Path(file).suffix.lower() for file in images)
        if not folders:
            raise OptionError(f"{os.fspath(root)}: no folders in it, expected one folder of images per class")
        self.labels = []
        for label, name in enumerate(folders):
            top = os.path.join(root, name)  # noqa: PTH118  text, not a Path for each
            images = [file for folder, names in self._walk(top) for file in self._images(folder, names)]
            if not images:
                raise OptionError(
                    f"{Path(root) / name}: no images in it ({', '.join(suffixes)}). Every folder is a class; remove "
                    "folders without images, or move them away"
                )
            self.files += images
            self.labels += [label] * len(images)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Path, int] | tuple[Path]:
        path = Path(self.files[index])
        return (path,) if self.labels is None else (path, self.labels[index])

    def _walk(self, top: str) -> list[tuple[str, list[str]]]:
        """List the folders below a folder with their files, links to folders included, each folder once."""
        seen, listed = {os.path.realpath(top)}, []
        for parent, folders, names in os.walk(top, followlinks=True):
            listed.append((parent, names))
            inside = []
            for name in folders:
                target = os.path.realpath(os.path.join(parent, name))  # noqa: PTH118
                if self._is_hidden(name):
                    continue
                # A link to a folder that holds it would bring the samples of all classes, again and again.
                if target in seen or Path(target) in Path(os.path.realpath(parent)).parents:
                    self.passed_over["links to folders that were read"] += 1
                    continue
                seen.add(target)
                inside.append(name)
            folders[:] = inside
        return sorted(listed)

    def _is_hidden(self, name: str) -> bool:
        if name.startswith("."):
            self.passed_over["hidden"] += 1
            return True
        return False

    def _images(self, folder: str, names: Iterable[str]) -> list[str]:
        """List the images among the files of a folder, and count the others."""
        visible = sorted(name for name in names if not self._is_hidden(name))
        images = [name for name in visible if name.lower().endswith(self._suffixes)]
        self.passed_over.update(Path(name).suffix.lower() for name in set(visible).difference(images))
        return [f"{folder}{os.sep}{name}" for name in images]


class CheckedImages:
    """The files of an `ImageFolder`; JPEG files are decoded, to find damaged ones, unless they will be made smaller."""

    def __init__(self, images: ImageFolder, max_side: int | None) -> None:
        self.files = images.files
        self._images, self._max_side = images, max_side

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        # The import compiles, or loads machine code: writing other datasets does without.
        from gpubeton._cpu.fallback import UndecodableError, decode_rgb

        path, *label = self._images[index]
        with open_regular(path) as file:
            content = file.read()
        frame = read_frame(content)
        if frame is not None and (self._max_side is None or max(frame.height, frame.width) <= self._max_side):
            try:
                decode_rgb(content)
            except UndecodableError as error:
                raise ValueError(f"a damaged JPEG file: {error}") from error
        return content, *label
