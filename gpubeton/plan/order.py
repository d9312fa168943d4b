"""Orders: in which order an epoch goes through the samples.

`sequential` and `random` are FFCV's, number for number. `quasi_random` takes its samples from few pages at a time. Over
several ranks, each gets an equal share, and samples are repeated where they cannot be shared evenly, as torch's
``DistributedSampler`` does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpubeton.errors import OptionError
from gpubeton.plan.philox import sort_keys

Ids = NDArray[np.uint64]

_PAGE_STREAM, _SAMPLE_STREAM = 1, 2


@dataclass(frozen=True)
class Rank:
    """One of several processes that share an epoch.

    Parameters
    ----------
    number : int
        Which of them, from 0.
    world : int
        How many there are.

    Raises
    ------
    OptionError
        If there is no such rank.

    Examples
    --------
    >>> sequential([10, 20, 30], Rank(1, world=2)).tolist()
    [20, 10]
    """

    number: int
    world: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.world:
            raise OptionError(f"rank {self.number} of {self.world}; expected a rank from 0 to {self.world - 1}")

    def share(self, count: int) -> int:
        """How many samples each rank gets.

        Parameters
        ----------
        count : int
            Samples to share.

        Returns
        -------
        int
            ``ceil(count / world)``: the same for every rank, repeated samples included.
        """
        return -(-count // self.world)


def sequential(indices: ArrayLike, rank: Rank | None = None) -> Ids:
    """The samples as they are listed.

    Parameters
    ----------
    indices : array_like of int, shape (N,)
        Sample ids.
    rank : Rank, optional
        The rank that asks, if there are several: it gets every world-th sample.

    Returns
    -------
    ndarray of uint64, shape (N,) or (ceil(N / world),)
        Sample ids in order.

    Examples
    --------
    >>> sequential([3, 1, 2]).tolist()
    [3, 1, 2]
    """
    ids = np.asarray(indices, np.uint64)
    return ids if rank is None else _every_worldth(ids, rank)


def random(indices: ArrayLike, seed: int, epoch: int, rank: Rank | None = None) -> Ids:
    """The samples shuffled.

    Parameters
    ----------
    indices : array_like of int, shape (N,)
        Sample ids.
    seed, epoch : int
        The shuffle depends on their sum.
    rank : Rank, optional
        The rank that asks, if there are several. Torch then shuffles instead of numpy, in another order.

    Returns
    -------
    ndarray of uint64, shape (N,) or (ceil(N / world),)
        Sample ids in order.

    Examples
    --------
    >>> random([0, 1, 2, 3], seed=42, epoch=0).tolist()
    [3, 2, 1, 0]
    """
    ids = np.asarray(indices, np.uint64)
    if rank is None:
        return np.random.default_rng(seed + epoch).permutation(ids)
    import torch

    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    return _every_worldth(ids[torch.randperm(len(ids), generator=generator).numpy()], rank)


def quasi_random(
    indices: ArrayLike, pages: NDArray[np.int64], batch_size: int, seed: int, epoch: int, rank: Rank | None = None
) -> Ids:
    """The samples shuffled so that few pages of the file are needed at a time.

    The pages are shuffled and dealt out in groups of at most ``2 * batch_size``; each group's samples are shuffled and
    come before the next group's. So at most ``2 * batch_size`` pages are open while any batch is made, a page being
    open from the batch that brings the first of its samples to the batch that brings the last.

    Several ranks get a stretch of the shuffled pages each. A page on the border of two stretches is shared.

    Parameters
    ----------
    indices : array_like of int, shape (N,)
        Sample ids.
    pages : ndarray of int64, shape (N,)
        The page that holds each of these samples.
    batch_size : int
        Samples in a batch.
    seed, epoch : int
        The order is a function of these two and of the arguments before them.
    rank : Rank, optional
        The rank that asks, if there are several.

    Returns
    -------
    ndarray of uint64, shape (N,) or (ceil(N / world),)
        Sample ids in order.

    Raises
    ------
    OptionError
        If `batch_size` is not positive, or `pages` and `indices` differ in length.

    Examples
    --------
    >>> order = quasi_random(range(6), np.array([1, 1, 2, 2, 3, 3]), batch_size=1, seed=0, epoch=0)
    >>> sorted(order.tolist())
    [0, 1, 2, 3, 4, 5]
    """
    ids, pages = np.asarray(indices, np.uint64), np.asarray(pages)
    if batch_size < 1:
        raise OptionError(f"batch_size is {batch_size}; expected at least 1")
    if ids.shape != pages.shape:
        raise OptionError(f"{len(pages)} pages for {len(ids)} samples; expected the page of each sample")
    _, page = np.unique(pages, return_inverse=True)
    turn = _turns(seed, epoch, page)
    by_turn = np.argsort(turn, kind="stable")
    if rank is not None:
        share = rank.share(len(ids))
        by_turn = np.resize(by_turn, share * rank.world)[rank.number * share : (rank.number + 1) * share]
    group = _groups(turn[by_turn], 2 * batch_size)
    first = 0 if rank is None else rank.number * rank.share(len(ids))
    keys = sort_keys(seed, epoch, _SAMPLE_STREAM, first + len(by_turn))[first:]
    # Groups in the upper bits, chance in the lower: one sort does both.
    keys = (keys >> np.uint64(24)) | (group.astype(np.uint64) << np.uint64(40))
    return ids[by_turn[np.argsort(keys, kind="stable")]]


def _turns(seed: int, epoch: int, page: NDArray[np.intp]) -> NDArray[np.intp]:
    """When each sample's page has its turn, pages being shuffled."""
    num_pages = int(page.max()) + 1 if len(page) else 0
    shuffled = np.argsort(sort_keys(seed, epoch, _PAGE_STREAM, num_pages), kind="stable")
    turn = np.empty(num_pages, np.intp)
    turn[shuffled] = np.arange(num_pages)
    return turn[page]


def _groups(turn: NDArray[np.intp], max_pages: int) -> NDArray[np.intp]:
    """Deal the pages out in groups of nearly equal size, in the order of their turns."""
    distinct, ordinal = np.unique(turn, return_inverse=True)
    num_groups = -(-len(distinct) // max_pages)
    dealt: NDArray[np.intp] = ordinal * num_groups // max(len(distinct), 1)
    return dealt


def _every_worldth(ids: Ids, rank: Rank) -> Ids:
    """Repeat from the start until every rank gets as many, and take every world-th."""
    return np.resize(ids, rank.share(len(ids)) * rank.world)[rank.number :: rank.world]
