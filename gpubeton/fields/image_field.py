"""The fields of images: RGB images as in FFCV, and images of any kind. The decoders are in `image_decoders`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.fields.area_average import fitted_size
from gpubeton.fields.base import Field, ImageColumn, Malloc, PlainField, as_arguments
from gpubeton.fields.image_codec import encode_jpeg, file_content, pixels_of, pixels_of_kind, reduced
from gpubeton.fields.image_decoders import ImageDecoder, SimpleRGBImageDecoder
from gpubeton.fields.jpeg_markers import read_frame
from gpubeton.fields.png import encode_png, read_png_header
from gpubeton.format.field_arguments import IMAGE_KINDS, RGB, ImageKind
from gpubeton.format.layout import IMAGE_DTYPE, FieldType, ImageMode
from gpubeton.pipeline.validation import check_choice, check_probability, check_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Operation

#: Width and height are stored in 16 bits. FFCV stores the low bits of a larger number.
_MAX_SIDE = 65535


class _StoredImages(Field):
    """Images as raw pixels or as files: the common part of the fields of images."""

    metadata_type = IMAGE_DTYPE
    interpolation = "area"

    def __init__(
        self,
        kind: ImageKind,
        write_mode: str,
        max_resolution: int | None,
        smart_threshold: int | None,
        jpeg_quality: int,
        compress_probability: float,
        seed: int,
    ) -> None:
        self._stored_kind = kind
        self.write_mode = write_mode
        self.max_resolution = None if max_resolution is None else check_whole("max_resolution", max_resolution, 1)
        self.smart_threshold = smart_threshold
        self.jpeg_quality = check_whole("jpeg_quality", int(jpeg_quality), 1, 100)
        self.proportion = check_probability("compress_probability", compress_probability)
        self.seed = check_whole("seed", seed)

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one image."""
        # `destination`: IMAGE_DTYPE (1,); `value`: PIL.Image.Image, ndarray, bytes, str or path
        content = file_content(value)
        found = None if content is None else self._size_and_mode(content)
        if content is not None and found is not None and max(found[:2]) <= _MAX_SIDE:
            height, width, own = found
            fits = fitted_size(height, width, self.max_resolution) == (height, width)
            if fits and self._choose_mode(height, width, malloc) is own:
                _store(destination, own, (height, width), np.frombuffer(content, np.uint8), malloc)
                return
        pixels = self._pixels(value if content is None else content)
        height, width = fitted_size(pixels.shape[0], pixels.shape[1], self.max_resolution)
        if max(height, width) > _MAX_SIDE:
            raise ValueError(
                f"an image of {height} x {width} pixels (height x width), but the format holds sides up to "
                f"{_MAX_SIDE}; use max_resolution"
            )
        pixels = reduced(pixels, height, width, self._stored_kind, self.interpolation)
        mode = self._choose_mode(height, width, malloc)
        _store(destination, mode, (height, width), self._encoded(pixels, mode), malloc)

    @abstractmethod
    def _size_and_mode(self, content: bytes) -> tuple[int, int, ImageMode] | None:
        """Height, width and mode of a file that may be stored as it is."""

    @abstractmethod
    def _pixels(self, value: Any) -> NDArray[Any]:
        """Pixels (H, W, C) of an image in any form."""

    def _encoded(self, pixels: NDArray[Any], mode: ImageMode) -> NDArray[np.uint8]:
        kind = self._stored_kind
        if mode is ImageMode.RAW:
            return pixels.astype(kind.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8)
        if mode is ImageMode.PNG:
            return np.frombuffer(encode_png(pixels), np.uint8)
        return np.frombuffer(encode_jpeg(pixels if kind is RGB else pixels[..., 0], self.jpeg_quality), np.uint8)

    def _choose_mode(self, height: int, width: int, malloc: Malloc) -> ImageMode:
        files = ImageMode.JPG if self._stored_kind.has_jpeg else ImageMode.PNG
        match self.write_mode:
            case "jpg" | "png":
                return ImageMode[self.write_mode.upper()]
            case "smart":
                raw_size = self._stored_kind.pixel_size * height * width
                is_file = self.smart_threshold is not None and raw_size > self.smart_threshold
            case "proportion":
                draw = np.random.Generator(np.random.Philox(key=self.seed, counter=malloc.sample)).random()
                is_file = bool(draw < self.proportion)
            case _:
                is_file = False
        return files if is_file else ImageMode.RAW


