"""RandomErasing: paint a rectangle of random size over images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch.image_batch import paint_noise, paint_rectangles
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.pipeline.validation import check_fill, check_probability, check_range
from gpubeton.transforms.checks import checked_levels, given_draw, image_size
from gpubeton.transforms.transform import Geometry, ImagePass, Moves, Transform, between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State

_TRIES = 10
"""Rectangles that are tried before an image stays as it is; torchvision's number."""

_KEY = slice(3 + 2 * _TRIES, 5 + 2 * _TRIES)
"""The random numbers of a sample that are the key of its noise: the two after those of the last try."""


class RandomErasing(Transform):
    """Paint a rectangle of random size, shape and place over each image, with a given probability.

    Before ``NormalizeImage`` it is part of the one pass over the pixels, like ``Cutout``, and costs next to nothing.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.
    scale : sequence of two floats
        Least and largest share of the image that is painted over.
    ratio : sequence of two floats
        Least and largest ratio of the rectangle's height to its width.
    value : number, sequence of three numbers, or "random"
        Its color, in the units of the batch: levels from 0 to 255 before ``NormalizeImage``, of which
        fractions are dropped. For images with one channel or four, so many numbers.
        "random" is noise, normally distributed around 0 with standard deviation 1, another for each channel of each
        pixel: for floating-point images, after ``NormalizeImage``.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    From Zhong, Zheng, Kang, Li and Yang, "Random Erasing Data Augmentation" (AAAI 2020, arXiv:1708.04896). Rectangles
    are drawn as torchvision's ``RandomErasing`` draws them: ten tries, as one that is not smaller than the image along
    both axes is thrown away. Noise is a function of seed, epoch and sample, as all that is drawn;
    it is made on the CPU.

    `DrawnParameters` has, for each image, the box that was painted over.

    Examples
    --------
    >>> image = np.full((1, 1, 4, 3), 9, "uint8")
    >>> RandomErasing(1).apply(image, np.array([[0, 1, 1, 3]]))[0, 0, :, 0].tolist()  # top, left, bottom, right
    [9, 0, 0, 9]
    """

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING
    num_paints: ClassVar[int] = 1
    usual_numbers: ClassVar[int] = 8

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | Literal["random"] = 0,
    ) -> None:
        self.p = check_probability("RandomErasing: p", p)
        self.scale = check_range("RandomErasing: scale", scale, 0, 1)
        self.ratio = check_range("RandomErasing: ratio", ratio, positive=True)
        if isinstance(value, str) and value != "random":
            raise OptionError(f"RandomErasing: value is {value!r}; expected a color, such as 0, or 'random' for noise")
        self.value = value if isinstance(value, str) else check_fill("RandomErasing: value", value)

    @property
    def color(self) -> Fill:
        """The color, if it is not noise."""
        if isinstance(self.value, str):
            raise TypeError(f"{self!r} paints noise, which has no color")
        return self.value

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=True)
        dtype = dtype_name(state.dtype)
        if self.value != "random":
            checked_levels("RandomErasing", self.color, state)
        elif "float" not in dtype:
            raise PipelineError(
                f"RandomErasing: value 'random' is noise around 0, for floating-point images, but here the images are "
                f"{dtype}. Put it after {'ToTorchImage' if dtype == 'int16' else 'NormalizeImage'}, or take a color "
                f"as value."
            )

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32] | NDArray[np.int64]:
        # Top, left, bottom and right; an empty rectangle where nothing is painted. Then the key of the noise.
        boxes = self._boxes(uniform, count, state)
        if self.value != "random":
            return boxes
        key: NDArray[np.float64] = uniform(_KEY.stop)[:, _KEY] * 2**32
        return np.hstack([boxes, key.astype(np.int64)])

    def _boxes(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        height, width = image_size(self, state, any_channels=True)
        boxes = np.zeros((count, 4), np.int32)
        first = uniform(5)
        rows = np.flatnonzero(first[:, 0] < self.p)
        numbers = first[rows]
        for attempt in range(_TRIES):
            if len(rows) == 0:
                break
            if attempt:
                numbers = uniform(5 + 2 * attempt, rows)
            sides = self._sides(numbers[:, -2:], height * width)
            fits = (sides[:, 0] < height) & (sides[:, 1] < width)
            corner = (numbers[fits, 1:3] * (np.array([height, width]) - sides[fits] + 1)).astype(np.int32)
            boxes[rows[fits]] = np.hstack([corner, corner + sides[fits]])
            rows = rows[~fits]
        return boxes

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        corners = self._boxes(uniform, count, state)
        return {"": np.hstack([corners[:, :2], corners[:, 2:] - corners[:, :2]])}

    def _sides(self, numbers: NDArray[np.float64], pixels: int) -> NDArray[np.int32]:
        """Return height and width in pixels; the logarithm of the ratio is uniform."""
        area = pixels * between(self.scale, numbers[:, 0])
        ratio = np.exp(between((float(np.log(self.ratio[0])), float(np.log(self.ratio[1]))), numbers[:, 1]))
        return np.rint(np.sqrt(np.stack([area * ratio, area / ratio], axis=1))).astype(np.int32)

    def fuse(self, image_pass: ImagePass) -> bool:
        return image_pass.add_fold(self)

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.paint(draw, self.color)

    def fills(self) -> tuple[Fill, ...]:
        return (self.color,)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        draw = given_draw(self, draw, "the rectangles")
        if self.value == "random":
            paint_noise(batch, draw)
        else:
            paint_rectangles(batch, draw, self.color)
        return batch
