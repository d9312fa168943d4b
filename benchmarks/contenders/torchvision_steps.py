"""The steps as torchvision v2 has them for uint8 tensors, with the parameters of `tests.reference.definitions`.

    python -m benchmarks.contenders.torchvision_steps FOLDER

It runs with an interpreter that may have no gpubeton. The folder has ``images.npy``, uint8 (N, H, W, 3), and
``cases.json``, a list of names and parameters; ``results.npz`` and ``versions.json`` are written into it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import InterpolationMode, functional


def _affine(
    images: Any, interpolation: str, angle: float, translate: list[float], scale: float, shear: Any, fill: Any
) -> Any:
    mode = InterpolationMode(interpolation)
    return functional.affine(images, angle, translate, scale, shear, mode, list(map(float, fill)))


def _perspective(images: Any, interpolation: str, start: Any, end: Any, fill: Any) -> Any:
    mode = InterpolationMode(interpolation)
    return functional.perspective(images, start, end, mode, list(map(float, fill)))


def _paint(images: Any, top: int, left: int, bottom: int, right: int, fill: Any) -> Any:
    color = torch.tensor(fill, dtype=torch.uint8).view(3, 1, 1)
    return functional.erase(images, top, left, bottom - top, right - left, color)


def _turn(images: Any, across: bool, down: bool, diagonal: bool) -> Any:
    images = functional.horizontal_flip(images) if across else images
    images = functional.vertical_flip(images) if down else images
    return images.mT if diagonal else images


def _shift(images: Any, down: int, right: int, fill: Any) -> Any:
    return _affine(images, "nearest", 0, [right, down], 1, [0, 0], fill)


def _mixture(images: Any, weight: float) -> Any:
    """As ``AugMix`` adds images."""
    return ((1 - weight) * images + weight * functional.horizontal_flip(images)).to(torch.uint8)


#: Each takes images, (N, 3, H, W), and parameters. There is none for HSV and SolarizeAdd.
CHANGES: dict[str, Callable[..., Any]] = {
    "brightness": functional.adjust_brightness,
    "contrast": functional.adjust_contrast,
    "saturation": functional.adjust_saturation,
    "hue": functional.adjust_hue,
    "solarize": functional.solarize,
    "posterize": functional.posterize,
    "invert": functional.invert,
    "autocontrast": functional.autocontrast,
    "equalize": functional.equalize,
    "sharpness": functional.adjust_sharpness,
    "blur": lambda images, size, sigma: functional.gaussian_blur(images, [size, size], [sigma, sigma]),
    "affine": _affine,
    "perspective": _perspective,
    "paint": _paint,
    "turn": _turn,
    "shift": _shift,
    "mixture": _mixture,
}


def main(folder: Path) -> None:
    """Change all images by each case."""
    images = torch.from_numpy(np.load(folder / "images.npy")).permute(0, 3, 1, 2).contiguous()
    results = {
        str(number): CHANGES[name](images, *parameters).permute(0, 2, 3, 1).numpy()
        for number, (name, parameters) in enumerate(json.loads((folder / "cases.json").read_text()))
        if name in CHANGES
    }
    np.savez(folder / "results.npz", **results)
    (folder / "versions.json").write_text(json.dumps({name: version(name) for name in ("torchvision", "torch")}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
