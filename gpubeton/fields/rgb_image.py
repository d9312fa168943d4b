"""FFCV's module of images: its field and decoders, and its functions that choose the part of one image."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.fields.base import ArgumentlessField, ImageColumn
from gpubeton.fields.codecs import JPEG, Codec
from gpubeton.fields.image_decoders import (
    CenterCropImageDecoder,
    ImageDecoder,
    PadImageDecoder,
    RandomResizedCropImageDecoder,
    ResizedCropImageDecoder,
)
from gpubeton.fields.image_field import StoredImages
from gpubeton.fields.pixels import resizer, rgb_pixels_of
from gpubeton.format.field_arguments import RGB
from gpubeton.format.layout import FieldType, ImageMode
from gpubeton.pipeline.validation import check_choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Operation

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


class RGBImageField(StoredImages, ArgumentlessField):
    """Images, as raw pixels or as JPEG files.

    A value is a `PIL.Image.Image`, a uint8 array or tensor (height, width, 3),
    or an image file as bytes or path. A JPEG file that already is what the field
    wants (baseline, 8 bits, gray or YCbCr, small enough) is stored as it is,
    **without being encoded again**; it is not decoded either, so that damage
    inside shows up when it is read. Every other file is decoded and encoded:
    progressive JPEG too, because hardware decoders refuse it and all others
    take longer for it, in every epoch.

    Parameters
    ----------
    write_mode : {"raw", "jpg", "smart", "proportion"}
        raw
            8-bit pixels.
        jpg
            JPEG files.
        smart
            JPEG for images of more than `smart_threshold` bytes as raw pixels, else raw.
        proportion
            JPEG for a share of `compress_probability` of the images, drawn from
            `seed` and the row of the file, else raw.
    max_resolution : int, optional
        Longest side in pixels; larger images are made smaller by averaging over
        areas, with FFCV's size rule and to the bit as OpenCV's INTER_AREA.
    smart_threshold : int, optional
        For "smart"; without it, everything is stored raw, as in FFCV.
    jpeg_quality : int
        1 to 100, for images that are encoded.
    compress_probability : float
        For "proportion".
    seed : int
        For "proportion".

    Examples
    --------
    >>> RGBImageField(write_mode="jpg", max_resolution=256, jpeg_quality=90)
    RGBImageField(write_mode='jpg', max_resolution=256, jpeg_quality=90)
    """

    type_id = FieldType.RGB_IMAGE

    def __init__(
        self,
        write_mode: str = "raw",
        max_resolution: int | None = None,
        smart_threshold: int | None = None,
        jpeg_quality: int = 90,
        compress_probability: float = 0.5,
        *,
        seed: int = 0,
    ) -> None:
        check_choice("write_mode", write_mode, ("raw", "jpg", "smart", "proportion"))
        options = write_mode, max_resolution, smart_threshold, jpeg_quality, compress_probability, seed
        super().__init__(RGB, *options)

    def __repr__(self) -> str:
        return (
            f"RGBImageField(write_mode={self.write_mode!r}, max_resolution={self.max_resolution}, "
            f"jpeg_quality={self.jpeg_quality})"
        )

    def images(self, column: NDArray[Any]) -> ImageColumn:
        # As in FFCV, every mode but that of JPEG means raw pixels.
        mode = np.where(column["mode"] == ImageMode.JPG, ImageMode.JPG, ImageMode.RAW).astype(np.uint8)
        return ImageColumn(mode, column["height"].copy(), column["width"].copy(), RGB)

    def get_decoder_class(self) -> type[Operation]:
        return SimpleRGBImageDecoder

    def _codecs(self) -> Sequence[Codec]:
        return (JPEG,)  # FFCV knows no other

    def _pixels(self, value: Any) -> NDArray[Any]:
        return rgb_pixels_of(value)


class SimpleRGBImageDecoder(ImageDecoder):
    """Decode RGB images whole; all must have the same size.

    Examples
    --------
    >>> SimpleRGBImageDecoder().boxes(np.array([20]), np.array([30]), None).tolist()
    [[0, 0, 20, 30]]
    """

    takes_any_kind: ClassVar[bool] = False
    family: ClassVar[type[ImageDecoder]] = ImageDecoder
    """Any of these may be first in the pipeline of a field with this decoder."""


class ResizedCropRGBImageDecoder(SimpleRGBImageDecoder, ResizedCropImageDecoder):
    """Decode a part of each RGB image, resized to one size; derive from it for another crop.

    Parameters
    ----------
    output_size, interpolation
        As for `ResizedCropImageDecoder`, which shows how to derive from it.

    Examples
    --------
    >>> class Whole(ResizedCropRGBImageDecoder):
    ...     def boxes(self, heights, widths, uniform):
    ...         return np.stack([0 * heights, 0 * widths, heights, widths], axis=1).astype(np.int32)
    >>> Whole((112, 224)).boxes(np.array([300]), np.array([400]), None).tolist()
    [[0, 0, 300, 400]]
    """


class CenterCropRGBImageDecoder(ResizedCropRGBImageDecoder, CenterCropImageDecoder):
    """Decode the central square of each RGB image, resized.

    Parameters
    ----------
    output_size, ratio, interpolation
        As for `CenterCropImageDecoder`.

    Examples
    --------
    >>> CenterCropRGBImageDecoder((224, 224), ratio=0.5).boxes(np.array([100]), np.array([200]), None).tolist()
    [[25, 75, 50, 50]]
    """


class PadRGBImageDecoder(ResizedCropRGBImageDecoder, PadImageDecoder):
    """Decode RGB images whole, resized to fit with their proportions kept; the rest is filled (letterbox).

    Parameters
    ----------
    output_size, fill, interpolation, position
        As for `PadImageDecoder`.

    Examples
    --------
    >>> decoder = PadRGBImageDecoder((640, 640), fill=114)
    >>> decoder.places(np.array([480, 500]), np.array([640, 375])).tolist()  # top, left, height, width
    [[80, 0, 480, 640], [0, 80, 640, 480]]
    """


class RandomResizedCropRGBImageDecoder(ResizedCropRGBImageDecoder, RandomResizedCropImageDecoder):
    """Decode a random part of each RGB image, resized; the parts are chosen by torchvision's rule.

    Parameters
    ----------
    output_size, scale, ratio, interpolation
        As for `RandomResizedCropImageDecoder`. With the same seed, the parts are the same.

    Examples
    --------
    >>> RandomResizedCropRGBImageDecoder((224, 224), scale=(0.25, 1.0)).output_size
    (224, 224)
    """


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
    return np.frombuffer(JPEG.encode(numpy_image, quality), np.uint8)


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
