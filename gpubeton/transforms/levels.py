"""Operations that replace each level by another: autocontrast, equalize, invert, posterize, solarize."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import CHANNELS, ImageChange, as_nhwc, change_as_rgb
from gpubeton._batch.level_tables import AUTOCONTRAST, EQUALIZE, INVERT, KEEP, POSTERIZE, SOLARIZE, change_levels
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_number, check_probability
from gpubeton.transforms.checks import checked_type, checked_whole, given_draw, image_size
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class ChangeTransform(Transform):
    """An operation on levels, uint8, that is one `ImageChange`; `draw` gives its rows."""

    # What all of them compute is whole-number arithmetic: arrays and tensors of every device agree to the bit.

    is_random: ClassVar[bool] = True

    takes_any_kind: bool = False
    """Whether images may have one channel or four, and uint16."""

    takes_any_channels: ClassVar[bool] = False
    """Whether they may have one channel or four, as each channel is changed by itself."""

    @abstractmethod
    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[Any]: ...

    @abstractmethod
    def image_change(self) -> ImageChange:
        """Return the change that takes the rows of `draw`."""

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=self.takes_any_kind or self.takes_any_channels)
        types = ("uint8", "uint16") if self.takes_any_kind else ("uint8",)
        checked_type(self, state, types)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        rows = given_draw(self, draw, "what is done to each image")
        images, change = as_nhwc(batch), self.image_change()
        if self.takes_any_channels and images.shape[3] != CHANNELS:
            change_as_rgb(images, lambda part: change(part, rows))
        else:
            change(images, rows)
        return batch


class LevelTransform(ChangeTransform):
    """An operation on levels that happens with a probability: `draw` gives a kind and a parameter for each image."""

    takes_any_channels: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING
    kind: ClassVar[int]

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(f"{type(self).__name__}: p", p)

    @property
    def parameter(self) -> int:
        """Parameter of the kind."""
        return 0

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return np.where(uniform(1) < self.p, np.array([[self.kind, self.parameter]]), KEEP).astype(np.int32)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": self.draw(uniform, count, state)[:, 0] != KEEP}

    def image_change(self) -> ImageChange:
        return change_levels


class RandomAutocontrast(LevelTransform):
    """Stretch the levels of each channel to reach from 0 to 255, with a given probability for each image.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `p` is not from 0 to 1.

    Notes
    -----
    torchvision's ``RandomAutocontrast``, rounded down from the exact value: torchvision divides in float32, and is
    now and then a level below. A channel of a single level stays as it is.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> image = np.array([[[[10, 10, 7], [20, 10, 7], [15, 10, 8]]]], "uint8")
    >>> RandomAutocontrast().apply(image, np.array([[AUTOCONTRAST, 0]], "int32"))[0, 0].tolist()
    [[0, 10, 0], [255, 10, 0], [127, 10, 255]]
    """

    kind: ClassVar[int] = AUTOCONTRAST


class RandomEqualize(LevelTransform):
    """Spread the levels of each channel so that all are about as frequent, with a given probability for each image.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `p` is not from 0 to 1.

    Notes
    -----
    torchvision's and Pillow's rule, to the bit. A channel with fewer than 255 pixels below its largest level stays.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> image = np.repeat(np.arange(0, 64, dtype="uint8"), 12).reshape(1, 16, 16, 3)
    >>> RandomEqualize().apply(image, np.array([[EQUALIZE, 0]], "int32")).shape
    (1, 16, 16, 3)
    """

    kind: ClassVar[int] = EQUALIZE


class RandomInvert(LevelTransform):
    """Turn each image into its negative with a given probability.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `p` is not from 0 to 1.

    Notes
    -----
    torchvision's ``RandomInvert``.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> image = np.array([[[[0, 100, 255]]]], "uint8")
    >>> RandomInvert().apply(image, np.array([[INVERT, 0]], "int32")).ravel().tolist()
    [255, 155, 0]
    """

    kind: ClassVar[int] = INVERT


class RandomPosterize(LevelTransform):
    """Keep the upper bits of all levels and clear the others, with a given probability for each image.

    Parameters
    ----------
    bits : int
        How many bits are kept, 0 to 8.
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `bits` or `p` is out of its range.

    Notes
    -----
    torchvision's ``RandomPosterize``.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> image = np.array([[[[0, 127, 255]]]], "uint8")
    >>> RandomPosterize(2).apply(image, np.array([[POSTERIZE, 2]], "int32")).ravel().tolist()
    [0, 64, 192]
    """

    kind: ClassVar[int] = POSTERIZE

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits = checked_whole("RandomPosterize: bits", bits, 0, 8)
        super().__init__(p)

    @property
    def parameter(self) -> int:
        return self.bits


class RandomSolarization(LevelTransform):
    """Turn all levels from a threshold on into ``255 - level``, with a given probability for each image.

    Parameters
    ----------
    threshold : float
        The least level that is turned, 0 to 256.
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `threshold` or `p` is out of its range.

    Notes
    -----
    torchvision's ``RandomSolarize``. In the recipes of BYOL (arXiv:2006.07733) and DINO it has ``p=0.2`` in the second
    of two views.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> image = np.array([[[[0, 127, 128]]]], "uint8")
    >>> RandomSolarization(128).apply(image, np.array([[SOLARIZE, 128]], "int32")).ravel().tolist()
    [0, 127, 127]
    """

    kind: ClassVar[int] = SOLARIZE

    def __init__(self, threshold: float = 128, p: float = 0.5) -> None:
        check_number("RandomSolarization: threshold", threshold, 0, 256)
        if 0 < threshold < 1:
            raise OptionError(
                f"RandomSolarization: threshold is {threshold}; expected a level from 0 to 256. For a probability, "
                f"which is FFCV-SSL's first argument, write RandomSolarization(p={threshold})"
            )
        self.threshold = threshold
        super().__init__(p)

    @property
    def parameter(self) -> int:
        return math.ceil(self.threshold)
