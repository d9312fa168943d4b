"""Cutout and RandomErasing: paint rectangles over images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch.image_batch import paint_noise, paint_rectangles
from gpubeton._batch.step_rows import PAINT
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.pipeline.validation import check_fill, check_probability, check_range, check_whole
from gpubeton.transforms.checks import checked_levels, checked_whole, given_draw, image_size
from gpubeton.transforms.crops import with_sides
from gpubeton.transforms.step_transform import FoldTransform
from gpubeton.transforms.transform import Geometry, between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class Cutout(FoldTransform):
    """Paint a square of one color over a random place of each image; the square lies wholly inside.

    Parameters
    ----------
    crop_size : int
        Side of the square in pixels.
    fill : sequence of three numbers, or number
        Red, green and blue, in the units of the batch: levels from 0 to 255 before ``NormalizeImage``, of which
        fractions are dropped. For images with one channel or four, so many numbers.

    Notes
    -----
    From DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout" (arXiv:1708.04552).
    As in FFCV the square lies inside; the paper's may reach beyond the border.

    `DrawnParameters` has, for each image, the box that was painted over.

    Examples
    --------
    >>> image = np.full((1, 2, 2, 3), 9, "uint8")
    >>> Cutout(1).apply(image, np.array([[0, 1]]))[0, :, :, 0].tolist()
    [[9, 0], [9, 9]]
    """

    kind: ClassVar[int] = PAINT
    num_paints: ClassVar[int] = 1

    def __init__(self, crop_size: int, fill: float | Sequence[float] = (0, 0, 0)) -> None:
        self.crop_size = checked_whole("Cutout: crop_size", crop_size, 0)
        self.fill = check_fill("Cutout: fill", fill)

    def check_state(self, state: State) -> None:
        height, width = image_size(self, state, any_channels=True)
        if self.crop_size > min(height, width):
            raise PipelineError(
                f"Cutout: a square of {self.crop_size} pixels does not fit into images of {height} x {width}; "
                f"expected a crop_size of at most {min(height, width)}"
            )
        checked_levels("Cutout", self.fill, state)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        # The squares' first row and column, every place equally likely.
        height, width = image_size(self, state, any_channels=True)
        places = np.array([height - self.crop_size + 1, width - self.crop_size + 1])
        corners: NDArray[np.int32] = (uniform(2) * places).astype(np.int32)
        return corners

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": with_sides(self.draw(uniform, count, state), (self.crop_size, self.crop_size))}

    def fold(self, geometry: Geometry, draw: Any) -> None:
        geometry.paint(self._rectangles(draw), self.fill)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        paint_rectangles(batch, self._rectangles(given_draw(self, draw, "the squares' places")), self.fill)
        return batch

    def _rectangles(self, corners: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return top, left, bottom and right."""
        return np.hstack([corners, corners + self.crop_size])


_TRIES = 10  # rectangles that are tried before an image stays as it is; torchvision's number
_KEY = slice(3 + 2 * _TRIES, 5 + 2 * _TRIES)  # random numbers of a rectangle: the key of its noise, after the last try


