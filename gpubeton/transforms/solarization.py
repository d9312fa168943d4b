"""RandomSolarization: turn the light parts of images into their negatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpubeton.errors import OptionError
from gpubeton.transforms.colour import checked_probability
from gpubeton.transforms.levels import SOLARIZE, LevelTransform

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


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

    Examples
    --------
    >>> import numpy as np
    >>> image = np.array([[[[0, 127, 128]]]], "uint8")
    >>> RandomSolarization(128).apply(image, np.array([[SOLARIZE, 128]], "int32")).ravel().tolist()
    [0, 127, 127]
    """

    def __init__(self, threshold: float = 128, p: float = 0.5) -> None:
        if not 0 <= threshold <= 256:
            raise OptionError(f"RandomSolarization: threshold is {threshold!r}; expected a level from 0 to 256")
        self.threshold = threshold
        self.p = checked_probability("RandomSolarization", p)

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        return self.chosen(uniform, count, SOLARIZE, math.ceil(self.threshold))
