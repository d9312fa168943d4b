"""QuasiRandom: the samples shuffled, from few pages at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubeton._plan.order import ids_and_runs, quasi_random
from gpubeton.traversal_order.base import OrderedLoader, TraversalOrder

if TYPE_CHECKING:
    import numpy as np
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
        self.runs = loader.reader.index.page_runs()

    def sample_order(self, epoch: int) -> NDArray[np.uint64]:
        ids, runs = ids_and_runs(self.ids, self.runs)
        return quasi_random(ids, runs, self.loader.batch_size, self.seed, epoch, self.rank)