class RandomErasing(FoldTransform):
    """Paint rectangles of random size, shape and place over each image, with a given probability.

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
        Its color, as for `Cutout`.
        "random" is noise, normally distributed around 0 with standard deviation 1, another for each channel of each
        pixel: for floating-point images, after ``NormalizeImage``. "random color" is such a color for each rectangle.
    count : int
        Largest number of rectangles. With more than 1, it is drawn for each image, and divides the areas, as in timm.

    Notes
    -----
    From Zhong, Zheng, Kang, Li and Yang, "Random Erasing Data Augmentation" (AAAI 2020, arXiv:1708.04896). Rectangles
    are drawn as torchvision's ``RandomErasing`` draws them: ten tries, as one that is not smaller than the image along
    both axes is thrown away. Noise is a function of seed, epoch and sample, as all that is drawn;
    it is made on the CPU.

    `DrawnParameters` has, for each image, the box that was painted over; with a `count`, (N, count, 4), some empty.

    Examples
    --------
    >>> image = np.full((1, 1, 4, 3), 9, "uint8")
    >>> RandomErasing(1).apply(image, np.array([[0, 1, 1, 3]]))[0, 0, :, 0].tolist()  # top, left, bottom, right
    [9, 0, 0, 9]
    """

    kind: ClassVar[int] = PAINT
    usual_numbers: ClassVar[int] = 8

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | Literal["random", "random color"] = 0,
        count: int = 1,
    ) -> None:
        self.p = check_probability("RandomErasing: p", p)
        self.scale = check_range("RandomErasing: scale", scale, 0, 1)
        self.ratio = check_range("RandomErasing: ratio", ratio, positive=True)
        if isinstance(value, str) and value not in ("random", "random color"):
            raise OptionError(
                f"RandomErasing: value is {value!r}; expected a color, such as 0, 'random' for noise, or 'random color'"
            )
        self.value = value if isinstance(value, str) else check_fill("RandomErasing: value", value)
        self.count = check_whole("RandomErasing: count", count, 1)

    @property
    def num_paints(self) -> int:
        """Rectangles of each image."""
        return self.count

    @property
    def num_rows(self) -> int:
        return self.count

    @property
    def color(self) -> Fill:
        """The color, if it is not noise."""
        if isinstance(self.value, str):
            raise TypeError(f"{self!r} paints noise, which has no color")
        return self.value

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=True)
        dtype = dtype_name(state.dtype)
        if not isinstance(self.value, str):
            checked_levels("RandomErasing", self.color, state)
        elif "float" not in dtype:
            raise PipelineError(
                f"RandomErasing: value {self.value!r} is noise around 0, for floating-point images, but here they "
                f"are {dtype}. Put it after {'ToTorchImage' if dtype == 'int16' else 'NormalizeImage'}, or take a "
                f"color as value."
            )

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32] | NDArray[np.int64]:
        # Of each rectangle top, left, bottom and right, empty where nothing is painted; and the key of the noise.
        boxes = self._boxes(uniform, count, state)
        if not isinstance(self.value, str):
            return boxes.reshape(count, 4 * self.count)
        numbers = uniform(self.count * _KEY.stop).reshape(count, self.count, -1)[..., _KEY] * 2**32
        return np.concatenate([boxes, numbers.astype(np.int64)], axis=2).reshape(count, -1)

    def _boxes(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:  # (N, self.count, 4)
        height, width = image_size(self, state, any_channels=True)
        boxes = np.zeros((count, self.count, 4), np.int32)
        is_erased = uniform(1)[:, 0] < self.p
        shares = np.ones(count)  # how many rectangles of an image share the area
        if self.count > 1:
            shares += (uniform(self.count * _KEY.stop + 1)[:, -1] * self.count).astype(np.intp)
        for number in range(self.count):
            rows, first = np.flatnonzero(is_erased & (number < shares)), number * _KEY.stop
            for attempt in range(_TRIES):
                if len(rows) == 0:
                    break
                numbers = uniform(first + 5 + 2 * attempt, rows)[:, first:]
                sides = self._sides(numbers[:, -2:], height * width / shares[rows])
                fits = (sides[:, 0] < height) & (sides[:, 1] < width)
                corner = (numbers[fits, 1:3] * (np.array([height, width]) - sides[fits] + 1)).astype(np.int32)
                boxes[rows[fits], number] = np.hstack([corner, corner + sides[fits]])
                rows = rows[~fits]
        return boxes

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        corners = self._boxes(uniform, count, state)
        boxes = np.concatenate([corners[..., :2], corners[..., 2:] - corners[..., :2]], axis=2)
        return {"": boxes[:, 0] if self.count == 1 else boxes}

    def _sides(self, numbers: NDArray[np.float64], pixels: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return height and width in pixels; the logarithm of the ratio is uniform."""
        area = pixels * between(self.scale, numbers[:, 0])
        ratio = np.exp(between((float(np.log(self.ratio[0])), float(np.log(self.ratio[1]))), numbers[:, 1]))
        return np.rint(np.sqrt(np.stack([area * ratio, area / ratio], axis=1))).astype(np.int32)

    def fold(self, geometry: Geometry, draw: Any) -> None:
        for boxes in np.split(draw, self.count, axis=1):
            geometry.paint(boxes, self.color)

    def fills(self) -> tuple[Fill, ...]:
        return (self.color,)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        for rows in np.split(given_draw(self, draw, "the rectangles"), self.count, axis=1):
            if isinstance(self.value, str):
                paint_noise(batch, rows, is_flat=self.value == "random color")
            else:
                paint_rectangles(batch, rows, self.color)
        return batch
