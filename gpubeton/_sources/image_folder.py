"""ImageFolder: image files in one folder per class, on this machine or in an archive."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: torchvision's list.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
#: Files and folders of notebooks, macOS and version control; macOS also puts a folder into zip files.
_HIDDEN = re.compile(r"(?:^|/)(?:\.[^/]*|__MACOSX(?=/|$))")


class ImageFolder:
    """Image files in one folder per class, in the order of torchvision's ImageFolder, so that labels are the same."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        names: Iterable[str] | None = None,  # of files in the root, with slashes; of folders with one at the end
        suffixes: Sequence[str] = IMAGE_SUFFIXES,
    ) -> None:
        self.files: list[str] = []  # paths from the root on, as text: there may be millions
        self.labels: list[int] = []  # none without classes
        self.passed_over: Counter[str] = Counter()  # number of other entries, by their ending or kind
        hidden, folders = set[str](), dict[str, list[str]]()
        for path in self._walk(root) if names is None else names:
            if match := _HIDDEN.search(path):
                hidden.add(path[: match.end()])
                continue
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append(name)
        self.passed_over.update(["hidden"] * len(hidden))
        # The position of a name is the label.
        self.classes = tuple(sorted({folder.partition("/")[0] for folder in folders if folder}))
        numbers = {name: label for label, name in enumerate(self.classes)}
        for folder in sorted(folders, key=lambda folder: (folder.partition("/")[0], folder)):
            label, files = numbers.get(folder.partition("/")[0]), sorted(filter(None, folders[folder]))
            # Images beside the folders of the classes have no class.
            has_place = label is not None or not self.classes
            images = [name for name in files if has_place and name.lower().endswith(tuple(suffixes))]
            self.passed_over.update(Path(name).suffix.lower() for name in set(files).difference(images))
            self.files += [f"{folder}/{name}" for name in images] if folder else images
            self.labels += [] if label is None else [label] * len(images)
        endings = f"no images in it ({', '.join(suffixes)})"
        if empty := sorted(set(range(len(self.classes))).difference(self.labels)):
            name = self.classes[empty[0]]
            raise OptionError(
                f"{os.fspath(root).rstrip('/')}/{name}: {endings}. Every folder is a class; remove folders without "
                "images, or move them away"
            )
        if not self.files:
            raise OptionError(f"{os.fspath(root)}: {endings}, and no folders of images, one per class")

    def _walk(self, root: str | os.PathLike[str]) -> Iterator[str]:
        """List the files and folders in a folder; those behind links, too, but each folder of a class once."""
        for entry in os.scandir(root):
            if entry.is_file():
                yield entry.name
            if not entry.is_dir():
                continue
            yield f"{entry.name}/"
            seen = {os.path.realpath(entry.path)}
            for parent, folders, names in () if _HIDDEN.match(entry.name) else os.walk(entry.path, followlinks=True):
                inside = Path(parent).relative_to(root).as_posix()
                yield from (f"{inside}/{name}" for name in names)
                visible = [name for name in folders if not _HIDDEN.match(name)]
                yield from (f"{inside}/{name}/" for name in set(folders).difference(visible))
                folders.clear()
                for name in visible:
                    target = os.path.realpath(os.path.join(parent, name))  # noqa: PTH118  a text
                    # A link to a folder that holds it would bring the samples of all classes, again and again.
                    if target in seen or Path(target) in Path(os.path.realpath(parent)).parents:
                        self.passed_over["links to folders that were read"] += 1
                    else:
                        seen.add(target)
                        folders.append(name)
