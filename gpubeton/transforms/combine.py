"""RandomApply, RandomChoice and RandomOrder: operations at random; and ThreeAugment, which is a choice of three."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.step_rows import STEP_COLUMNS
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_number, check_probability
from gpubeton.transforms.blur import RandomGaussianBlur
from gpubeton.transforms.checks import checked_type, image_size
from gpubeton.transforms.color_jitter import RandomGrayscale
from gpubeton.transforms.cutout import RandomErasing
from gpubeton.transforms.levels import RandomSolarization
from gpubeton.transforms.mixup import ImageMixing
from gpubeton.transforms.step_transform import RowTransform, StepTransform
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class Combination(StepTransform):
    """Operations that are carried out at random; each draws its numbers after those of the ones before it."""

    decision: ClassVar[str]  # name of the result of `decide`
    moves_only: bool = False  # whether operations that move nothing are left out, for what follows an image

    def __init__(self, transforms: Sequence[RowTransform]) -> None:
        name = type(self).__name__
        self.transforms: tuple[RowTransform, ...] = tuple(map(copy.copy, transforms))
        if not self.transforms:
            raise OptionError(f"{name}: transforms are empty; expected at least one operation")
        for transform in self.transforms:
            is_other = isinstance(transform, RandomErasing) and (
                isinstance(transform.value, str) or transform.count > 1
            )
            if is_other or not isinstance(transform, RowTransform):
                mixes = " For mixup or CutMix: ImageMixupOrCutMix" * isinstance(transform, ImageMixing)
                raise OptionError(
                    f"{name}: {transform!r} cannot be carried out at random; expected operations on the levels of "
                    f"single images that keep their size: colors, flips, warps, policies, one rectangle of one color."
                    f"{mixes}"
                )

    @property
    def moves(self) -> Moves:
        return max((transform.moves for transform in self.transforms), key=list(Moves).index)

    @property
    def kinds(self) -> frozenset[int]:
        return frozenset().union(*(transform.kinds for transform in self.transforms))

    @property
    def num_rows(self) -> int:
        return sum(self.sizes)

    @property
    def num_numbers(self) -> int:
        return self._first(len(self.transforms))

    @property
    def sizes(self) -> list[int]:
        """Step rows of each operation."""
        return [transform.num_rows for transform in self.transforms]

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=True)
        checked_type(self, state, ("uint8", "uint16"))
        for transform in self.transforms:
            if not self._is_left_out(transform):
                transform.check_state(state)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        followers = [
            transform if transform.moves is Moves.NOTHING else transform.follower(interpolation, fill)
            for transform in self.transforms
        ]
        return self.changed(transforms=tuple(followers), moves_only=True)

    @abstractmethod
    def decide(self, uniform: Uniform) -> NDArray[Any]:
        """Decide for each image which are carried out, or when, with at most a random number for each."""

    @abstractmethod
    def starts(self, decided: NDArray[Any]) -> NDArray[np.intp]:
        """Return the first row of each operation, (N, K); -1 of those that are not carried out."""

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        rows, starts = np.zeros((count, self.num_rows, STEP_COLUMNS), np.int32), self.starts(self.decide(uniform))
        for number, (transform, size) in enumerate(zip(self.transforms, self.sizes, strict=True)):
            if self._is_left_out(transform):
                continue
            chosen = np.flatnonzero(starts[:, number] >= 0)
            places = starts[chosen, number, None] + np.arange(size)
            numbers = self.numbers_of(number, uniform, chosen)
            rows[chosen[:, None], places] = transform.draw_rows(numbers, len(chosen), state)
        return rows

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        every, named = np.arange(count), {self.decision: self.decide(uniform)}
        for number, transform in enumerate(self.transforms):
            for name, values in transform.drawn(self.numbers_of(number, uniform, every), count, state).items():
                named[f"{number}.{name}" if name else f"{number}"] = values
        return named

    def _is_left_out(self, transform: Transform) -> bool:
        return self.moves_only and transform.moves is Moves.NOTHING

    def _first(self, number: int) -> int:
        """Return the place of the first random number of an operation."""
        return len(self.transforms) + sum(transform.num_numbers for transform in self.transforms[:number])

    def numbers_of(self, number: int, uniform: Uniform, chosen: NDArray[np.intp]) -> Uniform:
        """Return the random numbers of an operation, of some images."""
        first = self._first(number)

        def numbers(count: int, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
            return uniform(first + count, chosen if rows is None else chosen[rows])[:, first:]

        return numbers


class RandomApply(Combination):
    """Carry out all of some operations with a given probability for each image, or none of them.

    Parameters
    ----------
    transforms : sequence of operations
        Operations on the levels of single images that keep their size.
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's ``RandomApply``. Boxes and masks follow if they can follow all of the operations.

    `DrawnParameters` has, for each image, ``applied``, bool (N,), and the parameters of the operations under their
    numbers, such as ``0.angle``, also where they were not carried out.

    Examples
    --------
    >>> from gpubeton.transforms import ColorJitter, RandomGrayscale
    >>> apply = RandomApply([ColorJitter(0.4, 0.4), RandomGrayscale(0.2)], p=0.8)
    >>> apply.generate_code()(np.zeros((4, 32, 32, 3), "uint8")).shape
    (4, 32, 32, 3)
    """

    decision: ClassVar[str] = "applied"

    def __init__(self, transforms: Sequence[RowTransform], p: float = 0.5) -> None:
        super().__init__(transforms)
        self.p = check_probability("RandomApply: p", p)

    def decide(self, uniform: Uniform) -> NDArray[np.bool_]:
        return uniform(1)[:, 0] < self.p

    def starts(self, decided: NDArray[np.bool_]) -> NDArray[np.intp]:
        return np.where(decided[:, None], np.cumsum(self.sizes) - self.sizes, -1)


class RandomChoice(Combination):
    """Carry out one of some operations, picked for each image.

    Parameters
    ----------
    transforms : sequence of operations
        As for `RandomApply`.
    p : sequence of float, optional
        How likely each is, in parts of their sum; all the same by default.

    Notes
    -----
    torchvision's ``RandomChoice``. Boxes and masks follow if they can follow all of the operations.

    `DrawnParameters` has, for each image, ``choice``, the operation's number, int64 (N,), and the parameters of all of
    them under their numbers, as for `RandomApply`.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> from gpubeton.transforms import RandomInvert, RandomQuarterTurn
    >>> choice = RandomChoice([RandomInvert(1), RandomQuarterTurn(1)], p=[1, 3])
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> choice.drawn(lambda count, rows=None: np.array([[0.2], [0.3]]).repeat(count, 1), 2, state)["choice"].tolist()
    [0, 1]
    """

    decision: ClassVar[str] = "choice"

    def __init__(self, transforms: Sequence[RowTransform], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        name = type(self).__name__
        self.p = None if p is None else tuple(check_number(f"{name}: p", share, 0) for share in p)
        if self.p is not None and (len(self.p) != len(self.transforms) or sum(self.p) == 0):
            raise OptionError(f"{name}: p is {p}; expected {len(self.transforms)} numbers, not all 0")

    @property
    def num_rows(self) -> int:
        return max(self.sizes)

    def decide(self, uniform: Uniform) -> NDArray[np.intp]:
        sums = np.cumsum(self.p or [1] * len(self.transforms))
        choice: NDArray[np.intp] = np.searchsorted(sums, uniform(1)[:, 0] * sums[-1], side="right")
        return choice

    def starts(self, decided: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.where(decided[:, None] == np.arange(len(self.transforms)), 0, -1)


class RandomOrder(Combination):
    """Carry out some operations in random order, another one for each image.

    Parameters
    ----------
    transforms : sequence of operations
        As for `RandomApply`.

    Notes
    -----
    torchvision's ``RandomOrder``. Boxes and masks follow if they can follow all of the operations.

    `DrawnParameters` has, for each image, ``order``, the operations' numbers, int64 (N, K), and the parameters of all
    of them under their numbers, as for `RandomApply`.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> from gpubeton.transforms import RandomAutocontrast, RandomInvert
    >>> order = RandomOrder([RandomAutocontrast(1), RandomInvert(1)])
    >>> state = State(True, "cpu", (32, 32, 3), np.dtype("uint8"))
    >>> order.drawn(lambda count, rows=None: np.array([[0.7, 0.2, 0, 0]])[:, :count], 1, state)["order"].tolist()
    [[1, 0]]
    """

    decision: ClassVar[str] = "order"

    def decide(self, uniform: Uniform) -> NDArray[np.intp]:
        return np.argsort(uniform(len(self.transforms)), axis=1, kind="stable")

    def starts(self, decided: NDArray[np.intp]) -> NDArray[np.intp]:
        starts, sizes = np.empty_like(decided), np.array(self.sizes)[decided]
        np.put_along_axis(starts, decided, np.cumsum(sizes, axis=1) - sizes, axis=1)
        return starts


class ThreeAugment(RandomChoice):
    """Make each image gray, or solarize or blur it: one of the three, all equally likely.

    Notes
    -----
    From Touvron, Cord and Jégou, "DeiT III: Revenge of the ViT" (ECCV 2022, arXiv:2204.07118), whose recipe has a
    `ColorJitter` of 0.3 after it: levels from 128 on are turned; the blur has a standard deviation of 0.1 to 2 pixels.

    `DrawnParameters` has, for each image, ``choice``, 0 for gray, 1 for solarized and 2 for blurred, int64 (N,).

    Examples
    --------
    >>> [type(transform).__name__ for transform in ThreeAugment().transforms]
    ['RandomGrayscale', 'RandomSolarization', 'RandomGaussianBlur']
    """

    def __init__(self) -> None:
        # The kernel reaches three standard deviations of the widest blur.
        super().__init__([RandomGrayscale(1), RandomSolarization(128, 1), RandomGaussianBlur(13, (0.1, 2.0), 1)])

    def __repr__(self) -> str:
        return "ThreeAugment()"
