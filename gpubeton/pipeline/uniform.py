"""Uniform: where an operation gets its random numbers from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Uniform(Protocol):
    """Uniform random numbers of the samples of one batch, for one operation.

    Asking twice gives the same numbers twice: column k of sample n depends on the seed, the epoch, the sample and the
    operation alone.
    """

    def __call__(self, count: int, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """Return the first `count` numbers of each sample.

        Parameters
        ----------
        count : int
            Numbers per sample.
        rows : ndarray of intp, shape (R,), optional
            Rows of the batch for which they are wanted; all of them by default.

        Returns
        -------
        ndarray of float64, shape (N, count) or (R, count)
            Each at least 0 and less than 1.
        """
        ...
