"""RandomInvert: turn images into their negatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.transforms.colour import checked_probability
from gpubeton.transforms.levels import INVERT, LevelTransform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


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

    Examples
    --------
    >>> import numpy as np
    >>> image = np.array([[[[0, 100, 255]]]], "uint8")
    >>> RandomInvert().apply(image, np.array([[INVERT, 0]], "int32")).ravel().tolist()
    [255, 155, 0]
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = checked_probability("RandomInvert", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return self.chosen(uniform, count, INVERT)
