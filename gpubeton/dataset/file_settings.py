"""Settings: how the samples of a source are stored in a file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._writing import checked_page_size
from gpubeton.errors import OptionError
from gpubeton.fields import FloatField, ImageField, IntField, RGBImageField
from gpubeton.format.field_arguments import IMAGE_KINDS, ImageKind
from gpubeton.format.layout import PAGE_SIZE_DEFAULT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.fields.base import Field


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
