"""Operations that replace each level by another: autocontrast, equalize, invert, posterize, solarize."""

from __future__ import annotations

import math
from typing import ClassVar

from gpubeton._batch.step_rows import AUTOCONTRAST, EQUALIZE, INVERT, POSTERIZE, SOLARIZE
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_number
from gpubeton.transforms.checks import checked_whole
from gpubeton.transforms.step_transform import RandomStep


class LevelTransform(RandomStep):
    """An operation on levels, of any number of channels."""

    takes_any_channels: bool = True


class RandomAutocontrast(LevelTransform):
    """Stretch the levels of each channel to reach from 0 to 255, with a given probability for each image.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's ``RandomAutocontrast``, rounded down from the exact value: torchvision divides in float32, and is
    now and then a level below. A channel of a single level stays as it is.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> import numpy as np
    >>> autocontrast = RandomAutocontrast(1).generate_code()
    >>> autocontrast(np.array([[[[10, 10, 7], [20, 10, 7], [15, 10, 8]]]], "uint8"))[0, 0].tolist()
    [[0, 10, 0], [255, 10, 0], [127, 10, 255]]
    """

    kind: ClassVar[int] = AUTOCONTRAST


class RandomEqualize(LevelTransform):
    """Spread the levels of each channel so that all are about as frequent, with a given probability for each image.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's and Pillow's rule, to the bit. A channel with fewer than 255 pixels below its largest level stays.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> import numpy as np
    >>> image = np.repeat(np.arange(64, dtype="uint8"), 24).reshape(1, 32, 16, 3)
    >>> int(RandomEqualize(1).generate_code()(image).max())
    255
    """

    kind: ClassVar[int] = EQUALIZE


class RandomInvert(LevelTransform):
    """Turn each image into its negative with a given probability.

    Parameters
    ----------
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's ``RandomInvert``.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> import numpy as np
    >>> RandomInvert(1).generate_code()(np.array([[[[0, 100, 255]]]], "uint8")).ravel().tolist()
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

    Notes
    -----
    torchvision's ``RandomPosterize``.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> import numpy as np
    >>> RandomPosterize(2, 1).generate_code()(np.array([[[[0, 127, 255]]]], "uint8")).ravel().tolist()
    [0, 64, 192]
    """

    kind: ClassVar[int] = POSTERIZE

    def __init__(self, bits: int, p: float = 0.5) -> None:
        self.bits = checked_whole("RandomPosterize: bits", bits, 0, 8)
        super().__init__(p)

    @property
    def parameters(self) -> tuple[int, ...]:
        return (self.bits,)


class RandomSolarization(LevelTransform):
    """Turn all levels from a threshold on into ``255 - level``, with a given probability for each image.

    Parameters
    ----------
    threshold : float
        The least level that is turned, 0 to 256.
    p : float
        Probability for each image, 0 to 1.

    Notes
    -----
    torchvision's ``RandomSolarize``. In the recipes of BYOL (arXiv:2006.07733) and DINO it has ``p=0.2`` in the second
    of two views.

    `DrawnParameters` has, for each image, whether it was done, bool (N,).

    Examples
    --------
    >>> import numpy as np
    >>> RandomSolarization(128, 1).generate_code()(np.array([[[[0, 127, 128]]]], "uint8")).ravel().tolist()
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
    def parameters(self) -> tuple[int, ...]:
        return (math.ceil(self.threshold),)
