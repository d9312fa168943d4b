"""The decoders of images: which part of each image is wanted, and how large. FFCV's are in `rgb_image`."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch.random_crops import USUAL_NUMBERS, draw_crops
from gpubeton.errors import PipelineError
from gpubeton.format.field_arguments import RGB, ImageKind
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.interpolation import INTERPOLATIONS
from gpubeton.pipeline.operation import Memory, Operation
from gpubeton.pipeline.validation import check_choice, check_fill, check_number, check_range, check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.interpolation import Interpolation
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class ImageDecoder(Operation):
    """Decode images of any kind whole; all must have the same size.

    Gives uint8 or uint16, (N, H, W, C), C being 1 for gray images. Of `ToTensor`, the latter become ``torch.uint16``,
    which torch (from 2.3 on) moves, views and converts, and little else: normalize them, or put
    ``Convert(torch.int32)`` or ``Convert(torch.float32)`` after it.

    Examples
    --------
    >>> ImageDecoder().boxes(np.array([20]), np.array([30]), None).tolist()
    [[0, 0, 20, 30]]
    >>> from gpubeton.transforms import Convert, NormalizeImage, ToTensor, ToTorchImage
    >>> depth = [ImageDecoder(), NormalizeImage(0, 1000, "float32"), ToTensor(), ToTorchImage()]  # in metres
    """

    is_random: ClassVar[bool] = False
    takes_any_kind: ClassVar[bool] = True
    """Whether it decodes more than RGB images of 8 bits."""

    usual_numbers: ClassVar[int] = 4
    """Random numbers per image that are made in advance, together with other operations'; `boxes` may ask for more."""

    interpolation: Interpolation = "area"

    def frame(self, heights: NDArray[Any], widths: NDArray[Any]) -> tuple[int, int]:
        """Height and width of every decoded image.

        Parameters
        ----------
        heights, widths : ndarray, shape (N,)
            Sizes of all images of the file that may be asked for, in pixels.

        Returns
        -------
        tuple of int
            Height and width in pixels.

        Raises
        ------
        PipelineError
            If the images differ in size.
        """
        other = np.flatnonzero((heights != heights[0]) | (widths != widths[0]))
        if len(other):
            kind = "" if self.takes_any_kind else "RGB"
            raise PipelineError(
                f"{type(self).__name__} (also the decoder of pipelines that have none) only supports images of "
                f"constant size, but there are images of {heights[0]} x {widths[0]} and of {heights[other[0]]} x "
                f"{widths[other[0]]} (height x width). Begin the pipeline with a decoder that makes one size of "
                f"them: {self._for_masks}RandomResizedCrop{kind}ImageDecoder((224, 224)) or "
                f"CenterCrop{kind}ImageDecoder((224, 224))"
            )
        return int(heights[0]), int(widths[0])

    def boxes(self, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None) -> NDArray[np.int32]:
        """Choose the part of each image that is resized to the output.

        Parameters
        ----------
        heights, widths : ndarray of integers, shape (N,)
            Sizes of the images of a batch, in pixels.
        uniform : Uniform or None
            Their random numbers; None will do for decoders that draw none.

        Returns
        -------
        ndarray of int32, shape (N, 4)
            Crop boxes: top, left, height, width, in source pixels.
        """
        box = np.zeros((len(heights), 4), np.int32)
        box[:, 2] = heights
        box[:, 3] = widths
        return box

    @property
    def kind(self) -> ImageKind:
        """What the field holds: channels and bits.

        Raises
        ------
        PipelineError
            If this decoder does not know such images.
        """
        kind: ImageKind = getattr(self.field, "kind", RGB)
        if kind != RGB and not self.takes_any_kind:
            twin = type(self).__name__.replace("SimpleRGB", "").replace("RGB", "")
            raise PipelineError(
                f"{type(self).__name__} decodes RGB images of 8 bits, but the field holds images of kind {kind.name}. "
                f"Begin the pipeline with another decoder of gpubeton.fields.decoders: {self._for_masks}{twin}, "
                "which decodes any kind."
            )
        return kind

    @property
    def _for_masks(self) -> str:
        """The decoder that an error recommends for a mask."""
        is_gray = getattr(self.field, "kind", RGB).channels == 1
        return "FollowImage('image') for a mask of the output 'image'; else " if is_gray else ""

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        if self.metadata is None:
            raise PipelineError(f"{type(self).__name__} does not know the sizes of the images: use it in a Loader")
        height, width = self.frame(self.metadata["height"], self.metadata["width"])
        state = replace(previous_state, jit_mode=True, shape=(height, width, self.kind.channels), dtype=self.kind.dtype)
        return state, AllocationQuery(state.shape, state.dtype)

    def generate_code(self) -> Callable[..., Any]:
        raise PipelineError(
            f"{type(self).__name__} is not a function by itself: the loader crops, decodes and resizes in one pass. "
            f"Put it first in the pipeline of an image field."
        )

    def __repr__(self) -> str:
        arguments = (
            f"{name.lstrip('_')}={value!r}" for name, value in vars(self).items() if not hasattr(Operation, name)
        )
        return f"{type(self).__name__}({', '.join(arguments)})"


