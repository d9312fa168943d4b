"""RandomGrayscale: take the colour out of some images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.transforms.colour import ColourTransform, checked_probability, factors, step_rows
from gpubeton.transforms.colour_kinds import SATURATION

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


class RandomGrayscale(ColourTransform):
    """Make an image gray, with three equal channels, with a given probability.

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
    The gray value is torchvision's: ``floor(0.2989 * red + 0.587 * green + 0.114 * blue)``.

    Examples
    --------
    >>> image = np.array([[[[100, 150, 200]]]], "uint8")
    >>> RandomGrayscale(1.0).apply(image, np.array([[2, 0]], "int32")).ravel().tolist()
    [140, 140, 140]
    """

    def __init__(self, p: float = 0.1) -> None:
        self.p = checked_probability("RandomGrayscale", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return step_rows(SATURATION, np.where(uniform(1)[:, 0] < self.p, 0.0, 1.0))

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": factors(self.draw(uniform, count, state))[:, 0] == 0}
