"""The JPEGs that the crop decoder refuses: libjpeg-turbo, in simplejpeg, has the last word on them."""

from __future__ import annotations

import ctypes

import numpy as np

from gpubeton.cpu.types import Array


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
    height, width, _ = _header(data)
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
    _, _, colours = _header(data)
    if colours in {"CMYK", "YCCK"}:
        return _rgb_of_cmyk(_decode(data, "CMYK"))
    return _decode(data, "RGB")


def _header(data: bytes) -> tuple[int, int, str]:
    import simplejpeg

    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError as error:
        raise UndecodableError(f"libjpeg-turbo: {error}") from error
    return height, width, colours


def _decode(data: bytes, colours: str) -> Array:
    import simplejpeg

    try:
        # Strict: what libjpeg-turbo would only warn about (and patch with gray) is an error.
        pixels: Array = simplejpeg.decode_jpeg(data, colorspace=colours, strict=True)
    except ValueError as error:
        raise UndecodableError(f"libjpeg-turbo: {error}") from error
    return pixels


def _rgb_of_cmyk(inks: Array) -> Array:
    """Turn inks, inverted as all programs write them into JPEGs, into RGB as Pillow does."""
    from PIL import Image

    image = Image.frombytes("CMYK", (inks.shape[1], inks.shape[0]), np.bitwise_not(inks).tobytes())
    return np.ascontiguousarray(image.convert("RGB"))
