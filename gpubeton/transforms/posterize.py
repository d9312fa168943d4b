"""RandomPosterize: leave images with few levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.errors import OptionError
from gpubeton.transforms.colour import checked_probability
from gpubeton.transforms.levels import POSTERIZE, LevelTransform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


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

    Examples
    --------
    >>> import numpy as np
    >>> image = np.array([[[[0, 127, 255]]]], "uint8")
    >>> RandomPosterize(2).apply(image, np.array([[POSTERIZE, 2]], "int32")).ravel().tolist()
    [0, 64, 192]
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        if bits != int(bits) or not 0 <= bits <= 8:
            raise OptionError(f"RandomPosterize: bits is {bits!r}; expected a number of bits from 0 to 8")
        self.bits = int(bits)
        self.p = checked_probability("RandomPosterize", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return self.chosen(uniform, count, POSTERIZE, self.bits)
