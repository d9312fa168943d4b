"""Images: as raw pixels or as JPEG files. The decoders are in `image_decoders`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.fields.area_average import area_average, fitted_size, resizer
from gpubeton.fields.base import ImageColumn, Malloc, PlainField
from gpubeton.fields.crop_rules import get_center_crop, get_random_crop
from gpubeton.fields.image_codec import encode_jpeg, file_content, pixels_of
from gpubeton.fields.image_decoders import (
    CenterCropRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    ResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.fields.jpeg_markers import read_frame
from gpubeton.format.field_arguments import RGB
from gpubeton.format.layout import IMAGE_DTYPE, ImageMode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Operation

__all__ = [
    "IMAGE_MODES",
    "CenterCropRGBImageDecoder",
    "RGBImageField",
    "RandomResizedCropRGBImageDecoder",
    "ResizedCropRGBImageDecoder",
    "SimpleRGBImageDecoder",
    "get_center_crop",
    "get_random_crop",
    "resizer",
]

IMAGE_MODES = {"jpg": int(ImageMode.JPG), "raw": int(ImageMode.RAW)}
"""How an image is stored, as its metadata's `mode` says it."""

_WRITE_MODES = ("raw", "jpg", "smart", "proportion")
#: Width and height are stored in 16 bits. FFCV stores what is left of a larger number.
_MAX_SIDE = 65535


class RGBImageField(PlainField):
    """Images, as raw pixels or as JPEG files.

    A value is a `PIL.Image.Image`, a uint8 array (height, width, 3), or an
    image file as bytes or path. A JPEG file that already is what the field
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

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Examples
    --------
    >>> RGBImageField(write_mode="jpg", max_resolution=256, jpeg_quality=90)
    RGBImageField(write_mode='jpg', max_resolution=256, jpeg_quality=90)
    """

    metadata_type = IMAGE_DTYPE

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
        if write_mode not in _WRITE_MODES:
            raise OptionError(f"write_mode is {write_mode!r}, expected one of {', '.join(_WRITE_MODES)}")
        if max_resolution is not None and max_resolution < 1:
            raise OptionError(f"max_resolution is {max_resolution}, expected at least 1 pixel")
        if not 1 <= int(jpeg_quality) <= 100:
            raise OptionError(f"jpeg_quality is {jpeg_quality}, expected 1 to 100")
        if not 0 <= compress_probability <= 1:
            raise OptionError(f"compress_probability is {compress_probability}, expected 0 to 1")
        if seed < 0:
            raise OptionError(f"seed is {seed}, expected at least 0")
        self.write_mode = write_mode
        self.max_resolution = max_resolution
        self.smart_threshold = smart_threshold
        self.jpeg_quality = int(jpeg_quality)
        self.proportion = compress_probability
        self.seed = seed

    def __repr__(self) -> str:
        return (
            f"RGBImageField(write_mode={self.write_mode!r}, max_resolution={self.max_resolution}, "
            f"jpeg_quality={self.jpeg_quality})"
        )

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one image.

        Parameters
        ----------
        destination : ndarray of IMAGE_DTYPE, shape (1,)
            Its metadata.
        value : PIL.Image.Image, ndarray of uint8 (H, W, 3), bytes, str or path
            The image.
        malloc : Malloc
            Gives room for it.

        Raises
        ------
        TypeError
            If it is none of these.
        ValueError
            If it has another shape or dtype, or is too large for the format.
        OSError
            If the file cannot be read.
        """
        content = file_content(value)
        frame = None if content is None else read_frame(content)
        if content is not None and frame is not None and frame.is_plain and self._fits(frame.height, frame.width):
            height, width = frame.height, frame.width
            mode = self._choose_mode(height, width, malloc)
            stored = np.frombuffer(content, np.uint8) if mode is ImageMode.JPG else pixels_of(content)
        else:
            pixels = pixels_of(value if content is None else content)
            height, width = fitted_size(pixels.shape[0], pixels.shape[1], self.max_resolution)
            if max(height, width) > _MAX_SIDE:
                raise ValueError(
                    f"an image of {height} x {width} pixels (height x width), but the format holds sides up to "
                    f"{_MAX_SIDE}; use max_resolution"
                )
            stored = pixels = area_average(pixels, height, width)
            mode = self._choose_mode(height, width, malloc)
            if mode is ImageMode.JPG:
                stored = np.frombuffer(encode_jpeg(pixels, self.jpeg_quality), np.uint8)
        destination["mode"], destination["height"], destination["width"] = mode, height, width
        destination["data_ptr"], region = malloc(stored.size)
        region[:] = stored.reshape(-1)

    def images(self, column: NDArray[Any]) -> ImageColumn:
        """Describe how images are stored."""
        # As FFCV: every number but that of JPEG means raw pixels.
        mode = np.where(column["mode"] == ImageMode.JPG, ImageMode.JPG, ImageMode.RAW).astype(np.uint8)
        return ImageColumn(mode, column["height"].copy(), column["width"].copy(), RGB)

    def get_decoder_class(self) -> type[Operation]:
        """Give `SimpleRGBImageDecoder`."""
        return SimpleRGBImageDecoder

    def _fits(self, height: int, width: int) -> bool:
        return fitted_size(height, width, self.max_resolution) == (height, width)

    def _choose_mode(self, height: int, width: int, malloc: Malloc) -> ImageMode:
        match self.write_mode:
            case "jpg":
                compress = True
            case "smart":
                compress = self.smart_threshold is not None and 3 * height * width > self.smart_threshold
            case "proportion":
                draw = np.random.Generator(np.random.Philox(key=self.seed, counter=malloc.sample)).random()
                compress = bool(draw < self.proportion)
            case _:
                compress = False
        return ImageMode.JPG if compress else ImageMode.RAW
