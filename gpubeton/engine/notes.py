"""Notes: which samples an error speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Samples that a note lists one by one.
_MAX_LISTED = 8


def listed(samples: NDArray[np.uint64]) -> str:
    """Write sample ids down, the first few of many.

    Parameters
    ----------
    samples : ndarray of uint64, shape (N,)
        Sample ids.

    Returns
    -------
    str
        E.g. ``"3, 1, 4"``.

    Examples
    --------
    >>> import numpy as np
    >>> listed(np.array([3, 1, 4], "u8"))
    '3, 1, 4'
    """
    text = ", ".join(map(str, samples[:_MAX_LISTED].tolist()))
    return text if len(samples) <= _MAX_LISTED else f"{text}, ... ({len(samples)} in all)"