class ResizedCropImageDecoder(ImageDecoder, ABC):
    """Decode a part of each image of any kind, resized to one size; derive from it for another crop.

    Write `boxes`; or, as in FFCV, a property ``get_crop_generator``, which gives a function that is compiled and called
    as ``crop(height, width, scale, ratio)`` for each image, and returns top, left, height and width. `scale` and
    `ratio` are attributes of the decoder. What it draws with ``np.random`` or ``random`` then follows from the loader's
    seed, the epoch and the sample.

    Parameters
    ----------
    output_size : int or tuple of int
        Height and width of the output in pixels, or one number for both; may be changed between epochs.
    interpolation : str
        How the crop is resized: "area" as in FFCV, or another of `INTERPOLATIONS`. Colors of RGBA images are weighted
        by their alpha, as in Pillow.

    Examples
    --------
    The upper half of each image:

    >>> class UpperHalf(ResizedCropImageDecoder):
    ...     def boxes(self, heights, widths, uniform):
    ...         corner = np.zeros_like(heights)
    ...         return np.stack([corner, corner, heights // 2, widths], axis=1).astype(np.int32)
    >>> UpperHalf((112, 224)).boxes(np.array([300]), np.array([400]), None).tolist()
    [[0, 0, 150, 400]]
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "get_crop_generator" in vars(cls) and "boxes" not in vars(cls):
            cls.boxes = generated_boxes  # type: ignore[assignment,method-assign]  # instead of the inherited method
            cls.is_random = True

    def __init__(self, output_size: int | tuple[int, int], interpolation: Interpolation = "area") -> None:
        self.output_size = output_size
        self.interpolation = check_choice(f"{type(self).__name__}: interpolation", interpolation, INTERPOLATIONS)

    @property
    def output_size(self) -> tuple[int, int]:
        """Height and width of the output in pixels."""
        return self._output_size

    @output_size.setter
    def output_size(self, size: int | tuple[int, int]) -> None:
        self._output_size = check_size(f"{type(self).__name__}: output_size", size)

    def frame(self, heights: NDArray[Any], widths: NDArray[Any]) -> tuple[int, int]:
        return self.output_size

    @abstractmethod
    def boxes(self, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None) -> NDArray[np.int32]: ...

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        shape = (*self.output_size, self.kind.channels)
        state = replace(previous_state, jit_mode=True, shape=shape, dtype=self.kind.dtype)
        if self.metadata is None or self.metadata.dtype.names is None:
            return state, None
        # FFCV's: the images, and room for a whole one each. Loaders allocate it only for functions of users.
        largest = int(self.metadata["height"].max()) * int(self.metadata["width"].max()) * self.kind.channels
        return state, (AllocationQuery(state.shape, state.dtype), AllocationQuery((largest,), state.dtype))


class CenterCropImageDecoder(ResizedCropImageDecoder):
    """Decode the central square of each image of any kind, resized; see `ImageDecoder` for the result.

    Parameters
    ----------
    output_size : int or tuple of int
        As for `ResizedCropImageDecoder`.
    ratio : float
        Side of the square as a share of the image's shorter side, more than 0 and at most 1. The default is that of
        torchvision's evaluation of ImageNet: 224 of 256.
    interpolation : str
        As for `ResizedCropImageDecoder`.

    Examples
    --------
    >>> CenterCropImageDecoder((224, 224), ratio=0.5).boxes(np.array([100]), np.array([200]), None).tolist()
    [[25, 75, 50, 50]]
    """

    def __init__(
        self, output_size: int | tuple[int, int], ratio: float = 224 / 256, interpolation: Interpolation = "area"
    ) -> None:
        super().__init__(output_size, interpolation)
        self.ratio = check_number(f"{type(self).__name__}: ratio", ratio, 0, 1, positive=True)

    def boxes(self, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None) -> NDArray[np.int32]:
        size = np.stack([heights, widths], axis=1).astype(np.int64)
        side = np.maximum((size.min(axis=1, keepdims=True) * self.ratio).astype(np.int64), 1)
        return np.concatenate([(size - side) // 2, side, side], axis=1, dtype=np.int32)


class PadImageDecoder(ResizedCropImageDecoder):
    """Decode images of any kind whole, resized to fit with their proportions kept; the rest is filled (letterbox).

    Parameters
    ----------
    output_size : int or tuple of int
        As for `ResizedCropImageDecoder`.
    fill : sequence of numbers, or number
        Color around the image, as levels: a number for each channel, or one for all. Operations after the decoder
        change it as they change pixels.
    interpolation : str
        As for `ResizedCropImageDecoder`.
    position : {"center", "top-left"}
        Where the image lies in the output. An odd pixel of a centered one is at the bottom or at the right.

    Notes
    -----
    One side fits exactly, the other is rounded to the nearest pixel. `FollowImage` and ``TransformBoxes`` follow: a
    mask has its own `fill` around it.

    Examples
    --------
    >>> decoder = PadImageDecoder((640, 640), fill=114)
    >>> decoder.places(np.array([480, 500]), np.array([640, 375])).tolist()  # top, left, height, width
    [[80, 0, 480, 640], [0, 80, 640, 480]]
    """

    def __init__(
        self,
        output_size: int | tuple[int, int],
        fill: float | Sequence[float] = 0,
        interpolation: Interpolation = "area",
        position: Literal["center", "top-left"] = "center",
    ) -> None:
        super().__init__(output_size, interpolation)
        self.fill = check_fill(f"{type(self).__name__}: fill", fill)
        self.position = check_choice(f"{type(self).__name__}: position", position, ("center", "top-left"))

    def boxes(self, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None) -> NDArray[np.int32]:
        return ImageDecoder.boxes(self, heights, widths, uniform)

    def places(self, heights: NDArray[Any], widths: NDArray[Any]) -> NDArray[np.int32]:
        """Choose the part of the output that each image fills.

        Parameters
        ----------
        heights, widths : ndarray of integers, shape (N,)
            Sizes of the stored images, in pixels.

        Returns
        -------
        ndarray of int32, shape (N, 4)
            Top, left, height and width, in pixels of the output.
        """
        stored = np.stack([heights, widths], axis=1).astype(np.int64)
        output = np.array(self.output_size, np.int64)
        # Sides if the other one fits exactly, rounded with halves up.
        fitting = np.maximum((2 * stored * output[::-1] + stored[:, ::-1]) // (2 * stored[:, ::-1]), 1)
        is_longer = stored * output[::-1] >= stored[:, ::-1] * output
        size = np.where(is_longer, output, fitting)
        corner = (output - size) // 2 if self.position == "center" else np.zeros_like(size)
        return np.concatenate([corner, size], axis=1, dtype=np.int32)


class RandomResizedCropImageDecoder(ResizedCropImageDecoder):
    """Decode a random part of each image of any kind, resized; the parts are chosen by torchvision's rule.

    A try draws four numbers: area, aspect ratio, top, left. If none of ten tries fits into the image, the part is the
    largest central one whose aspect ratio is within `ratio`.

    Parameters
    ----------
    output_size : int or tuple of int
        As for `ResizedCropImageDecoder`.
    scale : tuple of float
        Least and greatest area of the part, as a share of the image's.
    ratio : tuple of float
        Least and greatest aspect ratio of the part, width over height.
    interpolation : str
        As for `ResizedCropImageDecoder`.

    Examples
    --------
    >>> decoder = RandomResizedCropImageDecoder((224, 224), scale=(0.25, 1.0))
    >>> middling = lambda count, rows=None: np.full((1, count), 0.5)
    >>> decoder.boxes(np.array([400]), np.array([400]), middling).tolist()
    [[42, 42, 316, 316]]
    """

    is_random: ClassVar[bool] = True
    usual_numbers: ClassVar[int] = USUAL_NUMBERS

    def __init__(
        self,
        output_size: int | tuple[int, int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (0.75, 4 / 3),
        interpolation: Interpolation = "area",
    ) -> None:
        super().__init__(output_size, interpolation)
        self.scale = check_range(f"{type(self).__name__}: scale", scale, positive=True)
        self.ratio = check_range(f"{type(self).__name__}: ratio", ratio, positive=True)

    def boxes(self, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None) -> NDArray[np.int32]:
        if uniform is None:
            raise TypeError(f"{type(self).__name__}.boxes needs random numbers: pass `uniform`")
        return draw_crops(heights, widths, self.scale, self.ratio, uniform)


class FollowImage(ImageDecoder):
    """Decode images with the geometry of another output: its crop, size, flips and translates, sample by sample.

    For what belongs to an image pixel by pixel: a segmentation mask, a depth, a second camera. What was drawn for the
    image is drawn again, as a function of the seed, the epoch and the sample, so that the two agree in every batch.
    Colors, cutouts, erasings and mixing are not followed. Operations after this decoder belong to the follower alone.

    Parameters
    ----------
    image : str
        Name of the output that is followed; it may come before or after this one, may be another output of the same
        field, go on from a third, or follow one itself.
    interpolation : str
        How crops are resized: "nearest", which gives only values of the stored image, or another of
        `INTERPOLATIONS`.
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
    pass over an image, run right after this decoder with the same draws: "nearest" reads single pixels there, and
    every other interpolation means "bilinear". The user's own operations and torch modules are taken to leave pixels
    where they are. Images that are mixed are followed by putting the same operation, such as ``ImageCutMix``, into this
    pipeline: it draws the same for both.

    Examples
    --------
    A loader for segmentation: pairs of images and masks.

    >>> from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
    >>> from gpubeton.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
    >>> pipelines = {
    ...     "image": [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()],
    ...     "mask": [FollowImage("image", fill=255), ToTensor(), ToTorchImage()],
    ... }
    >>> pipelines["mask"][0]
    FollowImage(image='image', interpolation='nearest', fill=(255, 255, 255))
    """

    def __init__(
        self, image: str = "image", interpolation: Interpolation = "nearest", fill: float | Sequence[float] = 0
    ) -> None:
        self.image = image
        self.interpolation = check_choice("FollowImage: interpolation", interpolation, INTERPOLATIONS)
        self.fill = check_fill("FollowImage: fill", fill)

    def frame(self, heights: NDArray[Any], widths: NDArray[Any]) -> tuple[int, int]:
        raise PipelineError(
            f"FollowImage has the size of {self.image!r}, the output that it follows: use it in a Loader"
        )

    def boxes(self, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None) -> NDArray[np.int32]:
        raise PipelineError(
            f"FollowImage cuts as {self.image!r} is cut, the output that it follows: use it in a Loader"
        )


def generated_boxes(
    decoder: Any, heights: NDArray[Any], widths: NDArray[Any], uniform: Uniform | None
) -> NDArray[np.int32]:
    """Choose the part of each image by the function that a decoder's ``get_crop_generator`` gives."""
    # `heights`, `widths`: integers (N,); returns int32 (N, 4): top, left, height, width, in source pixels. The
    # generators of compiled code, np.random's and random's, are seeded before each call. They are not while
    # compilation is off: then they are those of the whole program.
    if uniform is None:
        raise TypeError(f"{type(decoder).__name__}.boxes needs random numbers: pass `uniform`")
    seeds = (uniform(1)[:, 0] * 2**32).astype(np.uint32)
    ranges = (getattr(decoder, "scale", None), getattr(decoder, "ratio", None))
    scale, ratio = (np.array(value, np.float64) if isinstance(value, tuple) else value for value in ranges)
    size = np.stack([heights, widths], axis=1).astype(np.uint32)
    boxes = np.empty((len(size), 4), np.int64)
    crop = Compiler.compile(decoder.get_crop_generator, generation=decoder.generation)
    Compiler.compile(_crop_all)(crop, size, scale, ratio, seeds if Compiler.is_enabled else seeds[:0], boxes)
    corner, extent = boxes[:, :2], boxes[:, 2:]
    inside = (corner >= 0).all(axis=1) & (extent >= 1).all(axis=1) & (corner + extent <= size).all(axis=1)
    if not inside.all():
        wrong = int(np.flatnonzero(~inside)[0])
        raise PipelineError(
            f"{type(decoder).__name__}: get_crop_generator chose top, left, height, width {boxes[wrong].tolist()} in "
            f"an image of {heights[wrong]} x {widths[wrong]} (height x width); expected a part of it"
        )
    return boxes.astype(np.int32)


def _crop_all(crop: Any, size: Any, scale: Any, ratio: Any, seeds: Any, boxes: Any) -> None:
    for row in range(len(size)):
        if len(seeds) > 0:
            np.random.seed(seeds[row])  # noqa: NPY002  (what compiled code has)
            random.seed(seeds[row])
        top, left, height, width = crop(size[row, 0], size[row, 1], scale, ratio)
        boxes[row, 0] = top
        boxes[row, 1] = left
        boxes[row, 2] = height
        boxes[row, 3] = width
