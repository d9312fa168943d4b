"""Fallback for JPEGs that the crop decoder refuses: libjpeg-turbo (simplejpeg) decides whether they are damaged.

It is strict: an image that libjpeg-turbo would warn about and patch with gray is damaged. Metadata and stray bytes
between the header's segments change no pixel, so they are removed before a library gets the file.
"""

from __future__ import annotations

import ctypes
import io
import re
import zlib
from typing import TYPE_CHECKING

import numpy as np

from gpubeton._cpu.jpeg.codes import OK, REASONS
from gpubeton.fields.jpeg_markers import HARMLESS_PIXELS, JPEG_START, PIXELS_A_BYTE, JpegFrame, read_frame

if TYPE_CHECKING:
    from gpubeton._cpu.intrinsics import Array

# Luma sampling, across and down, that TurboJPEG has a name for, if chroma is sampled by 1 x 1.
_NAMED_SAMPLINGS = frozenset({(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4)})

_MARKER = re.compile(rb"\xff([^\x00\xff])", re.DOTALL)
_TEM, _RST0, _SOI, _EOI, _SOS, _APP0, _APP14, _APP15, _COM = 0x01, 0xD0, 0xD8, 0xD9, 0xDA, 0xE0, 0xEE, 0xEF, 0xFE
_SEQUENTIAL = (0xC0, 0xC1)
_JFIF_SEGMENT = b"\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
# First and last coefficient and bit positions of a scan. Sequential files have no others; some have zeros there.
_SEQUENTIAL_SCAN = b"\x00\x3f\x00"


class UndecodableError(Exception):
    """No library decodes this image; the message gives the reason. Never leaves `gpubeton._cpu`."""


def bytes_at(address: int, size: int) -> bytes:
    """Return a copy of `size` bytes of memory."""
    return ctypes.string_at(address, size)


def describe_damage(address: int, size: int, checksum: int) -> str:
    """Tell how a region of memory differs from its checksum."""
    return f"its {size} bytes have the CRC-32 {zlib.crc32(bytes_at(address, size)):08x}, expected {checksum:08x}"


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Return the height and width of a JPEG from its header; refuse more pixels than its bytes can hold."""
    _, frame = _read_header(data)
    return frame.height, frame.width


def decode_rgb(data: bytes) -> Array:  # (height, width, 3) uint8, C-contiguous
    """Decode a whole JPEG of any kind."""
    # Raises UndecodableError if the data are damaged, of a kind that no library knows (12-bit, lossless), or too large.
    content, frame = _read_header(data)
    if len(frame.components) == 4:
        return _rgb_of_cmyk(_decode(content, frame, "CMYK"))
    return _decode(content, frame, "RGB")


def decode_gray(data: bytes) -> Array:  # (height, width, 1) uint8, C-contiguous
    """Decode a whole gray JPEG, or the brightness of any other; raises as `decode_rgb`."""
    content, frame = _read_header(data)
    if len(frame.components) == 1 or (frame.is_ycbcr and _is_named(frame)):
        return _decode(content, frame, "GRAY")
    from PIL import Image

    return np.ascontiguousarray(Image.fromarray(decode_rgb(data)).convert("L"))[..., None]


def _read_header(data: bytes) -> tuple[bytes, JpegFrame]:
    """Return the file without the bytes that change no pixel, and its header."""
    content = _essentials(data)
    frame = read_frame(content)
    if frame is None:
        raise UndecodableError("its headers are damaged or end before the compressed data")
    pixels = frame.height * frame.width
    if pixels > max(HARMLESS_PIXELS, PIXELS_A_BYTE * len(data)):
        raise UndecodableError(
            f"its header claims {frame.height} x {frame.width} pixels, but {len(data)} bytes hold at most "
            f"{PIXELS_A_BYTE} pixels each"
        )
    return content, frame


def _essentials(data: bytes) -> bytes:
    """Remove what changes no pixel: metadata (COM, and APPn except JFIF and Adobe) and bytes between segments."""
    # libjpeg-turbo warns of these, and a strict caller cannot distinguish such a warning from one about the image.
    if data[:2] != JPEG_START:
        raise UndecodableError(f"no JPEG file: it begins with {data[:2]!r}, expected {JPEG_START!r}")
    kept = [JPEG_START]
    position = len(JPEG_START)
    is_sequential = False
    while found := _MARKER.search(data, position):
        marker, body = found[1][0], found.end() + 2
        if marker in {_SOI, _EOI, _SOS}:
            end = found.end() + int.from_bytes(data[found.end() : body], "big")
            if marker == _SOS and is_sequential and end >= body + 3:
                return b"".join([*kept, data[found.start() : end - 3], _SEQUENTIAL_SCAN, data[end:]])
            return b"".join([*kept, data[found.start() :]])
        if marker == _TEM or _RST0 <= marker < _SOI:  # no length follows
            position = found.end()
            continue
        is_sequential = is_sequential or marker in _SEQUENTIAL
        position = found.end() + max(2, int.from_bytes(data[found.end() : body], "big"))
        if marker == _APP0 and data[body : body + 5] == b"JFIF\0" and position - body >= 14:
            kept.append(_JFIF_SEGMENT)
        elif not (_APP0 <= marker <= _APP15 or marker == _COM) or (
            marker == _APP14 and data[body : body + 5] == b"Adobe"
        ):
            kept.append(data[found.start() : position])
    raise UndecodableError("its headers end before the compressed data")


def _is_named(frame: JpegFrame) -> bool:
    """Return True if TurboJPEG has a name for the chroma sampling; without one it decodes nothing."""
    return len(frame.sampling) != 3 or (
        frame.sampling[0] in _NAMED_SAMPLINGS and frame.sampling[1:] == ((1, 1), (1, 1))
    )


def _decode(content: bytes, frame: JpegFrame, colorspace: str) -> Array:
    """Decode by libjpeg-turbo, or by Pillow if simplejpeg has no name for the sampling."""
    import simplejpeg

    try:
        pixels: Array = simplejpeg.decode_jpeg(content, colorspace=colorspace, strict=True)
    except Exception as error:  # any error concerns only this image, a MemoryError too
        if _is_named(frame):
            raise UndecodableError(f"libjpeg-turbo: {_text(error)}") from error
        return _decode_with_pillow(content, error)
    return pixels


def _decode_with_pillow(content: bytes, refusal: Exception) -> Array:
    """Decode a baseline JPEG of unusual sampling; check its data first, since Pillow ignores libjpeg's warnings."""
    from PIL.JpegImagePlugin import JpegImageFile

    from gpubeton._cpu.jpeg.picture import check_scan

    code = check_scan(content)
    if code != OK:
        raise UndecodableError(f"libjpeg-turbo: {_text(refusal)}; a strict check of its data: {REASONS[code]}")
    try:
        # Not by `Image.open`, which warns about large images.
        return np.ascontiguousarray(JpegImageFile(io.BytesIO(content)).convert("RGB"))
    except Exception as error:
        raise UndecodableError(f"libjpeg-turbo: {_text(refusal)}; Pillow: {_text(error)}") from error


def _text(error: Exception) -> str:
    """Return a library's message, with the class of the error unless it is about the data."""
    return str(error) if isinstance(error, (OSError, ValueError)) else f"{type(error).__name__}: {error}"


def _rgb_of_cmyk(inks: Array) -> Array:
    """Convert CMYK, which JPEGs store inverted, to RGB as Pillow does."""
    from PIL import Image

    image = Image.frombytes("CMYK", (inks.shape[1], inks.shape[0]), np.bitwise_not(inks).tobytes())
    return np.ascontiguousarray(image.convert("RGB"))
