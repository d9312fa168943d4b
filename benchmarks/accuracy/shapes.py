"""Do masks and boxes follow their image? Beside the same crops and flips, made plainly in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.detection import write as detection
from examples.segmentation import write as segmentation
from gpubeton.fields import ImageField, RaggedField, RGBImageField
from gpubeton.fields.decoders import FollowImage, RaggedDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline.pipeline_spec import DrawnParameters
from gpubeton.transforms import RandomHorizontalFlip, ToTensor, TransformBoxes
from gpubeton.writer import DatasetWriter
from tests.reference.weights import resize

__all__ = ["boxes", "masks"]

_SIDE = 64


def masks(folder: Path, samples: int = 512) -> dict[str, float]:
    """Compare the masks of shapes after a random crop and a flip, pixel by pixel."""
    shapes = segmentation.Shapes(samples)
    fields = {"image": RGBImageField("jpg"), "mask": ImageField("gray")}
    path = _write(folder / "masks.beton", fields, shapes)
    wrong = pixels = 0
    first = 0
    for _, cut, drawn in _batches(path, "mask", [FollowImage("image"), ToTensor()]):
        for row, levels in enumerate(cut.numpy()):
            top, left, height, width = drawn["crop"][row].tolist()
            part = shapes[first + row][1][top : top + height, left : left + width, None]
            expected = resize(part, (_SIDE, _SIDE), "nearest")
            expected = expected[:, ::-1] if drawn["RandomHorizontalFlip"][row] else expected
            wrong += int((levels != expected).sum())
            pixels += levels.size
        first += len(cut)
    return {"masks": first, "pixels": pixels, "different": wrong}


def boxes(folder: Path, samples: int = 512) -> dict[str, float]:
    """Compare the boxes of shapes after a random crop and a flip, corner by corner."""
    shapes = detection.Shapes(samples)
    fields = {"image": RGBImageField("jpg"), "boxes": RaggedField("<f4", (-1, 6))}
    path = _write(folder / "boxes.beton", fields, shapes)
    largest, count, missing, first = 0.0, 0, 0, 0
    for _, moved, drawn in _batches(path, "boxes", [RaggedDecoder(), TransformBoxes("image"), ToTensor()]):
        for row, result in enumerate(moved):
            flips = bool(drawn["RandomHorizontalFlip"][row])
            expected = _moved(shapes[first + row][1], drawn["crop"][row].numpy().astype(np.float64), flips=flips)
            if len(result) != len(expected):
                missing += 1
            elif len(result):
                largest = max(largest, float(np.abs(result.numpy() - expected).max()))
            count += len(expected)
        first += len(moved)
    return {"boxes": count, "missing": missing, "largest difference": largest}


def _moved(listed: NDArray[np.float32], crop: NDArray[np.float64], *, flips: bool) -> NDArray[np.float64]:  # (M, 6)
    """Cut boxes as a crop does, enlarge and mirror them; leave out those of which nothing is left."""
    top, left, height, width = crop
    result = listed.astype(np.float64)
    result[:, [0, 2]] = ((result[:, [0, 2]] - left) * _SIDE / width).clip(0, _SIDE)
    result[:, [1, 3]] = ((result[:, [1, 3]] - top) * _SIDE / height).clip(0, _SIDE)
    if flips:
        result[:, [2, 0]] = _SIDE - result[:, [0, 2]]
    return result[(result[:, 2] > result[:, 0]) & (result[:, 3] > result[:, 1])]


def _write(path: Path, fields: dict[str, Any], shapes: Any) -> Path:
    DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(shapes)
    return path


def _batches(path: Path, name: str, follower: list[Any]) -> Any:
    crop = RandomResizedCropRGBImageDecoder((_SIDE, _SIDE), (0.1, 1.0))
    image = [crop, RandomHorizontalFlip(), ToTensor()]
    pipelines: dict[str, Any] = {"image": image, name: follower, "drawn": DrawnParameters("image")}
    loader = Loader(path, 64, num_workers=1, seed=0, drop_last=False, pipelines=pipelines, device="cpu")
    with loader:
        yield from loader
