"""RandomResizedCrop: a random part of each decoded image, resized."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.random_crops import USUAL_NUMBERS, draw_crops
from gpubeton._batch.resize import LEVELS, crop_and_resize
from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import PIXEL_TYPES, dtype_name
from gpubeton.pipeline.validation import check_range, check_whole
from gpubeton.transforms.checks import given_draw, image_size
from gpubeton.transforms.crops import window_shape
from gpubeton.transforms.transform import Geometry, Moves, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Memory, Uniform
    from gpubeton.pipeline.state import State

_FLOATS = (*PIXEL_TYPES, "float64")


class RandomResizedCrop(Transform):
    """Take a random part of each image, resized to a square; the parts are chosen by torchvision's rule.

    Right after `SimpleRGBImageDecoder` it equals `RandomResizedCropRGBImageDecoder`, and is as fast: only the part is
    decoded. After other operations it works on the finished images, each channel by itself, on the device of the batch:
    the CPU or a GPU.

    Parameters
    ----------
    scale : tuple of float
        Least and greatest area of the part, as a share of the image's.
    ratio : tuple of float
        Least and greatest aspect ratio of the part, width over height.
    size : int
        Side of the output in pixels.

    Notes
    -----
    From Szegedy et al., "Going Deeper with Convolutions" (arXiv:1409.4842), by torchvision's rule.

    The draws come from the loader's seed (FFCV's do not). Resizing is OpenCV's INTER_AREA, as in FFCV, to one level.
    Finished levels come out the same to the bit on every device; so do floating point numbers, which are not rounded to
    whole ones and summed in single precision, float64 in double.

    `DrawnParameters` has, for each image, the box that was taken; where it is fused with the decoder, ``crop`` is that
    box.

    Examples
    --------
    >>> images = np.arange(16, dtype="uint8").reshape(1, 4, 4, 1).repeat(3, axis=3)
    >>> crop = RandomResizedCrop((0.25, 0.25), (1, 1), size=2)
    >>> crop.apply(images, np.array([[1, 2, 2, 2]], "int32"))[0, :, :, 0].tolist()
    [[6, 7], [10, 11]]
    """

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.ALONG_AXES
    usual_numbers: ClassVar[int] = USUAL_NUMBERS
    interpolation: str = "area"

    def __init__(self, scale: tuple[float, float], ratio: tuple[float, float], size: int) -> None:
        self.scale = check_range("RandomResizedCrop: scale", scale, positive=True)
        self.ratio = check_range("RandomResizedCrop: ratio", ratio, positive=True)
        self.size = check_whole("RandomResizedCrop: size", size, 1)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        image_size(self, previous_state, any_channels=True)
        dtype = dtype_name(previous_state.dtype)
        if dtype not in LEVELS and dtype not in _FLOATS:
            raise PipelineError(
                f"RandomResizedCrop works on levels, uint8 or uint16, and on {', '.join(_FLOATS)}, but here the images "
                f"are {dtype}. Put it right after the decoder, or where they are float16 again: after NormalizeImage "
                f"they are int16, the bits of float16, up to ToTorchImage."
            )
        return replace(previous_state, shape=window_shape(previous_state, (self.size, self.size))), None

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        height, width = image_size(self, state, any_channels=True)
        return draw_crops(np.full(count, height), np.full(count, width), self.scale, self.ratio, uniform)

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.crop(draw, (self.size, self.size))

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        return self.changed(interpolation="nearest" if interpolation == "nearest" else "area")

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        boxes = given_draw(self, draw, "the parts")
        return crop_and_resize(batch, boxes, (self.size, self.size), is_nearest=self.interpolation == "nearest")
