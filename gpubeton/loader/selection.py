"""Which samples of a loader meet a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gpubeton.loader.loader import Loader


def select_samples(scan: Loader, condition: Callable[[Any], bool]) -> NDArray[np.uint64]:
    """Go through a loader of one output, and keep the samples whose value meets a condition.

    Parameters
    ----------
    scan : Loader
        Gives the values; it is closed afterwards.
    condition : callable
        Called with the value of each sample, a row of the output.

    Returns
    -------
    ndarray of uint64, shape (N,)
        Ids of those for which it returned something true, in the loader's order.
    """
    kept: list[int] = []
    batches = iter(scan)
    try:
        for (values,) in batches:
            # The iterator knows the ids, whatever the indices are and whichever samples were left out.
            rows = zip(batches.samples.tolist(), values, strict=True)
            kept.extend(sample for sample, value in rows if condition(value))
    finally:
        scan.close()
    return np.array(kept, np.uint64)
