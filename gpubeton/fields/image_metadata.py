"""Metadata of image files: the orientation and the position that cameras write, and their removal."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.fields.jpeg_markers import APP0, APP14, EOI, JPEG_START, SOS, pieces
from gpubeton.fields.png import PNG_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray
    from PIL import Image

_APP1, _APP2, _APP15, _COM = 0xE1, 0xE2, 0xEF, 0xFE
_EXIF = b"Exif\0\0"
#: Tags of EXIF (CIPA DC-008), and in its GPS part.
_ORIENTATION, _GPS, _LATITUDE = 0x0112, 0x8825, 2
#: What XMP calls a position.
_XMP_POSITION = b"GPSLatitude"
#: What decoding needs, or the meaning of colors: JFIF, color profiles, Adobe's color transform.
_KEPT = {APP0: b"JFIF\0", _APP2: b"ICC_PROFILE\0", APP14: b"Adobe"}
_PNG_METADATA = (b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME")


@dataclass(frozen=True)
class ImageMetadata:
    """Facts that a camera has written beside the pixels."""

    orientation: int = 1  # as EXIF numbers them: 1 upright, 2 to 8 mirrored or turned
    has_position: bool = False


def read_metadata(content: bytes | None, image: Image.Image | None) -> ImageMetadata:
    """Read the metadata of a JPEG file, by its content, or of an image that Pillow has opened."""
    if image is not None:
        return _of_exif(image.getexif)
    content, orientation, has_position = content or b"", 1, False
    for marker, start, stop in pieces(content):
        if marker == SOS:
            break
        body = content[start + 4 : stop]
        if marker == _APP1 and body.startswith(_EXIF):
            found = _of_bytes(body)
            orientation, has_position = found.orientation, has_position or found.has_position
        elif marker == _APP1 and _XMP_POSITION in body:
            has_position = True
    return ImageMetadata(orientation, has_position)


def without_metadata(content: bytes) -> bytes:
    """Remove the metadata of a JPEG or PNG file, and bytes after its image; the encoded pixels stay, bit for bit."""
    if content.startswith(PNG_SIGNATURE):
        return PNG_SIGNATURE + b"".join(chunk for name, chunk in _chunks(content) if name not in _PNG_METADATA)
    kept, marker = [JPEG_START], 0
    for marker, start, stop in pieces(content):
        is_metadata = marker == _COM or APP0 <= marker <= _APP15
        if not is_metadata or (marker in _KEPT and content.startswith(_KEPT[marker], start + 4, stop)):
            kept.append(content[start:stop])
    if marker != EOI:
        raise ValueError("a JPEG file whose markers cannot be read to its end, so that its metadata cannot be removed")
    return b"".join(kept)


def upright(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Mirror and turn pixels, (H, W, ...), as an orientation of EXIF demands."""
    if orientation >= 5:  # rows and columns are exchanged
        pixels = pixels.swapaxes(0, 1)
    down = -1 if orientation in (3, 4, 7, 8) else 1
    across = -1 if orientation in (2, 3, 6, 7) else 1
    return np.ascontiguousarray(pixels[::down, ::across])


def _of_bytes(exif: bytes) -> ImageMetadata:
    from PIL import Image

    def load() -> Image.Exif:
        found = Image.Exif()
        found.load(exif)
        return found

    return _of_exif(load)


def _of_exif(load: Callable[[], Image.Exif]) -> ImageMetadata:
    # Pillow raises many kinds of errors and warnings for damaged EXIF data, which is no damage to the image.
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        exif = load()
        orientation = exif.get(_ORIENTATION, 1)
        return ImageMetadata(orientation if orientation in range(1, 9) else 1, _LATITUDE in exif.get_ifd(_GPS))
    return ImageMetadata()


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Divide a PNG file into its chunks."""
    position, name = len(PNG_SIGNATURE), b""
    while name != b"IEND" and position + 12 <= len(content):
        stop = position + 12 + int.from_bytes(content[position : position + 4], "big")
        name = content[position + 4 : position + 8]
        yield name, content[position:stop]
        position = stop
