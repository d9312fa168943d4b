"""Settings: how the samples of a source are stored in a file. ValidatedSource: which can be, and what they lose."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._writing import checked_page_size
from gpubeton.errors import BadImageError, OptionError
from gpubeton.fields import FloatField, ImageField, IntField, RGBImageField
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
from gpubeton.format.field_arguments import IMAGE_KINDS, RGB, ImageKind
from gpubeton.format.layout import PAGE_SIZE_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray
    from PIL import Image

    from gpubeton._sources import Source
    from gpubeton.fields.base import Field

_GRAY_MODES = ("1", "L", "LA", "La", "I", "F")
_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_BITS_PER_SAMPLE = 258
"""TIFF's tag (TIFF 6.0, section 8)."""
_PNG_BITS = 24
"""Offset of the bits in a PNG file: after its signature, the first chunk's head, width and height."""


@dataclass(frozen=True)
class Settings:
    """How the samples of a source are stored in a file.

    The same settings and samples give the same file, byte for byte. One that is out of its range is an `OptionError`.

    Parameters
    ----------
    write_mode : {"jpg", "raw", "smart", "proportion", "png"}, optional
        How images are stored, see `RGBImageField` and `ImageField`. By default "jpg" in mode "rgb", and "png", which
        is lossless, in all others. With "jpg", JPEG files that fit are stored as they are, with "png" PNG files.
    max_resolution : int, optional
        Longest side in pixels; larger images are made smaller.
    quality : int
        1 to 100, for images that are encoded.
    smart_threshold : int, optional
        For "smart": images of more bytes as raw pixels are stored as JPEG.
    compress_probability : float
        For "proportion": share of the images that are stored as JPEG.
    page_size : int
        Bytes of a page.
    shuffle : bool
        Whether the samples are shuffled, by `seed`.
    seed : int
        For `shuffle` and "proportion".
    limit : int, optional
        Maximum number of samples; the first ones (after shuffling) are taken.
    check : bool
        Whether to decode JPEG files that are stored as they are, to find damaged ones. This takes most of the time of
        such a conversion.
    mode : {"rgb", "gray", "rgba", "gray16", "rgb16", "rgba16"}
        The kind of images in the file. "rgb" uses FFCV's field, all others use `ImageField`. In "gray", images with a
        palette keep their numbers, which are labels in masks.
    interpolation : {"area", "nearest"}
        How larger images are made smaller: by averaging, or, for masks, by choosing pixels; in mode "rgb" by averaging.
    index : bool
        Whether to store entry points of the JPEG files of mode "rgb", about 2 % of their bytes, so that loaders decode
        only what a crop needs.
    apply_orientation : bool
        Whether to mirror and turn images by the orientation in their EXIF data, which encodes them again. By default
        it is ignored, as in torchvision and FFCV.
    strip_metadata : bool
        Whether to remove EXIF, XMP, comments and the bytes after the image from JPEG and PNG files that are stored as
        they are. The encoded pixels and color profiles stay.

    Examples
    --------
    >>> Settings().write_mode, Settings(mode="gray16").write_mode
    ('jpg', 'png')
    """

    write_mode: str = ""
    max_resolution: int | None = None
    quality: int = 90
    smart_threshold: int | None = None
    compress_probability: float = 0.5
    page_size: int = PAGE_SIZE_DEFAULT
    shuffle: bool = False
    seed: int = 0
    limit: int | None = None
    check: bool = True
    mode: str = "rgb"
    interpolation: str = "area"
    index: bool = True
    apply_orientation: bool = False
    strip_metadata: bool = False

    def __post_init__(self) -> None:
        if not self.write_mode:
            object.__setattr__(self, "write_mode", "jpg" if self.mode == "rgb" else "png")
        if self.mode not in IMAGE_KINDS:
            raise OptionError(f"mode is {self.mode!r}, expected one of {', '.join(IMAGE_KINDS)}")
        if self.mode == "rgb" and self.interpolation != "area":
            raise OptionError(
                f"interpolation is {self.interpolation!r}, but images of mode 'rgb' are made smaller by averaging: "
                "expected 'area', or another mode"
            )
        image_field_of(self)  # checks the options of images
        if self.limit is not None and self.limit < 1:
            raise OptionError(f"limit is {self.limit}, expected at least 1")
        checked_page_size(self.page_size)
        if self.write_mode == "smart" and self.smart_threshold is None:
            raise OptionError("write_mode is 'smart', which needs smart_threshold: bytes as raw pixels, e.g. 200000")

    @property
    def kind(self) -> ImageKind:
        """The kind of images that `mode` names."""
        return IMAGE_KINDS[self.mode]


def image_field_of(settings: Settings) -> RGBImageField | ImageField:
    """Make the field of images."""
    options = (
        settings.write_mode, settings.max_resolution, settings.smart_threshold, settings.quality,
        settings.compress_probability,
    )  # fmt: skip
    if settings.mode == "rgb":
        return RGBImageField(*options, seed=settings.seed)
    return ImageField(settings.mode, *options, seed=settings.seed, interpolation=settings.interpolation)


def fields_of(settings: Settings, kinds: dict[str, str]) -> dict[str, Field]:
    """Make the fields of the file, by the kinds of those after the image: "int" or "float"."""
    others: dict[str, Field] = {name: IntField() if kind == "int" else FloatField() for name, kind in kinds.items()}
    return {"image": image_field_of(settings), **others}


def to_json(settings: Settings) -> dict[str, Any]:
    """Convert settings to values that JSON can hold: newer settings only if they are not default."""
    stored = asdict(settings)
    if settings.mode == "rgb":
        del stored["mode"], stored["interpolation"]
    for name in ("apply_orientation", "strip_metadata"):
        if not stored[name]:
            del stored[name]
    return stored


def choose_samples(count: int, settings: Settings) -> NDArray[np.int64]:
    """Choose the samples of a source, (N,), in the order of the rows of the file."""
    order = np.random.default_rng(settings.seed).permutation(count) if settings.shuffle else np.arange(count)
    return order[: settings.limit]


# --- samples that can be stored so


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
            opened = _opened(content)
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


def _opened(content: bytes) -> Image.Image | None:
    """Open the file of an image and read its header; None if it is not an image."""
    try:
        return open_image(content)
    except (OSError, SyntaxError, ValueError):
        return None
