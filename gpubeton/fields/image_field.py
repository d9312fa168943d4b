"""ImageField: images of any kind, gray, RGB or RGBA, of 8 or 16 bits. The decoders are in `kind_decoders`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.fields.area_average import fitted_size
from gpubeton.fields.base import ARG_TYPE, Field, ImageColumn, Malloc
from gpubeton.fields.image_codec import encode_jpeg, file_content
from gpubeton.fields.jpeg_markers import read_frame
from gpubeton.fields.kind_decoders import ImageDecoder
from gpubeton.fields.kind_pixels import pixels_of_kind, reduced
from gpubeton.fields.png import encode_png, read_png_header
from gpubeton.format.field_arguments import IMAGE_KINDS, RGB, ImageKind
from gpubeton.format.layout import IMAGE_DTYPE, ImageMode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Operation

__all__ = ["ImageField"]

_WRITE_MODES = ("raw", "png", "jpg", "smart", "proportion")
_MAX_SIDE = 65535


class ImageField(Field):
    """Images of one kind: gray, RGB or RGBA, of 8 or 16 bits.

    For RGB photos take `RGBImageField`, which FFCV reads too, and which GPUs decode. This one is for all else: masks
    and gray images (a third of the bytes), transparency, depth and other numbers of 16 bits, and images that have to
    be kept without loss. In the file it is a custom field (type 255) whose arguments name the kind: a loader knows it
    without being told.

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
    max_resolution : int, optional
        Longest side in pixels; larger images are made smaller.
    smart_threshold : int, optional
        For "smart"; without it, everything is stored raw.
    jpeg_quality : int
        1 to 100, for images that are encoded.
    compress_probability : float
        For "proportion".
    seed : int
        For "proportion".
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

    metadata_type = IMAGE_DTYPE

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
        if mode not in IMAGE_KINDS:
            raise OptionError(f"mode is {mode!r}, expected one of {', '.join(IMAGE_KINDS)}")
        self.kind: ImageKind = IMAGE_KINDS[mode]
        if write_mode not in _WRITE_MODES:
            raise OptionError(f"write_mode is {write_mode!r}, expected one of {', '.join(_WRITE_MODES)}")
        if write_mode == "jpg" and not self.kind.has_jpeg:
            raise OptionError(f"write_mode is 'jpg', which cannot hold images of kind {mode}; expected 'png' or 'raw'")
        if max_resolution is not None and max_resolution < 1:
            raise OptionError(f"max_resolution is {max_resolution}, expected at least 1 pixel")
        if not 1 <= int(jpeg_quality) <= 100:
            raise OptionError(f"jpeg_quality is {jpeg_quality}, expected 1 to 100")
        if not 0 <= compress_probability <= 1:
            raise OptionError(f"compress_probability is {compress_probability}, expected 0 to 1")
        if seed < 0:
            raise OptionError(f"seed is {seed}, expected at least 0")
        if interpolation not in ("area", "nearest"):
            raise OptionError(f"interpolation is {interpolation!r}, expected 'area' or 'nearest'")
        self.write_mode = write_mode
        self.max_resolution = max_resolution
        self.smart_threshold = smart_threshold
        self.jpeg_quality = int(jpeg_quality)
        self.proportion = compress_probability
        self.seed = seed
        self.interpolation = interpolation

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(mode={self.kind.name!r}, write_mode={self.write_mode!r}, "
            f"max_resolution={self.max_resolution})"
        )

    @classmethod
    def from_binary(cls, binary: NDArray[np.uint8]) -> ImageField:
        """Make the field from the kind that a file names.

        Parameters
        ----------
        binary : ndarray of uint8, shape (1024,)
            The arguments of its descriptor.

        Returns
        -------
        ImageField
            Of that kind.

        Raises
        ------
        FieldArgumentsError
            If they name none.
        """
        return cls(ImageKind.from_bytes(binary.tobytes()).name)

    def to_binary(self) -> np.void:
        """Give the kind, and whether the class is derived from this one."""
        binary = self.kind.to_bytes(is_derived=type(self) is not ImageField)
        stored: np.void = np.frombuffer(binary, ARG_TYPE)[0]
        return stored

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one image.

        Parameters
        ----------
        destination : ndarray of IMAGE_DTYPE, shape (1,)
            Its metadata.
        value : PIL.Image.Image, ndarray, torch.Tensor, bytes, str or path
            The image.
        malloc : Malloc
            Gives room for it.

        Raises
        ------
        TypeError
            If it is none of these.
        ValueError
            If it has another shape, dtype or number of bits, or is too large for the format.
        OSError
            If the file cannot be read.
        """
        content = file_content(value)
        found = None if content is None else self._file_as_it_is(content)
        if content is not None and found is not None:
            height, width, own = found
            mode = self._choose_mode(height, width, malloc)
            if mode is own:
                self._store(destination, mode, (height, width), np.frombuffer(content, np.uint8), malloc)
                return
        pixels = pixels_of_kind(value if content is None else content, self.kind)
        height, width = fitted_size(pixels.shape[0], pixels.shape[1], self.max_resolution)
        if max(height, width) > _MAX_SIDE:
            raise ValueError(
                f"an image of {height} x {width} pixels (height x width), but the format holds sides up to "
                f"{_MAX_SIDE}; use max_resolution"
            )
        pixels = reduced(pixels, height, width, self.kind, self.interpolation)
        mode = self._choose_mode(height, width, malloc)
        self._store(destination, mode, (height, width), self._encoded(pixels, mode), malloc)

    def images(self, column: NDArray[Any]) -> ImageColumn:
        """Describe how images are stored."""
        mode, height, width = (column[name].copy() for name in ("mode", "height", "width"))
        return ImageColumn(mode, height, width, self.kind, gpu_decodes=False)

    def get_decoder_class(self) -> type[Operation]:
        """Give `ImageDecoder`."""
        return ImageDecoder

    def _file_as_it_is(self, content: bytes) -> tuple[int, int, ImageMode] | None:
        """Size and mode of a file that can be stored as it is."""
        frame, header = read_frame(content), read_png_header(content)
        found = None
        colours = (1,) if self.kind.channels == 1 else (1, 3)
        if frame is not None and frame.is_plain and self.kind.has_jpeg and len(frame.components) in colours:
            found = frame.height, frame.width, ImageMode.JPG
        elif header is not None and header.holds(self.kind):
            found = header.height, header.width, ImageMode.PNG
        if found is None or max(found[:2]) > _MAX_SIDE:
            return None
        return found if fitted_size(*found[:2], self.max_resolution) == found[:2] else None

    def _encoded(self, pixels: NDArray[Any], mode: ImageMode) -> NDArray[np.uint8]:
        if mode is ImageMode.RAW:
            return pixels.astype(self.kind.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8)
        if mode is ImageMode.PNG:
            return np.frombuffer(encode_png(pixels), np.uint8)
        return np.frombuffer(encode_jpeg(pixels if self.kind is RGB else pixels[..., 0], self.jpeg_quality), np.uint8)

    def _store(
        self, row: NDArray[Any], mode: ImageMode, size: tuple[int, int], content: NDArray[np.uint8], malloc: Malloc
    ) -> None:
        row["mode"], row["height"], row["width"] = mode, *size
        row["data_ptr"], region = malloc(content.size)
        region[:] = content

    def _choose_mode(self, height: int, width: int, malloc: Malloc) -> ImageMode:
        files = ImageMode.JPG if self.kind.has_jpeg else ImageMode.PNG
        match self.write_mode:
            case "jpg" | "png":
                return ImageMode[self.write_mode.upper()]
            case "smart":
                raw_size = self.kind.pixel_size * height * width
                packed = self.smart_threshold is not None and raw_size > self.smart_threshold
            case "proportion":
                draw = np.random.Generator(np.random.Philox(key=self.seed, counter=malloc.sample)).random()
                packed = bool(draw < self.proportion)
            case _:
                packed = False
        return files if packed else ImageMode.RAW
