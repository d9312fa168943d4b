"""ValidatedSource: reads and checks the images of a source, and finds out what a file of a given kind cannot hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import BadImageError
from gpubeton.fields.codecs import JPEG, codec_of
from gpubeton.fields.jpeg import JpegFrame, decode_rgb, read_frame
from gpubeton.fields.pixels import (
    file_content,
    fitted_size,
    open_image,
    pixels_of,
    read_metadata,
    rgb_pixels_of,
    upright,
)
from gpubeton.format.field_arguments import RGB, ImageKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from PIL import Image

    from gpubeton._sources import Source
    from gpubeton.dataset.file_settings import Settings

_GRAY_MODES = ("1", "L", "LA", "La", "I", "F")
_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_BITS_PER_SAMPLE = 258
"""TIFF's tag (TIFF 6.0, section 8)."""
_PNG_BITS = 24
"""Offset of the bits in a PNG file: after its signature, the first chunk's head, width and height."""


@dataclass(frozen=True)
class ImageProperties:
    """The properties of an image that its header shows."""

    channels: int  # 1 for gray, 3 for colors
    bits: int = 8  # of a channel: 8, or 16 for anything above
    has_alpha: bool = False
    has_palette: bool = False
    is_float: bool = False
    # The largest number is neither 255 nor 65535, and Pillow scales all numbers to one of these: gray images of 1, 2 or
    # 4 bits, and PGM and PPM files that name another number.
    is_scaled: bool = False

    @classmethod
    def of_pillow(cls, image: Image.Image, content: bytes = b"") -> ImageProperties:
        """Read those of an image that Pillow has opened; `content` is its file, if there is one."""
        mode = image.mode.partition(";")[0]
        largest = _largest(image, content)
        bits = largest.bit_length()
        return cls(
            1 if mode in _GRAY_MODES else 3,
            16 if bits > 8 or mode in ("I", "F") else 8,
            has_alpha=mode in _ALPHA_MODES or "transparency" in image.info,
            has_palette=mode == "P",
            is_float=mode == "F",
            is_scaled=mode == "1"
            or (mode in ("L", "LA", "RGB") and largest < 255)
            or (image.format == "PPM" and largest not in (255, 65535)),
        )

    def changes(self, kind: ImageKind) -> list[str]:
        """List what such an image loses in a file of a kind, by the names of `Conversion.changed`."""
        if kind.channels == 1 and self.has_palette:
            return ["palette"]
        lost = {
            "colours": kind.channels == 1 and self.channels == 3,
            "alpha": self.has_alpha and not kind.has_alpha,
            "bits": self.bits > kind.bits,
            "levels": kind.channels == 1 and self.channels == 1 and self.is_scaled,
        }
        return [name for name, is_lost in lost.items() if is_lost]

    def refusal(self, kind: ImageKind) -> str | None:
        """Explain why such an image cannot be in a file of a kind; None if it can, perhaps with losses."""
        if self.is_float:
            return "an image of floats, which no mode holds; scale them to whole numbers of 16 bits before"
        if kind.bits == 16:
            fits = self._mode() == kind.name
        else:
            # Pillow cuts 16 bits to 8, except in gray images. Mode "rgb" accepts that, and counts it.
            fits = self.bits == 8 or (kind == RGB and (self.channels == 3 or self.has_alpha))
        if fits:
            return None
        image, mode = f"an image of {self.bits} bits a channel", self._mode()
        if self.bits == kind.bits:
            image = f"an image of kind {mode}"
        reason = ", and 8 bits made 16 would mean something else" if self.bits < kind.bits else ""
        return (
            f"{image}, but the mode is {kind.name}{reason}. Mode {mode} takes such images (mode={mode!r}; --mode "
            f"{mode} of the command)"
        )

    def _mode(self) -> str:
        """Name the mode that holds such images, without a gray value that means transparent."""
        if self.channels == 1 or self.has_palette:
            return "gray16" if self.bits > 8 else "gray"
        return ("rgba" if self.has_alpha else "rgb") + ("16" if self.bits > 8 else "")


def _largest(image: Image.Image, content: bytes) -> int:
    """Find the largest number that a channel of a file can have; 255 where it names none."""
    # Pillow cuts colors of 16 bits without a warning: the file itself shows them.
    if image.format == "PNG" and len(content) > _PNG_BITS:
        return (1 << content[_PNG_BITS]) - 1
    if image.format == "TIFF":
        bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, 8)
        return (1 << (max(bits) if isinstance(bits, tuple) else int(bits))) - 1
    tile = getattr(image, "tile", None)  # of an image that is not decoded yet
    if image.format == "PPM" and image.mode in ("L", "I", "RGB") and tile:
        arguments = tile[0][3]  # of Pillow's decoder; the largest number is among them, if it has to scale
        if isinstance(arguments, tuple):
            return next((number for number in arguments if isinstance(number, int)), 255)
    return 255


