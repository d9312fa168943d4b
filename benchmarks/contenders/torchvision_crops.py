"""Decode, crop and resize with torchvision v2, image by image.

    python -m benchmarks.contenders.torchvision_crops FOLDER

It runs with an interpreter that may have no gpubeton. The folder has ``files.npz``, the bytes of each image;
``wholes.json``, the names of those to decode only; and ``crops.json``, cases with a name, the names of files, boxes of
top, left, height and width, a side and an interpolation. ``results.npz`` and ``versions.json`` are written into it.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.v2 import InterpolationMode, functional

#: Mode, and whether the filter is as wide as a pixel of the result.
_MODES = {
    "bilinear": (InterpolationMode.BILINEAR, False),
    "antialias": (InterpolationMode.BILINEAR, True),
    "bicubic": (InterpolationMode.BICUBIC, True),
    "nearest": (InterpolationMode.NEAREST_EXACT, False),
}


def main(folder: Path) -> None:
    """Make all results."""
    with np.load(folder / "files.npz") as files:
        images = {
            name: decode_image(torch.from_numpy(file), mode=ImageReadMode.RGB, apply_exif_orientation=False)
            for name, file in files.items()
        }
    results: dict[str, Any] = {name: _pixels(images[name]) for name in json.loads((folder / "wholes.json").read_text())}
    for name, names, boxes, side, interpolation in json.loads((folder / "crops.json").read_text()):
        if interpolation in _MODES:
            mode, antialias = _MODES[interpolation]
            parts = [
                functional.resized_crop(images[of], *box, [side, side], mode, antialias=antialias)
                for of, box in zip(names, boxes, strict=True)
            ]
            results[name] = np.stack([_pixels(part) for part in parts])
    np.savez(folder / "results.npz", **results)
    (folder / "versions.json").write_text(json.dumps({name: version(name) for name in ("torchvision", "torch")}))


def _pixels(image: Any) -> Any:
    return image.permute(1, 2, 0).numpy()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
