"""RandomRotation, RandomAffine and RandomPerspective: rotate, shift, scale and shear images, or turn them in space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from gpubeton._batch.step_rows import (
    PERSPECTIVE,
    WARP_BILINEAR,
    WARP_NEAREST,
    fill_columns,
    num_rows_of,
    step_rows,
    words,
)
from gpubeton._batch.warp_steps import IDENTITY, MOST_PIXELS, perspective_rows
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.validation import check_number, check_pair, check_probability, check_range, check_spread
from gpubeton.transforms.checks import image_size
from gpubeton.transforms.step_transform import FilledSteps
from gpubeton.transforms.transform import Moves, between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class RandomWarp(FilledSteps):
    """A warp that is drawn for each image."""

    takes_any_kind = True
    moves: ClassVar[Moves] = Moves.FREELY

    def __init__(self, interpolation: str, fill: Sequence[float], p: float) -> None:
        super().__init__(interpolation, fill)
        self.p = check_probability(f"{type(self).__name__}: p", p)

    @property
    def kinds(self) -> frozenset[int]:
        return frozenset({warp_kind(self.interpolation)})


class RandomRotation(RandomWarp):
    """Turn each image around its middle by a random angle.

    Parameters
    ----------
    degrees : float or sequence of two floats
        Angles are drawn from ``-degrees`` to ``degrees``, or from the first to the second; counter-clockwise.
    interpolation : {"nearest", "bilinear"}
        How pixels are read between others.
    fill : sequence of three numbers
        Levels of the area outside the image.
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's ``RandomRotation``, with another angle for each image, and the image's size kept. At the border
    "bilinear" weighs the fill with the image once, where torchvision does so twice.

    `DrawnParameters` has, for each image, the degrees counter-clockwise, float64 (N,).

    Examples
    --------
    >>> image = np.arange(1, 4, dtype="uint8").reshape(1, 1, 3, 1).repeat(3, axis=3)
    >>> turned = warp_steps("nearest", (0, 0, 0), affine_rows((1, 3), angle=180.0))
    >>> RandomRotation(180).apply(image, turned)[0, 0, :, 0].tolist()
    [3, 2, 1]
    """

    num_numbers: ClassVar[int] = 2

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: Sequence[float] = (0, 0, 0),
        p: float = 1.0,
    ) -> None:
        self.degrees = check_spread("RandomRotation: degrees", degrees)
        super().__init__(interpolation, fill, p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        angle = self.drawn(uniform, count, state)[""]
        warps = affine_rows(image_size(self, state, any_channels=True), angle=-angle)
        return warp_steps(self.interpolation, self.fill, warps)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        numbers = uniform(2)
        return {"": np.where(numbers[:, 0] < self.p, between(self.degrees, numbers[:, 1]), 0.0)}


class RandomAffine(RandomWarp):
    """Shear, scale, turn and shift each image by random amounts; its middle is the center.

    Parameters
    ----------
    degrees : float or sequence of two floats
        Angles are drawn from ``-degrees`` to ``degrees``, or from the first to the second; clockwise.
    translate : sequence of two floats, optional
        Largest shift along x and y, as shares of width and height; rounded to pixels. Without it nothing is shifted.
    scale : sequence of two floats, optional
        Least and largest factor. Without it nothing is scaled.
    shear : float or sequence of two or four floats, optional
        Degrees: a range around 0 along x, or its ends, or the ends along x and y. Without it nothing is sheared.
    interpolation, fill, p
        As for `RandomRotation`.

    Notes
    -----
    torchvision's ``RandomAffine``, with other numbers for each image.

    `DrawnParameters` has, for each image, ``angle``, degrees clockwise, and ``scale``, a factor, float64 (N,);
    ``translate``, pixels to the right and down, and ``shear``, degrees along x and y, float64 (N, 2).

    Examples
    --------
    >>> image = np.arange(1, 4, dtype="uint8").reshape(1, 1, 3, 1).repeat(3, axis=3)
    >>> moved = warp_steps("nearest", (0, 0, 0), affine_rows((1, 3), translate=(1.0, 0.0)))
    >>> RandomAffine(0).apply(image, moved)[0, 0, :, 0].tolist()
    [0, 1, 2]
    """

    num_numbers: ClassVar[int] = 7

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: Literal["nearest", "bilinear"] = "nearest",
        fill: Sequence[float] = (0, 0, 0),
        p: float = 1.0,
    ) -> None:
        self.degrees = check_spread("RandomAffine: degrees", degrees)
        self.translate = check_pair("RandomAffine: translate", (0.0, 0.0) if translate is None else translate, 0, 1)
        self.scale = check_range("RandomAffine: scale", (1.0, 1.0) if scale is None else scale, 2**-8, 2**8)
        numbers = (0.0, 0.0, 0.0, 0.0) if shear is None else np.ravel(shear).tolist()
        along_x = numbers[:2] if len(numbers) > 1 else numbers[0]
        across, down = (check_spread("RandomAffine: shear", ends) for ends in (along_x, numbers[2:] or (0.0, 0.0)))
        self.shear = *across, *down
        if max(map(abs, self.shear)) > 89:
            raise OptionError(f"RandomAffine: shear is {shear!r}; expected degrees of at most 89")
        super().__init__(interpolation, fill, p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        changes: dict[str, Any] = self.drawn(uniform, count, state)
        changes |= {name: tuple(changes[name].T) for name in ("translate", "shear")}
        warps = affine_rows(image_size(self, state, any_channels=True), **changes)
        return warp_steps(self.interpolation, self.fill, warps)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        numbers = uniform(7).T
        height, width = image_size(self, state, any_channels=True)
        right, down = self.translate[0] * width, self.translate[1] * height
        shift = between((-right, right), numbers[2]), between((-down, down), numbers[3])
        shear = between(self.shear[:2], numbers[5]), between(self.shear[2:], numbers[6])
        changes = {
            "angle": between(self.degrees, numbers[1]),
            "translate": np.rint(np.stack(shift, axis=1)),
            "scale": between(self.scale, numbers[4]),
            "shear": np.stack(shear, axis=1),
        }
        for name, values in changes.items():
            values[numbers[0] >= self.p] = name == "scale"
        return changes


def affine_rows(
    size: tuple[int, int],
    angle: Any = 0.0,  # (N,): degrees, clockwise
    translate: tuple[Any, Any] = (0.0, 0.0),
    scale: Any = 1.0,
    shear: tuple[Any, Any] = (0.0, 0.0),
    center: tuple[float, float] = (0.0, 0.0),
) -> NDArray[np.int64]:  # (N, 6) int64
    """Make the warps of images that are sheared, scaled, turned and then shifted."""
    # torchvision's ``affine``.
    angle, right, down, scale, shear_x, shear_y = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(value, np.float64)) for value in (angle, *translate, scale, *shear))
    )
    angle, shear_x, shear_y = np.radians(angle), np.radians(shear_x), np.radians(shear_y)
    # Forward, for a scale of 1: ((p, q), (r, s)), whose determinant is 1.
    p = np.cos(angle - shear_y) / np.cos(shear_y)
    q = -p * np.tan(shear_x) - np.sin(angle)
    r = np.sin(angle - shear_y) / np.cos(shear_y)
    s = np.cos(angle) - r * np.tan(shear_x)
    a, b, d, e = s / scale, -q / scale, -r / scale, p / scale
    middle_x, middle_y = (size[1] - 1) / 2, (size[0] - 1) / 2
    from_x, from_y = middle_x + center[0] + right, middle_y + center[1] + down
    c = middle_x + center[0] - a * from_x - b * from_y
    f = middle_y + center[1] - d * from_x - e * from_y
    rows: NDArray[np.int64] = np.rint(np.stack([a, b, c, d, e, f], axis=1) * 2.0**32).astype(np.int64)
    return rows


def warp_kind(interpolation: str) -> int:
    """Return the kind of an affine warp."""
    return WARP_NEAREST if interpolation == "nearest" else WARP_BILINEAR


def warp_steps(interpolation: str, fill: Fill, warps: NDArray[np.int64]) -> NDArray[np.int32]:
    """Write an affine warp, (N, 6), of each image; see `gpubeton._batch.warp_steps`."""
    parameters = np.hstack([np.tile(fill_columns(fill), (len(warps), 1)), words(warps)])
    return step_rows(warp_kind(interpolation), parameters, (warps != IDENTITY).any(axis=1))


_COLUMNS = 2 + 2 * 9 + 1  # fill, numbers of `perspective_rows`, whether it is bilinear


class RandomPerspective(RandomWarp):
    """Move the corners of each image towards its middle by random amounts, with a given probability.

    Parameters
    ----------
    distortion_scale : float
        How far corners may move, as a share of the way to the middle, 0 to 1.
    p : float
        Probability for each image, 0 to 1.
    interpolation, fill
        As for `RandomRotation`.

    Notes
    -----
    torchvision's ``RandomPerspective``, with other corners for each image. Masks follow. Images have at most
    8,192 pixels along an axis.

    `DrawnParameters` has, for each image, where its corners went, int32 (N, 4, 2): x and y of the upper left one, and
    on clockwise.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> state = State(True, "cpu", (8, 8, 3), np.dtype("uint8"))
    >>> RandomPerspective(1.0).drawn(lambda count: np.zeros((1, count)), 1, state)[""].tolist()
    [[[0, 0], [3, 0], [3, 3], [0, 3]]]
    """

    kinds: ClassVar[frozenset[int]] = frozenset({PERSPECTIVE})
    num_rows: ClassVar[int] = num_rows_of(_COLUMNS)
    num_numbers: ClassVar[int] = 9

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Literal["nearest", "bilinear"] = "bilinear",
        fill: Sequence[float] = (0, 0, 0),
    ) -> None:
        self.distortion_scale = check_number("RandomPerspective: distortion_scale", distortion_scale, 0, 1)
        super().__init__(interpolation, fill, p)

    def check_state(self, state: State) -> None:
        super().check_state(state)
        height, width = image_size(self, state, any_channels=True)
        if max(height, width) > MOST_PIXELS:
            raise PipelineError(
                f"RandomPerspective takes images of at most {MOST_PIXELS:,} pixels along an axis, but here they have "
                f"{height:,} x {width:,}. Put it after an operation that crops or resizes them."
            )

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        start, end = self._corners(uniform, state)
        numbers = perspective_rows(np.broadcast_to(start, end.shape), end)
        parameters = np.empty((count, _COLUMNS), np.int32)
        parameters[:, :2], parameters[:, 2:-1] = fill_columns(self.fill), words(numbers)
        parameters[:, -1] = self.interpolation == "bilinear"
        return step_rows(PERSPECTIVE, parameters, (end != start).any(axis=(1, 2)))

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": self._corners(uniform, state)[1]}

    def _corners(self, uniform: Uniform, state: State) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the corners of an image, (1, 4, 2), and where they go, (N, 4, 2)."""
        height, width = image_size(self, state, any_channels=True)
        most = np.array([int(self.distortion_scale * (side // 2)) + 1 for side in (width, height)])
        is_far = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.int32)[None]  # from the left and from the top
        start = is_far * np.array([width - 1, height - 1], np.int32)
        numbers = uniform(9)
        moved = (numbers[:, 1:].reshape(-1, 4, 2) * most).astype(np.int32)
        end = moved + is_far * (np.array([width, height]) - most).astype(np.int32)
        return start, np.where(numbers[:, :1, None] < self.p, end, start)
