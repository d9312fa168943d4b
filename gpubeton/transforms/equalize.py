"""RandomEqualize: make the levels of images equally frequent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.transforms.colour import checked_probability
from gpubeton.transforms.levels import EQUALIZE, LevelTransform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


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

    Examples
    --------
    >>> import numpy as np
    >>> image = np.repeat(np.arange(0, 64, dtype="uint8"), 12).reshape(1, 16, 16, 3)
    >>> RandomEqualize().apply(image, np.array([[EQUALIZE, 0]], "int32")).shape
    (1, 16, 16, 3)
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = checked_probability("RandomEqualize", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return self.chosen(uniform, count, EQUALIZE)
