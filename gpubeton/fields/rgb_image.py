"""FFCV's module of images: its field and decoders, and its functions that choose the part of one image."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.fields import image_codec
from gpubeton.fields.area_average import resizer
from gpubeton.fields.image_decoders import (
    CenterCropRGBImageDecoder,
    PadRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    ResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.fields.image_field import RGBImageField
from gpubeton.format.layout import ImageMode

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "IMAGE_MODES",
    "CenterCropRGBImageDecoder",
    "PadRGBImageDecoder",
    "RGBImageField",
    "RandomResizedCropRGBImageDecoder",
    "ResizedCropRGBImageDecoder",
    "SimpleRGBImageDecoder",
    "encode_jpeg",
    "get_center_crop",
    "get_random_crop",
    "resizer",
]

IMAGE_MODES = {"jpg": int(ImageMode.JPG), "raw": int(ImageMode.RAW)}
"""How an image is stored: the values of `mode` in its metadata."""

_TRIES = 10

_IMPORTED_BY_FFCV = {"imdecode", "memcpy", "resize_crop"}  # from its libffcv; here a room above this one


def __getattr__(name: str) -> Any:
    if name in _IMPORTED_BY_FFCV:
        return getattr(importlib.import_module("gpubeton.libffcv"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def encode_jpeg(numpy_image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Compress an image, as a field of your own may do in its ``encode``.

    Parameters
    ----------
    numpy_image : ndarray of uint8, shape (H, W, 3)
        RGB.
    quality : int
        From 1 to 100.

    Returns
    -------
    ndarray of uint8, shape (S,)
        A baseline JPEG file with 4:2:0 chroma: the bytes that FFCV's function gives.

    Examples
    --------
    >>> encode_jpeg(np.zeros((16, 16, 3), np.uint8), 90)[:2].tolist()
    [255, 216]
    """
    return np.frombuffer(image_codec.encode_jpeg(numpy_image, quality), np.uint8)


def get_random_crop(height: Any, width: Any, scale: Any, ratio: Any) -> tuple[int, int, int, int]:
    """Choose a random part of an image by torchvision's rule.

    Each of up to ten tries draws an area and an aspect ratio, and a place where that fits into the image. If none does,
    the part is the largest central one whose aspect ratio is within `ratio`.

    Parameters
    ----------
    height, width : int
        Size of the image in pixels.
    scale : ndarray of float64, shape (2,), or tuple of float
        Least and greatest area of the part, as a share of the image's.
    ratio : ndarray of float64, shape (2,), or tuple of float
        Least and greatest aspect ratio of the part, width over height.

    Returns
    -------
    tuple of int
        Top, left, height and width of the part in pixels.

    Examples
    --------
    In a decoder that you write, where the loader seeds numpy's generator for each image:

    >>> from gpubeton.fields.rgb_image import ResizedCropRGBImageDecoder
    >>> class LargePart(ResizedCropRGBImageDecoder):
    ...     scale, ratio = (0.5, 1.0), (0.75, 4 / 3)
    ...
    ...     @property
    ...     def get_crop_generator(self):
    ...         return get_random_crop
    >>> halves = lambda count, rows=None: np.full((1, count), 0.5)
    >>> top, left, height, width = LargePart((32, 32)).boxes(np.array([100]), np.array([200]), halves)[0]
    >>> bool(height * width > 9_000)
    True
    """
    # What FFCV computes, operation by operation: the same numbers drawn give the same part.
    least, greatest = np.log(ratio[0]), np.log(ratio[1])
    for _ in range(_TRIES):
        area = height * width * np.random.uniform(scale[0], scale[1])  # noqa: NPY002  (what compiled code has)
        aspect = np.exp(np.random.uniform(least, greatest))  # noqa: NPY002  (as above)
        across, down = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            top = int(np.random.uniform(0, height - down + 1))  # noqa: NPY002  (as above)
            left = int(np.random.uniform(0, width - across + 1))  # noqa: NPY002  (as above)
            return top, left, down, across
    across, down, shape = int(width), int(height), float(width) / float(height)
    if shape < min(ratio[0], ratio[1]):
        down = round(across / min(ratio[0], ratio[1]))
    elif shape > max(ratio[0], ratio[1]):
        across = round(down * max(ratio[0], ratio[1]))
    return int((height - down) // 2), int((width - across) // 2), down, across


def get_center_crop(height: Any, width: Any, _: Any, ratio: Any) -> tuple[int, int, int, int]:
    """Choose the central square of an image.

    Parameters
    ----------
    height, width : int
        Size of the image in pixels.
    _ : object
        Not looked at; it is the decoder's ``scale``.
    ratio : float
        Side of the square as a share of the image's shorter side.

    Returns
    -------
    tuple of int
        Top, left, height and width of the square in pixels.

    Examples
    --------
    >>> get_center_crop(100, 200, None, 0.5)
    (25, 75, 50, 50)
    """
    side = int(ratio * min(height, width))
    return int((height - side) // 2), int((width - side) // 2), side, side
