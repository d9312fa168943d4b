"""RandomAutocontrast: stretch the levels of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.transforms.colour import checked_probability
from gpubeton.transforms.levels import AUTOCONTRAST, LevelTransform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


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

    Examples
    --------
    >>> import numpy as np
    >>> image = np.array([[[[10, 10, 7], [20, 10, 7], [15, 10, 8]]]], "uint8")
    >>> RandomAutocontrast().apply(image, np.array([[AUTOCONTRAST, 0]], "int32"))[0, 0].tolist()
    [[0, 10, 0], [255, 10, 0], [127, 10, 255]]
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = checked_probability("RandomAutocontrast", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return self.chosen(uniform, count, AUTOCONTRAST)
