"""Pixels from image files of any kind, and JPEG files from pixels. Pillow does the work."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL import Image

__all__ = ["encode_jpeg", "file_content", "open_image", "pixels_of"]

#: Pillow's modes of more than 8 bits a colour, which it would cut instead of scaling them.
_DEEP_MODES = ("I", "F")


def file_content(value: Any) -> bytes | None:
    """Give the bytes of an image file that was given as such or by its path.

    Parameters
    ----------
    value : object
        Bytes, a path, or something else.

    Returns
    -------
    bytes or None
        None if `value` is neither.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        with open(value, "rb") as file:
            return file.read()
    return None


def pixels_of(value: Any) -> NDArray[np.uint8]:
    """Give the pixels of an image.

    Parameters
    ----------
    value : bytes, PIL.Image.Image or ndarray of uint8, shape (H, W, 3)
        An image file, an image of Pillow in any mode of 8 bits, or RGB pixels.
        Gray, palette and CMYK images become RGB, transparency is dropped, and
        EXIF orientation is not applied, as in torchvision.

    Returns
    -------
    ndarray of uint8, shape (H, W, 3)
        RGB, in C order.

    Raises
    ------
    TypeError
        If `value` is something else.
    ValueError
        If it is an array of another shape or dtype, or has more than 8 bits a colour.
    OSError
        If the file is damaged or of an unknown kind.
    """
    from PIL import Image

    if isinstance(value, bytes):
        with open_image(value) as image:
            return _pixels_of_pillow(image)
    if isinstance(value, Image.Image):
        return _pixels_of_pillow(value)
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"an image of type {type(value).__name__}, expected a PIL.Image, a uint8 array of shape (H, W, 3), "
            "or an image file as bytes or path"
        )
    if value.dtype != np.uint8:
        raise ValueError(f"an image of dtype {value.dtype}, expected uint8 with values from 0 to 255")
    if value.ndim != 3 or value.shape[2] != 3 or 0 in value.shape:
        raise ValueError(f"an image of shape {value.shape}, expected (height, width, 3)")
    return np.ascontiguousarray(value)


def encode_jpeg(pixels: NDArray[np.uint8], quality: int) -> bytes:
    """Compress an image to a baseline JPEG file with 4:2:0 chroma.

    The bytes are those that OpenCV writes, which FFCV uses.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (H, W, 3)
        RGB, in C order.
    quality : int
        1 to 100.

    Returns
    -------
    bytes
        The file.

    Raises
    ------
    OSError
        If a side has more pixels than JPEG can say.
    """
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality, subsampling="4:2:0")
    return file.getvalue()


def open_image(content: bytes) -> Image.Image:
    """Open an image file of any kind that Pillow decodes by itself, as far as its header.

    Parameters
    ----------
    content : bytes
        The file.

    Returns
    -------
    PIL.Image.Image
        The image, not decoded yet.

    Raises
    ------
    OSError
        If it is of no such kind.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(content))
        if image.format == "EPS":
            # A program in PostScript, which Pillow has Ghostscript run.
            raise UnidentifiedImageError("EPS")
    except UnidentifiedImageError as error:
        # Pillow names the object in memory, which is another one each time.
        raise UnidentifiedImageError(
            f"no image of a kind that Pillow knows; its {len(content)} bytes begin with {content[:8]!r}"
        ) from error
    return image


def _pixels_of_pillow(image: Image.Image) -> NDArray[np.uint8]:
    if image.mode.partition(";")[0] in _DEEP_MODES:
        raise ValueError(
            f"an image of mode {image.mode}, which has more than 8 bits a colour; "
            "scale it to 0..255 before, or keep it in an ImageField of 16 bits"
        )
    # convert() copies an image that is RGB already.
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