class ImageField(_StoredImages):
    """Images of one kind: gray, RGB or RGBA, of 8 or 16 bits.

    For RGB photos take `RGBImageField`, which FFCV reads too, and which GPUs decode. This one is for all else: masks
    and gray images (a third of the bytes), transparency, depth and other numbers of 16 bits, and images that have to
    be kept without loss. In the file it is a custom field (type 255) whose arguments name the kind: a loader knows it
    by itself.

    A value is a `PIL.Image.Image`, an array or tensor of the kind's type, uint8 or uint16, and shape (height, width,
    C), for gray images also (height, width), or an image file as bytes or path. A file that already is what the field
    wants is stored as it is, without being encoded again: a baseline JPEG, or a PNG of the same kind, not interlaced.
    Nothing is converted in silence that would lose bits or change what numbers mean.

    Parameters
    ----------
    mode : {"gray", "rgb", "rgba", "gray16", "rgb16", "rgba16"}
        The kind.
    write_mode : {"raw", "png", "jpg", "smart", "proportion"}
        raw
            Pixels. The fastest to read.
        png
            PNG files: smaller, without any loss. Right for masks.
        jpg
            JPEG files, for "gray" (of one component) and "rgb" only.
        smart
            Files for images of more than `smart_threshold` bytes as raw pixels, else raw. Files are JPEG where the
            kind has it, PNG otherwise.
        proportion
            Files for a share of `compress_probability` of the images, drawn from `seed` and the row, else raw.
    max_resolution, smart_threshold, jpeg_quality, compress_probability, seed
        As for `RGBImageField`.
    interpolation : {"area", "nearest"}
        How larger images are made smaller: by averaging, or, for masks, by picking pixels.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Examples
    --------
    >>> mask = ImageField("gray", write_mode="png", max_resolution=512, interpolation="nearest")
    >>> mask.kind.channels, ImageField.from_binary(np.frombuffer(mask.to_binary().tobytes(), "u1")).kind.name
    (1, 'gray')
    """

    def __init__(
        self,
        mode: str = "gray",
        write_mode: str = "raw",
        max_resolution: int | None = None,
        smart_threshold: int | None = None,
        jpeg_quality: int = 90,
        compress_probability: float = 0.5,
        *,
        seed: int = 0,
        interpolation: str = "area",
    ) -> None:
        self.kind: ImageKind = IMAGE_KINDS[check_choice("mode", mode, IMAGE_KINDS)]
        check_choice("write_mode", write_mode, ("raw", "png", "jpg", "smart", "proportion"))
        if write_mode == "jpg" and not self.kind.has_jpeg:
            raise OptionError(f"write_mode is 'jpg', which cannot hold images of kind {mode}; expected 'png' or 'raw'")
        options = write_mode, max_resolution, smart_threshold, jpeg_quality, compress_probability, seed
        super().__init__(self.kind, *options)
        self.interpolation = check_choice("interpolation", interpolation, ("area", "nearest"))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(mode={self.kind.name!r}, write_mode={self.write_mode!r}, "
            f"max_resolution={self.max_resolution})"
        )

    @classmethod
    def from_binary(cls, binary: NDArray[np.uint8]) -> ImageField:
        """Make the field from the kind that a file names; FieldArgumentsError if it names none."""
        return cls(ImageKind.from_bytes(binary.tobytes()).name)

    def to_binary(self) -> np.void:
        """Give the kind, and whether the class is derived from this one."""
        return as_arguments(self.kind.to_bytes(is_derived=type(self) is not ImageField))

    def images(self, column: NDArray[Any]) -> ImageColumn:
        mode, height, width = (column[name].copy() for name in ("mode", "height", "width"))
        return ImageColumn(mode, height, width, self.kind, gpu_decodes=False)

    def get_decoder_class(self) -> type[Operation]:
        return ImageDecoder

    def _size_and_mode(self, content: bytes) -> tuple[int, int, ImageMode] | None:
        frame, header = read_frame(content), read_png_header(content)
        components = (1,) if self.kind.channels == 1 else (1, 3)
        if frame is not None and frame.is_plain and self.kind.has_jpeg and len(frame.components) in components:
            return frame.height, frame.width, ImageMode.JPG
        if header is not None and header.holds(self.kind):
            return header.height, header.width, ImageMode.PNG
        return None

    def _pixels(self, value: Any) -> NDArray[Any]:
        return pixels_of_kind(value, self.kind)


class RGBImageField(_StoredImages, PlainField):
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

    type_id = FieldType.RGB_IMAGE

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
        check_choice("write_mode", write_mode, ("raw", "jpg", "smart", "proportion"))
        options = write_mode, max_resolution, smart_threshold, jpeg_quality, compress_probability, seed
        super().__init__(RGB, *options)

    def __repr__(self) -> str:
        return (
            f"RGBImageField(write_mode={self.write_mode!r}, max_resolution={self.max_resolution}, "
            f"jpeg_quality={self.jpeg_quality})"
        )

    def images(self, column: NDArray[Any]) -> ImageColumn:
        # As in FFCV, every mode but that of JPEG means raw pixels.
        mode = np.where(column["mode"] == ImageMode.JPG, ImageMode.JPG, ImageMode.RAW).astype(np.uint8)
        return ImageColumn(mode, column["height"].copy(), column["width"].copy(), RGB)

    def get_decoder_class(self) -> type[Operation]:
        return SimpleRGBImageDecoder

    def _size_and_mode(self, content: bytes) -> tuple[int, int, ImageMode] | None:
        frame = read_frame(content)
        return (frame.height, frame.width, ImageMode.JPG) if frame is not None and frame.is_plain else None

    def _pixels(self, value: Any) -> NDArray[Any]:
        return pixels_of(value)


def _store(
    row: NDArray[Any], mode: ImageMode, size: tuple[int, int], content: NDArray[np.uint8], malloc: Malloc
) -> None:
    row["mode"], row["height"], row["width"] = mode, *size
    row["data_ptr"], region = malloc(content.size)
    region[:] = content