class ValidatedSource:
    """The samples of a source with checked images; notes what images lose until `take_changes` is called."""

    # A JPEG file is decoded strictly: damage of which libjpeg only warns, and which it fills with gray, is an error
    # here. So is a PNG file with a wrong checksum, except in mode "rgb", which leaves PNG files to Pillow.

    def __init__(self, source: Source, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        self._kind = settings.kind
        self._changes: dict[int, list[str]] = {}

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Give a sample: its image, as the content of a file or as pixels, and its other values."""
        image, *others = self._source[index]
        content = file_content(image)
        frame = None if content is None else read_frame(content)
        opened: Any = None
        if content is None:
            opened = image
        elif frame is None:
            with suppress(OSError, SyntaxError, ValueError):  # not an image
                opened = open_image(content)
        if frame is not None:
            properties = ImageProperties(1 if len(frame.components) == 1 else 3)
        elif hasattr(opened, "getbands"):
            properties = ImageProperties.of_pillow(opened, content or b"")
        else:  # not an image of Pillow: the field checks it
            self._changes[index] = self._losses(frame)
            return (image if content is None else content, *others)
        refusal = properties.refusal(self._kind)
        if refusal is not None:
            raise ValueError(refusal)
        changes, value = properties.changes(self._kind) + self._losses(frame), image
        if frame is not None and content is not None:
            value = self._checked_jpeg(content, frame)
        elif "palette" in changes:
            value = self._palette_numbers(opened)
        elif content is not None:
            self._check_file(content)
            value = content
        metadata = read_metadata(content, opened)
        if metadata.orientation != 1:
            changes.append("turned" if self._settings.apply_orientation else "orientation")
            if self._settings.apply_orientation:
                value = upright(self._pixels(value, frame), metadata.orientation)
        if isinstance(value, bytes) and self._may_stay(value, frame):
            if self._settings.strip_metadata:
                codec = codec_of(value)
                assert codec is not None
                value = codec.strip(value)
            elif metadata.has_position:
                changes.append("position")
        self._changes[index] = changes
        return (value, *others)

    def take_changes(self, rows: Mapping[int, int], skipped: Collection[int] = ()) -> dict[str, list[int]]:
        """List the rows of the images that lost something since the last call, without rows that were left out."""
        changed: dict[str, list[int]] = {}
        for index, names in self._changes.items():
            for name in names if rows[index] not in skipped else ():
                changed.setdefault(name, []).append(rows[index])
        self._changes = {}
        return changed

    def _losses(self, frame: JpegFrame | None) -> list[str]:
        """List the loss of an image that has to be encoded as JPEG: another file, or a JPEG that decoders refuse."""
        return ["jpeg"] if self._settings.write_mode == "jpg" and not (frame and frame.is_baseline) else []

    def _may_stay(self, content: bytes, frame: JpegFrame | None) -> bool:
        """Whether a file may be stored as it is."""
        is_file = frame is not None or (self._kind != RGB and codec_of(content) not in (None, JPEG))
        return self._settings.write_mode != "raw" and is_file

    def _pixels(self, value: Any, frame: JpegFrame | None) -> Any:
        """Decode an image, unless it is decoded already."""
        if isinstance(value, np.ndarray):
            return value
        if self._kind != RGB:
            return pixels_of(value, self._kind)
        return rgb_pixels_of(value) if frame is None else decode_rgb(value)

    def _checked_jpeg(self, content: bytes, frame: JpegFrame) -> Any:
        """Decode a JPEG file if necessary; give the file, or its pixels where it has to be encoded again."""
        agrees = self._kind == RGB or (self._kind.channels == 1 and len(frame.components) == 1)
        stays = frame.is_baseline and agrees and self._keeps_size(frame.height, frame.width)
        if stays and not self._settings.check:
            return content
        try:
            pixels = decode_rgb(content)
        except BadImageError as error:
            raise ValueError(str(error)) from error
        if stays:
            return content
        if self._kind == RGB:
            return pixels
        from PIL import Image

        return Image.fromarray(pixels)

    def _check_file(self, content: bytes) -> None:
        codec = codec_of(content)
        if codec is not None and codec is not JPEG and self._kind != RGB and self._settings.check:
            header = codec.read_header(content)
            if header is None:
                raise ValueError(
                    f"a damaged {codec.name} file: it ends too early, or the checksum of a part of it is wrong"
                )
            if header.holds(self._kind):  # only then it may be stored as it is, without being decoded later
                codec.decode(content, self._kind, None)

    def _palette_numbers(self, image: Image.Image) -> Any:
        if self._settings.interpolation != "nearest" and not self._keeps_size(image.height, image.width):
            raise ValueError(
                f"an image with a palette, of {image.height} x {image.width} pixels, to be made smaller: means of "
                "palette numbers are not colors. Choose pixels instead (interpolation='nearest'; --interpolation "
                "nearest of the command)"
            )
        return np.asarray(image)

    def _keeps_size(self, height: int, width: int) -> bool:
        return fitted_size(height, width, self._settings.max_resolution) == (height, width)
