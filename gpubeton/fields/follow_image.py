"""FollowImage: the decoder of masks and depths, which are cut and moved as the image of another output is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.fields.image_decoders import INTERPOLATIONS, SimpleRGBImageDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.uniform import Uniform


class FollowImage(SimpleRGBImageDecoder):
    """Decode images with the geometry of another output: its crop, size, flips and translates, sample by sample.

    For what belongs to an image pixel by pixel: a segmentation mask, a depth, a second camera. What was drawn for the
    image is drawn again, as a function of the seed, the epoch and the sample, so that the two agree in every batch.
    Colours, cutouts, erasings and mixing are not followed. Operations behind this decoder are the follower's own.

    Parameters
    ----------
    image : str
        Name of the output that is followed; it may stand before or behind this one, may be another output of the same
        field, go on from a third, or follow one itself.
    interpolation : {"nearest", "area", "bilinear", "antialias"}
        How crops are resized, see `gpubeton.fields.image_decoders.INTERPOLATIONS`. By "nearest" no level appears that
        is not in the stored image.
    fill : float or sequence of numbers
        What a translate, rotation or padding brings in from outside the image: for a mask, the label to be ignored.

    Raises
    ------
    OptionError
        If the interpolation is unknown or the fill is not one number, or one for each channel.
    PipelineError
        When it is planned: if there is no such output, or it does something that cannot be followed.

    Notes
    -----
    An image that is stored at another size than the one that it follows is cut at the same share of its sides, rounded
    to its own whole pixels. Rotations, affine maps, windows (``RandomCrop``, ``CornerCrop``, ``Pad``,
    ``RandomResizedCrop``) and the geometric part of ``RandAugment`` and ``TrivialAugmentWide``, which run after the one
    pass over an image, run right behind this decoder with the same draws: "nearest" reads single pixels there, and
    every other interpolation means "bilinear". The user's own operations and torch modules are taken to leave pixels
    where they are. Images that are mixed are followed by putting the same operation, such as ``ImageCutMix``, into this
    pipeline: it draws the same for both.

    Examples
    --------
    A loader for segmentation: pairs of images and masks.

    >>> from gpubeton.fields.image_decoders import RandomResizedCropRGBImageDecoder
    >>> from gpubeton.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
    >>> pipelines = {
    ...     "image": [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()],
    ...     "mask": [FollowImage("image", fill=255), ToTensor(), ToTorchImage()],
    ... }
    >>> pipelines["mask"][0]
    FollowImage(image='image', interpolation='nearest', fill=(255, 255, 255))
    """

    takes_any_kind: ClassVar[bool] = True

    def __init__(self, image: str = "image", interpolation: str = "nearest", fill: float | Sequence[float] = 0) -> None:
        if interpolation not in INTERPOLATIONS:
            expected = ", ".join(INTERPOLATIONS)
            raise OptionError(f"FollowImage: interpolation is {interpolation!r}; expected one of {expected}")
        values = np.asarray(fill)
        if (
            values.shape not in {(), (1,), (3,), (4,)}
            or values.dtype.kind not in "iuf"
            or not np.isfinite(values).all()
        ):
            raise OptionError(f"FollowImage: fill is {fill!r}; expected a number, 255, or one a channel")
        self.image = image
        self.interpolation = interpolation
        self.fill = tuple((np.broadcast_to(values, 3) if values.shape == () else values).tolist())

    def frame(self, heights: NDArray[Any], widths: NDArray[Any]) -> tuple[int, int]:
        raise PipelineError(
            f"FollowImage has the size of {self.image!r}, the output that it follows: use it in a Loader"
        )

    def boxes(self, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None) -> NDArray[np.int32]:
        raise PipelineError(
            f"FollowImage cuts as {self.image!r} is cut, the output that it follows: use it in a Loader"
        )
