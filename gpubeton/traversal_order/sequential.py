"""Sequential: the samples as they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.order import IdRange
from gpubeton.traversal_order.base import GlobalOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Sequential(GlobalOrder):
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

    def global_ids(self, epoch: int) -> NDArray[Any] | IdRange:
        return self.ids if isinstance(self.ids, IdRange) else np.asarray(self.ids, np.uint64)
