"""Noise: normally distributed numbers as a function of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SCALE = 2.0**-32


def normal_noise(key: tuple[int, int], count: int) -> NDArray[np.float32]:
    """Make numbers of mean 0 and standard deviation 1, the same for the same key.

    numpy promises that the words of its bit generators stay the same in later versions, but not what its distributions
    make of them: so these are Box and Muller's, two of each word.

    Parameters
    ----------
    key : tuple of two int
        From 0, below 2**64.
    count : int
        How many.

    Returns
    -------
    ndarray of float32, shape (count,)
        From -6.8 to 6.8.

    Examples
    --------
    >>> normal_noise((7, 1), 3).astype(float).round(3).tolist()
    [-0.006, -0.5, -1.15]
    """
    words = np.random.Philox(key=np.array(key, np.uint64)).random_raw((count + 1) // 2).view(np.uint32).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log((words[:, 1] + 0.5) * _SCALE)).astype(np.float32)
    angle = (words[:, 0] * (2 * np.pi * _SCALE)).astype(np.float32)
    numbers = np.empty((len(words), 2), np.float32)
    np.multiply(radius, np.cos(angle), out=numbers[:, 0])
    np.multiply(radius, np.sin(angle), out=numbers[:, 1])
    return numbers.reshape(-1)[:count]
