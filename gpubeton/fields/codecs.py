"""The table of codecs: the kinds of image files that can be stored, and how each is recognized, read and written.

To add one: a row in `CODECS` here, and its `ImageMode`, which names the images that it can hold, in
`gpubeton.format.layout`. Fields, loaders, checks and the endings that sources look for follow from these. The choices
of `--write-mode`, in `gpubeton.cli.convert_command`, are a list of names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from gpubeton.errors import BadImageError
from gpubeton.fields.jpeg import decode_jpeg, encode_jpeg, jpeg_size, read_frame, strip_jpeg
from gpubeton.fields.png import decode_png, encode_png, png_size, read_png_header, strip_png
from gpubeton.format.layout import ImageMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.format.field_arguments import ImageKind


class FileHeader(Protocol):
    """The properties of an image file that are known without decoding it."""

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    def holds(self, kind: ImageKind) -> bool:
        """Whether the file may be stored, as it is, as an image of a kind."""
        ...


@dataclass(frozen=True)
class Codec:
    """One kind of image files."""

    mode: ImageMode  # marks such images in a file; in lower case the codec's `write_mode`, and the ending of files
    name: str  # as messages and Pillow call it
    start: re.Pattern[bytes]  # matches the first bytes of such files
    read_header: Callable[[bytes], FileHeader | None]  # None for damaged and other files
    size: Callable[[bytes], tuple[int, int]]  # height and width; raises BadImageError
    # Decodes a whole file strictly, as an image of a kind (None: as itself) and size (None: any); raises BadImageError.
    decode: Callable[[bytes, ImageKind | None, tuple[int, int] | None], NDArray[Any]]
    encode: Callable[[NDArray[Any], int], bytes]  # of pixels (H, W, C) and a quality from 1 to 100
    strip: Callable[[bytes], bytes]  # removes metadata and changes no pixel
    has_crop_decoder: bool = False  # whether loaders decode parts of such images; of all others they decode the whole

    @property
    def suffix(self) -> str:
        """The ending of such files, without a dot; also the `write_mode` of fields."""
        return self.mode.name.lower()


JPEG = Codec(
    ImageMode.JPG,
    "JPEG",
    re.compile(rb"\xff\xd8"),
    read_frame,
    jpeg_size,
    decode_jpeg,
    encode_jpeg,
    strip_jpeg,
    has_crop_decoder=True,
)
PNG = Codec(
    ImageMode.PNG,
    "PNG",
    re.compile(rb"\x89PNG\r\n\x1a\n"),
    read_png_header,
    png_size,
    decode_png,
    lambda pixels, _: encode_png(pixels),  # without loss at any quality
    strip_png,
)

CODECS: dict[ImageMode, Codec] = {codec.mode: codec for codec in (JPEG, PNG)}
"""Every codec. A field that chooses by itself takes the first that holds its kind of images."""


def codecs_of(kind: ImageKind) -> list[Codec]:
    """List the codecs that hold images of a kind."""
    return [CODECS[mode] for mode in kind.modes if mode in CODECS]


def codec_of(content: bytes) -> Codec | None:
    """Recognize an image file by its first bytes."""
    return next((codec for codec in CODECS.values() if codec.start.match(content)), None)


def decode_file(content: bytes, kind: ImageKind, size: tuple[int, int]) -> NDArray[Any]:
    """Decode a stored file that should have pixels of a kind and a size; raise BadImageError."""
    codec = codec_of(content)
    if codec is None:
        names = ", ".join(codec.name for codec in CODECS.values())
        raise BadImageError(f"it begins with {content[:8]!r}, as none of these files does: {names}")
    return codec.decode(content, kind, size)
