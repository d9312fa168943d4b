"""The decoders of images of any kind: gray, RGB or RGBA, of 8 or 16 bits."""

from __future__ import annotations

from typing import ClassVar

from gpubeton.fields.image_decoders import (
    CenterCropRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    ResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)


class ImageDecoder(SimpleRGBImageDecoder):
    """Decode images of any kind whole; all must have the same size.

    Gives uint8 or uint16, (N, H, W, C), C being 1 for gray images. Of `ToTensor`, the latter become ``torch.uint16``,
    which torch (from 2.3 on) moves, views and converts, and little else: normalise them, or put
    ``Convert(torch.int32)`` or ``Convert(torch.float32)`` behind it.

    Examples
    --------
    >>> from gpubeton.transforms import Convert, NormalizeImage, ToTensor, ToTorchImage
    >>> depth = [ImageDecoder(), NormalizeImage(0, 1000, "float32"), ToTensor(), ToTorchImage()]  # in metres
    """

    takes_any_kind: ClassVar[bool] = True
    family: ClassVar[type[SimpleRGBImageDecoder]] = SimpleRGBImageDecoder
    """Any of these may stand first in the pipeline of a field whose decoder this is."""


class CenterCropImageDecoder(CenterCropRGBImageDecoder):
    """Decode the central square of each image of any kind, resized; see `ImageDecoder` for what it gives.

    Parameters
    ----------
    output_size : tuple of int
        Height and width of the output in pixels; may be set anew between epochs.
    ratio : float
        Side of the square as a share of the image's shorter side, more than 0 and at most 1.
    interpolation : {"area", "bilinear", "antialias", "nearest"}
        How the crop is resized. Colours of RGBA images count by how opaque they are, as in Pillow.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> CenterCropImageDecoder((224, 224), ratio=0.5).boxes(np.array([100]), np.array([200]), None).tolist()
    [[25, 75, 50, 50]]
    """

    takes_any_kind: ClassVar[bool] = True


class RandomResizedCropImageDecoder(RandomResizedCropRGBImageDecoder):
    """Decode a random part of each image of any kind, resized; see `ImageDecoder` for what it gives.

    With the same seed, the parts are those that `RandomResizedCropRGBImageDecoder` takes in the same place.

    Parameters
    ----------
    output_size : tuple of int
        Height and width of the output in pixels; may be set anew between epochs.
    scale : tuple of float
        Least and greatest area of the part, as a share of the image's.
    ratio : tuple of float
        Least and greatest aspect ratio of the part, width over height.
    interpolation : {"area", "bilinear", "antialias", "nearest"}
        How the crop is resized. Colours of RGBA images count by how opaque they are, as in Pillow.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Examples
    --------
    >>> RandomResizedCropImageDecoder((224, 224), scale=(0.25, 1.0)).output_size
    (224, 224)
    """

    takes_any_kind: ClassVar[bool] = True


class ResizedCropImageDecoder(ResizedCropRGBImageDecoder):
    """Decode a part of each image of any kind, resized; derive from it for a crop of your own.

    Parameters
    ----------
    output_size : tuple of int
        Height and width of the output in pixels; may be set anew between epochs.
    interpolation : {"area", "bilinear", "antialias", "nearest"}
        How the crop is resized.

    Raises
    ------
    OptionError
        If a size is not positive or the interpolation is unknown.

    Examples
    --------
    The upper half of each image:

    >>> import numpy as np
    >>> class UpperHalf(ResizedCropImageDecoder):
    ...     def boxes(self, heights, widths, uniform):
    ...         corner = np.zeros_like(heights)
    ...         return np.stack([corner, corner, heights // 2, widths], axis=1).astype(np.int32)
    >>> UpperHalf((112, 224)).boxes(np.array([300]), np.array([400]), None).tolist()
    [[0, 0, 150, 400]]
    """

    takes_any_kind: ClassVar[bool] = True
