"""The JPEGs that the crop decoder refuses: libjpeg-turbo, in simplejpeg, has the last word on them."""

from __future__ import annotations

import ctypes
import io
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.cpu.types import Array

if TYPE_CHECKING:
    from PIL.JpegImagePlugin import JpegImageFile

# What Pillow raises over a damaged file, its warnings included for those who have warnings raised.
_PILLOW_FAULTS = (OSError, SyntaxError, ValueError, Warning)


class UndecodableError(Exception):
    """Nobody can decode this image; the message says why. Never leaves `gpubeton.cpu`."""


def bytes_at(address: int, size: int) -> bytes:
    """Return a copy of `size` bytes of memory."""
    return ctypes.string_at(address, size)


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return the height and width in pixels that a JPEG's header states.

    Parameters
    ----------
    data : bytes
        The file.

    Returns
    -------
    tuple of int
        Height and width.

    Raises
    ------
    UndecodableError
        If it has no sound header.
    """
    import simplejpeg

    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError as error:
        image = _open_with_pillow(data, error)
        return image.height, image.width
    return height, width


def decode_rgb(data: bytes) -> Array:
    """Decode a whole JPEG of any kind.

    Parameters
    ----------
    data : bytes
        The file. Its header decides how much memory that takes: look at `jpeg_size` first.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3), C-contiguous
        RGB.

    Raises
    ------
    UndecodableError
        If the data are damaged in any way, or of a kind that the libraries do not know (12-bit, lossless).
    """
    import simplejpeg

    try:
        _, _, colours, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError as error:
        return _decode_with_pillow(data, error)
    try:
        # Strict: what libjpeg-turbo would only warn about (and patch with gray) is an error.
        if colours in {"CMYK", "YCCK"}:
            return _rgb_of_cmyk(simplejpeg.decode_jpeg(data, colorspace="CMYK", strict=True))
        pixels: Array = simplejpeg.decode_jpeg(data, colorspace="RGB", strict=True)
    except ValueError as error:
        raise UndecodableError(f"libjpeg-turbo: {error}") from error
    return pixels


def decode_gray(data: bytes) -> Array:
    """Decode a whole JPEG of one component, or the brightness of one of any kind.

    Parameters
    ----------
    data : bytes
        The file; as for `decode_rgb`.

    Returns
    -------
    ndarray of uint8, shape (height, width, 1), C-contiguous
        Gray.

    Raises
    ------
    UndecodableError
        If the data are damaged in any way, or of a kind that the libraries do not know (12-bit, lossless).
    """
    import simplejpeg

    try:
        _, _, colours, _ = simplejpeg.decode_jpeg_header(data)
        if colours in {"Gray", "YCbCr"}:
            pixels: Array = simplejpeg.decode_jpeg(data, colorspace="GRAY", strict=True)
            return pixels
    except ValueError as error:
        raise UndecodableError(f"libjpeg-turbo: {error}") from error
    from PIL import Image

    return np.ascontiguousarray(Image.fromarray(decode_rgb(data)).convert("L"))[..., None]


def _rgb_of_cmyk(inks: Array) -> Array:
    """Turn inks, inverted as all programs write them into JPEGs, into RGB as Pillow does."""
    from PIL import Image

    image = Image.frombytes("CMYK", (inks.shape[1], inks.shape[0]), np.bitwise_not(inks).tobytes())
    return np.ascontiguousarray(image.convert("RGB"))


def _open_with_pillow(data: bytes, refusal: ValueError) -> JpegImageFile:
    """Open what simplejpeg has no name for: it knows six ways to sample chroma, libjpeg-turbo itself knows all.

    Not by ``Image.open``, which warns about large images and looks for others behind the first.
    """
    from PIL.JpegImagePlugin import JpegImageFile

    try:
        return JpegImageFile(io.BytesIO(data))
    except _PILLOW_FAULTS as error:
        raise UndecodableError(f"libjpeg-turbo: {refusal}; Pillow: {error}") from error


def _decode_with_pillow(data: bytes, refusal: ValueError) -> Array:
    image = _open_with_pillow(data, refusal)
    try:
        return np.ascontiguousarray(image.convert("RGB"))
    except _PILLOW_FAULTS as error:
        raise UndecodableError(f"Pillow: {error}") from error
