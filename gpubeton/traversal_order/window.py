"""Window: the samples shuffled, from a window of pages that moves through the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._plan.order import LazyIds, StreamPlaces, WindowIds, WindowOrder, ids_and_runs
from gpubeton.pipeline.validation import check_whole
from gpubeton.traversal_order.base import GlobalOrder, OrderedLoader

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Samples of a run on average, from which on the order is made block by block.
_RUN = 8


class Window(GlobalOrder):
    """The samples shuffled so that each rank reads whole pages of the file, a few at a time, each of them once.

    The samples are divided into streams of randomly chosen pages. A batch takes samples from all streams in turn; a
    stream mixes the samples of `width` pages, which move on page by page. So about ``streams * width`` pages are in use
    at a time by all ranks together, and about ``streams * width / world`` by one of them.

    Parameters
    ----------
    loader : Loader
        The loader that asks; its file must have a field with regions, whose pages count.
    streams : int
        Number of streams. If the number of ranks divides it, no two ranks read the same page, except at the ends of
        the streams. Of others, neighbors share a stream, and its pages. With more ranks than streams, each page is
        read by several.
    width : int
        Pages that a stream mixes. More pages mix better and need more memory.

    Raises
    ------
    OptionError
        If `streams` or `width` is no whole number from 1 on; `width` is at most 65,536.

    Notes
    -----
    The order is a function of the seed, the epoch, the file's pages, `streams` and `width`. It does not depend on the
    number of ranks or the batch size: any number of ranks can go on with an epoch. Which rank has which samples of a
    batch of all ranks does: every world-th where the number of ranks divides `streams`, else those of streams next to
    each other.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> loader = Loader("train.beton", 4, order=Window, order_kwargs={"width": 2}, seed=0, indices=[4, 7, 9, 11])
    >>> sorted(loader.plan()[0].samples.tolist())
    [4, 7, 9, 11]
    """

    def __init__(self, loader: OrderedLoader, streams: int = 64, width: int = 16) -> None:
        super().__init__(loader)
        self.runs = loader.reader.index.page_runs()
        self.streams = check_whole("streams", streams, 1)
        self.width = check_whole("width", width, 1, 1 << 16)

    def global_ids(self, epoch: int) -> NDArray[Any] | LazyIds:
        ids, runs = ids_and_runs(self.ids, self.runs)
        order = WindowIds.all(WindowOrder(ids, runs, self.streams, self.width, self.seed, epoch))
        # Where neighbors are in different pages, the order takes less memory than its parts.
        return order if len(runs.page) * _RUN <= len(ids) else order[:]

    def _share(self, ids: NDArray[Any] | LazyIds, first: int) -> NDArray[Any] | LazyIds:
        if self.rank is None or self.streams % self.rank.world == 0:
            return super()._share(ids, first)
        # Every world-th sample would be from nearly all streams: each page would be read by most ranks.
        places = StreamPlaces(self.rank, self.streams, self.loader.batch_size, first, len(ids))
        return (
            WindowIds(ids.order, places)
            if isinstance(ids, WindowIds)
            else np.asarray(ids)[places[:] % max(len(ids), 1)]
        )
