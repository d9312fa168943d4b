"""Sequential: the samples as they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton.plan.order import sequential
from gpubeton.traversal_order.base import TraversalOrder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Sequential(TraversalOrder):
    """The samples in the order of the loader's indices.

    Parameters
    ----------
    loader : Loader
        The loader that asks.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> Loader("train.beton", 4, order=Sequential, indices=[4, 7, 9, 7]).plan()[0].samples.tolist()
    [4, 7, 9, 7]
    """

    def sample_order(self, epoch: int) -> NDArray[np.uint64]:
        sampled = self._sampled(epoch)
        return sequential(self.indices, self.rank) if sampled is None else sampled
