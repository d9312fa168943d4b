"""Write CIFAR-10 as .beton files, from Krizhevsky's archive or from torchvision's folder.

    python -m examples.cifar.write cifar-10-python.tar.gz .    # makes ./train.beton and ./test.beton
    python -m examples.cifar.write cifar-10-binary.tar.gz .
    python -m examples.cifar.write data .                      # the download of torchvision's CIFAR10("data")

The archives are at https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import argparse
import io
import pickle
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields import IntField, RGBImageField
from gpubeton.writer import DatasetWriter

TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)

#: The functions that unpickle an array, by their names in numpy 2.
MAKERS = {
    "numpy._core.multiarray._reconstruct": np.empty(0).__reduce__()[0],
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
}


class Cifar:
    """Images and labels of some parts of the archive."""

    def __init__(self, source: Path, parts: Sequence[str]) -> None:
        results = {Path(name).name: content for name, content in contents(source, parts)}
        if len(results) != len(parts):
            missing = sorted({part.split(".")[0] for part in parts} - {name.split(".")[0] for name in results})
            raise FileNotFoundError(f"{source}: {', '.join(missing)} not in it, expected a CIFAR-10 archive or folder")
        rows = [read_part(name, content) for name, content in sorted(results.items())]
        self.images = np.concatenate([images for images, _ in rows]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        self.labels = np.concatenate([labels for _, labels in rows])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], int]:
        """Return one image, 32 x 32 x 3, and its class, 0 to 9."""
        return np.ascontiguousarray(self.images[index]), int(self.labels[index])


def contents(source: Path, parts: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Return the names and bytes of the parts, from a folder or an archive."""
    expected = {*parts, *(f"{part}.bin" for part in parts)}
    if source.is_dir():
        for path in source.rglob("*"):
            if path.name in expected:
                yield path.name, path.read_bytes()
        return
    with tarfile.open(source) as archive:
        for member in archive:
            file = archive.extractfile(member) if Path(member.name).name in expected else None
            if file is not None:
                yield member.name, file.read()


def read_part(name: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the images, 3072 bytes each, and labels of a part in either format."""
    if name.endswith(".bin"):  # a byte for the label, then the red, green and blue planes
        rows = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        return rows[:, 1:], rows[:, 0]
    part = ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    return part[b"data"], np.array(part[b"labels"], np.uint8)


class ArraysOnly(pickle.Unpickler):
    """Unpickles arrays, and refuses to call any other function."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an allowed function."""
        place = f"{module.replace('numpy.core', 'numpy._core')}.{name}"
        if place not in MAKERS:
            raise pickle.UnpicklingError(f"{place} in a file of CIFAR-10, expected arrays alone. Is it the original?")
        return MAKERS[place]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the archive, or a folder with its files")
    parser.add_argument("folder", type=Path, help="where train.beton and test.beton are put")
    options = parser.parse_args(arguments)
    for name, parts in (("train", TRAIN), ("test", TEST)):
        dataset = Cifar(options.source, parts)
        fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
        options.folder.mkdir(parents=True, exist_ok=True)
        path = options.folder / f"{name}.beton"
        DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(dataset)
        print(f"{path}: {len(dataset)} images")


if __name__ == "__main__":
    main()
