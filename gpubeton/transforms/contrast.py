"""RandomContrast: move images away from their mean gray, or towards it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpubeton.transforms.colour import ColourTransform, checked_limits, checked_probability, draw_blend, factors
from gpubeton.transforms.colour_kinds import CONTRAST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class RandomContrast(ColourTransform):
    """Mix each image with its mean gray value, with a given probability.

    Parameters
    ----------
    magnitude : float
        Factors are drawn from ``max(0, 1 - magnitude)`` to ``1 + magnitude``; at most 255. With 0 an image is its mean,
        with 1 it stays as it is.
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `magnitude` or `p` is out of its range.

    Notes
    -----
    FFCV's values: gray values are rounded down before the mean is taken of them, the result is cut off at 0 and 255 and
    rounded down. The factors come from the loader's seed (FFCV's do not), and are multiples of 2**-15. Floating-point
    images, as after ``NormalizeImage``, are rounded to no whole number, but cut off at 0 and 255 all the same.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.array([[[[1, 1, 1], [101, 101, 101]]]], "uint8")  # gray values 0 and 100
    >>> RandomContrast(0.5).apply(image, np.array([[1, 16384]], "int32"))[0, 0, :, 0].tolist()  # 0.5 * 2**15
    [25, 75]
    """

    takes_any_channels: ClassVar[bool] = True
    takes_floats: ClassVar[bool] = True

    def __init__(self, magnitude: float, p: float = 0.5) -> None:
        checked_limits("RandomContrast", "magnitude", magnitude)
        self.magnitude = float(magnitude)
        self.p = checked_probability("RandomContrast", p)

    @property
    def num_contrasts(self) -> int:
        return 1

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        limits = checked_limits("RandomContrast", "magnitude", self.magnitude)
        return draw_blend(CONTRAST, uniform, limits, self.p)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": factors(self.draw(uniform, count, state))[:, 0]}
