"""The JPEGs that the crop decoder refuses: libjpeg-turbo (in simplejpeg) and Pillow have the last word on them."""

from __future__ import annotations

import ctypes
import io

import numpy as np

from gpubeton.cpu.types import Array


class UndecodableError(Exception):
    """Nobody can decode this image; the message says why. Never leaves `gpubeton.cpu`."""


def bytes_at(address: int, size: int) -> bytes:
    """Return a copy of `size` bytes of memory."""
    return ctypes.string_at(address, size)


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return the height and width in pixels that a sound JPEG's header states."""
    import simplejpeg

    height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    return height, width


def decode_rgb(data: bytes) -> Array:
    """Decode a whole JPEG of any kind.

    Parameters
    ----------
    data : bytes
        The file.

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
        if colours in ("CMYK", "YCCK"):
            return _decode_with_pillow(data)
        # Strict: what libjpeg-turbo would only warn about (and patch with gray) is an error.
        pixels: Array = simplejpeg.decode_jpeg(data, colorspace="RGB", strict=True)
    except ValueError as error:
        raise UndecodableError(f"libjpeg-turbo: {error}") from error
    return pixels


def _decode_with_pillow(data: bytes) -> Array:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
            return np.ascontiguousarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise UndecodableError(f"Pillow: {error}") from error
