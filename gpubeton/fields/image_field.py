"""The field of images of any kind; FFCV's, of RGB images, is in `rgb_image`, and the decoders in `image_decoders`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.fields.base import Field, ImageColumn, Malloc, as_arguments
from gpubeton.fields.codecs import CODECS, Codec, FileHeader, codec_of, codecs_of
from gpubeton.fields.image_decoders import ImageDecoder
from gpubeton.fields.pixels import file_content, fitted_size, pixels_of, reduced
from gpubeton.format.field_arguments import IMAGE_KINDS, ImageKind
from gpubeton.format.layout import IMAGE_DTYPE, ImageMode
from gpubeton.pipeline.validation import check_choice, check_probability, check_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Operation

#: Width and height are stored in 16 bits. FFCV stores the low bits of a larger number.
_MAX_SIDE = 65535


class StoredImages(Field):
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
        if content is not None and (file := self._storable(content)) is not None:
            codec, header = file
            size = header.height, header.width
            if fitted_size(*size, self.max_resolution) == size and self._choose_mode(*size, malloc) is codec.mode:
                _store(destination, codec.mode, size, np.frombuffer(content, np.uint8), malloc)
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
        if mode is ImageMode.RAW:
            dtype = self._stored_kind.dtype.newbyteorder("<")
            stored = pixels.astype(dtype, copy=False).reshape(-1).view(np.uint8)
        else:
            stored = np.frombuffer(CODECS[mode].encode(pixels, self.jpeg_quality), np.uint8)
        _store(destination, mode, (height, width), stored, malloc)

    def _codecs(self) -> Sequence[Codec]:
        """List the codecs that it may use; the first is its choice where there is one."""
        return codecs_of(self._stored_kind)

    def _pixels(self, value: Any) -> NDArray[Any]:
        """Pixels (H, W, C) of an image in any form."""
        return pixels_of(value, self._stored_kind)

    def _storable(self, content: bytes) -> tuple[Codec, FileHeader] | None:
        """Recognize a file that may be stored as it is."""
        codec = codec_of(content)
        if codec is None or codec not in self._codecs():
            return None
        header = codec.read_header(content)
        if header is None or max(header.height, header.width) > _MAX_SIDE or not header.holds(self._stored_kind):
            return None
        return codec, header

    def _choose_mode(self, height: int, width: int, malloc: Malloc) -> ImageMode:
        match self.write_mode:
            case "raw":
                is_file = False
            case "smart":
                raw_size = self._stored_kind.pixel_size * height * width
                is_file = self.smart_threshold is not None and raw_size > self.smart_threshold
            case "proportion":
                draw = np.random.Generator(np.random.Philox(key=self.seed, counter=malloc.sample)).random()
                is_file = bool(draw < self.proportion)
            case suffix:
                return ImageMode[suffix.upper()]
        return self._codecs()[0].mode if is_file else ImageMode.RAW


class ImageField(StoredImages):
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
    write_mode : {"raw", "jpg", "png", "smart", "proportion"}
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
        suffixes = [codec.suffix for codec in codecs_of(self.kind)]
        others = {codec.suffix for codec in CODECS.values()}.difference(suffixes)
        if write_mode in others:
            names = " or ".join(map(repr, (*suffixes, "raw")))
            raise OptionError(
                f"write_mode is {write_mode!r}, which cannot hold images of kind {mode}; expected {names}"
            )
        check_choice("write_mode", write_mode, ("raw", *suffixes, "smart", "proportion"))
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


def _store(
    row: NDArray[Any], mode: ImageMode, size: tuple[int, int], content: NDArray[np.uint8], malloc: Malloc
) -> None:
    row["mode"], row["height"], row["width"] = mode, *size
    row["data_ptr"], region = malloc(content.size)
    region[:] = content
