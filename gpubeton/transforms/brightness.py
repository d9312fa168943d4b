"""RandomBrightness: make images lighter or darker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpubeton.transforms.colour import ColourTransform, checked_limits, checked_probability, draw_blend, factors
from gpubeton.transforms.colour_kinds import BRIGHTNESS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class RandomBrightness(ColourTransform):
    """Multiply all levels of an image by a random factor, with a given probability.

    Parameters
    ----------
    magnitude : float
        Factors are drawn from ``max(0, 1 - magnitude)`` to ``1 + magnitude``; at most 255.
    p : float
        Probability for each image, 0 to 1.

    Raises
    ------
    OptionError
        If `magnitude` or `p` is out of its range.

    Notes
    -----
    FFCV's values: cut off at 255 and rounded down. The factors come from the loader's seed (FFCV's do not), and are
    multiples of 2**-15. Floating-point images, as after ``NormalizeImage``, are rounded to no whole number, but cut off
    at 0 and 255 all the same.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.full((1, 1, 1, 3), 100, "uint8")
    >>> RandomBrightness(0.5).apply(image, np.array([[0, 40960]], "int32")).ravel().tolist()  # 1.25 * 2**15
    [125, 125, 125]
    """

    takes_any_channels: ClassVar[bool] = True
    takes_floats: ClassVar[bool] = True

    def __init__(self, magnitude: float, p: float = 0.5) -> None:
        checked_limits("RandomBrightness", "magnitude", magnitude)
        self.magnitude = float(magnitude)
        self.p = checked_probability("RandomBrightness", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        limits = checked_limits("RandomBrightness", "magnitude", self.magnitude)
        return draw_blend(BRIGHTNESS, uniform, limits, self.p)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": factors(self.draw(uniform, count, state))[:, 0]}
