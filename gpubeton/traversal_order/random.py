"""Random: the samples shuffled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubeton._plan.order import random
from gpubeton.traversal_order.base import GlobalOrder, OrderedLoader

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Random(GlobalOrder):
    """The samples shuffled for each epoch, as FFCV shuffles them for the same seed.

    Parameters
    ----------
    loader : Loader
        The loader that asks.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> loader = Loader("train.beton", 4, order=Random, seed=0, indices=[4, 7, 9, 11])
    >>> [loader.plan(epoch)[0].samples.tolist() for epoch in range(2)]
    [[9, 4, 7, 11], [4, 7, 9, 11]]
    """

    def __init__(self, loader: OrderedLoader) -> None:
        super().__init__(loader)
        self.for_ranks = self.rank is not None

    def global_ids(self, epoch: int) -> NDArray[Any]:
        return random(self.ids, self.seed, epoch, for_ranks=bool(self.for_ranks))
