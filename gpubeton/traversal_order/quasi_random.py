"""QuasiRandom: the samples shuffled, from few pages at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.plan.order import quasi_random, rows_of
from gpubeton.traversal_order.base import OrderedLoader, TraversalOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray


class QuasiRandom(TraversalOrder):
    """The samples shuffled so that at most ``2 * batch_size`` pages of the file are needed at a time.

    Parameters
    ----------
    loader : Loader
        The loader that asks; its file must have a field with regions, whose pages count.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> loader = Loader("train.beton", 4, order=QuasiRandom, seed=0, indices=[4, 7, 9, 11])
    >>> sorted(loader.plan()[0].samples.tolist())
    [4, 7, 9, 11]
    """

    def __init__(self, loader: OrderedLoader) -> None:
        super().__init__(loader)
        self.pages: NDArray[Any] = loader.sample_pages().astype(np.int32)  # it stays in memory

    def sample_order(self, epoch: int) -> NDArray[np.uint64]:
        pages = self.pages[rows_of(self.ids)]
        return quasi_random(self.ids, pages, self.loader.batch_size, self.seed, epoch, self.rank)
