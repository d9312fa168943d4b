"""ImageClasses: image files in one folder per class, on this machine or in an archive."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubeton._bytes.descriptors import open_regular
from gpubeton.errors import OptionError
from gpubeton.fields.jpeg import read_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

#: torchvision's list.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageClasses:
    """Image files in one folder per class, in the order of torchvision's ImageFolder, so that labels are the same."""

    # Hidden files and folders, whose names begin with a dot, are none of them: notebooks, macOS and version control
    # leave such things, and macOS a folder in zip files.

    def __init__(self, root: str | os.PathLike[str], suffixes: Sequence[str], separator: str) -> None:
        self._root, self._suffixes, self._separator = os.fspath(root), tuple(suffixes), separator
        self.files: list[str] = []  # paths as text: there may be millions
        self.labels: list[int] | None = None
        self.classes: tuple[str, ...] = ()  # the position of a name is the label
        self.passed_over: Counter[str] = Counter()  # number of other entries, by their ending or kind

    def __len__(self) -> int:
        return len(self.files)

    def _arrange(
        self, top: str, names: Iterable[str] | None, classes: Mapping[str, Iterable[tuple[str, Iterable[str]]]]
    ) -> None:
        """Take the images of each class from its folders, or the files of the top folder if there are no classes."""
        # Without `names`, images without a class are not allowed.
        folders = [name for name in sorted(classes) if not self._is_hidden(name)]
        self.classes = tuple(folders)
        if names is not None:
            images = self._images(top, names)
            if not folders:
                self.files = images
                if not images:
                    raise OptionError(
                        f"{self._root}: no images in it ({', '.join(self._suffixes)}), and no folders of images, one "
                        "per class"
                    )
                return
            # Images beside the folders of the classes have no class.
            self.passed_over.update(Path(file).suffix.lower() for file in images)
        if not folders:
            raise OptionError(f"{self._root}: no folders in it, expected one folder of images per class")
        self.labels = []
        for label, name in enumerate(folders):
            images = [file for folder, inside in sorted(classes[name]) for file in self._images(folder, inside)]
            if not images:
                raise OptionError(
                    f"{Path(self._root) / name}: no images in it ({', '.join(self._suffixes)}). Every folder is a "
                    "class; remove folders without images, or move them away"
                )
            self.files += images
            self.labels += [label] * len(images)

    def _is_hidden(self, name: str) -> bool:
        if name.startswith(".") or name == "__MACOSX":
            self.passed_over["hidden"] += 1
            return True
        return False

    def _images(self, folder: str, names: Iterable[str]) -> list[str]:
        """List the images among the files of a folder, and count the others."""
        visible = sorted(name for name in names if not self._is_hidden(name))
        images = [name for name in visible if name.lower().endswith(self._suffixes)]
        self.passed_over.update(Path(name).suffix.lower() for name in set(visible).difference(images))
        return [f"{folder}{self._separator}{name}" for name in images] if folder else images


class ImageFolder(ImageClasses):
    """The images of a folder. No file is opened."""

    # With `flat`, a folder of images without folders of classes is allowed: its images have no labels.

    def __init__(
        self, root: str | os.PathLike[str], suffixes: Sequence[str] = IMAGE_SUFFIXES, *, flat: bool = False
    ) -> None:
        super().__init__(root, suffixes, os.sep)
        entries = list(os.scandir(root))
        names = [entry.name for entry in entries if entry.is_file()] if flat else None
        folders = [entry.name for entry in entries if entry.is_dir()]
        # Text, not a Path for each.
        self._arrange(os.fspath(root), names, {name: self._walk(os.path.join(root, name)) for name in folders})  # noqa: PTH118

    def __getitem__(self, index: int) -> tuple[Path, int] | tuple[Path]:
        path = Path(self.files[index])
        return (path,) if self.labels is None else (path, self.labels[index])

    def _walk(self, top: str) -> Iterator[tuple[str, list[str]]]:
        """List the folders below a folder with their files, links to folders included, each folder once."""
        seen = {os.path.realpath(top)}
        for parent, folders, names in os.walk(top, followlinks=True):
            yield parent, names
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


class ArchivedFolder(ImageClasses):
    """The images of a folder in an archive, by the names of its files and folders; a folder's name ends in a slash."""

    def __init__(self, archive: str, names: Iterable[str]) -> None:
        super().__init__(archive, IMAGE_SUFFIXES, "/")
        top: list[str] = []
        classes: dict[str, dict[str, list[str]]] = {}
        for path in names:
            folder, _, name = path.rpartition("/")
            first, *others = folder.split("/")
            if any(map(self._is_hidden, others)):
                continue
            files = classes.setdefault(first, {}).setdefault(folder, []) if folder else top
            files += [name] if name else []
        self._arrange("", top, {name: folders.items() for name, folders in classes.items()})


class CheckedImages:
    """The files of an `ImageFolder`; JPEG files are decoded, to find damaged ones, unless they will be made smaller."""

    def __init__(self, images: ImageFolder, max_side: int | None) -> None:
        self.files = images.files
        self._images, self._max_side = images, max_side

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        # The import compiles, or loads machine code: writing other datasets does without.
        from gpubeton.errors import BadImageError
        from gpubeton.fields.jpeg import decode_rgb

        path, *label = self._images[index]
        with open_regular(path) as file:
            content = file.read()
        frame = read_frame(content)
        if frame is not None and (self._max_side is None or max(frame.height, frame.width) <= self._max_side):
            try:
                decode_rgb(content)
            except BadImageError as error:
                raise ValueError(f"a damaged JPEG file: {error}") from error
        return content, *label
