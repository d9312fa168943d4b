"""Repeated: each sample several times in a row, on different ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._plan.order import random
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_whole
from gpubeton.traversal_order.base import OrderedLoader, TraversalOrder

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Repeated(TraversalOrder):
    """Repeated augmentation: the samples shuffled, each several times in a row, on different ranks.

    Parameters
    ----------
    loader : Loader
        The loader that asks; it has to be distributed, to at least `num_repeats` ranks.
    num_repeats : int
        How often each sample comes.

    Raises
    ------
    OptionError
        If the loader is not distributed, or to fewer ranks.

    Notes
    -----
    From Hoffer et al., "Augment your batch" (CVPR 2020, arXiv:1901.09335), as DeiT and timm's ``RepeatAugSampler``
    have it: an epoch is as long as without repeats, so that it has one of `num_repeats` samples only.

    In all other orders, what is drawn for a sample is the same on all ranks. Here it depends on the rank, too: so a
    sample is augmented differently on each, but a rank must not have it twice. That takes as many ranks as repeats.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> Loader("train.beton", 4, order=Repeated, distributed=True, seed=0)                            # doctest: +SKIP
    """

    def __init__(self, loader: OrderedLoader, num_repeats: int = 3) -> None:
        super().__init__(loader)
        self.num_repeats = check_whole("num_repeats", num_repeats, 1)
        world = 1 if self.rank is None else self.rank.world
        if self.rank is None or world < self.num_repeats:
            raise OptionError(
                f"Repeated: num_repeats is {num_repeats}, with {world} rank(s) and distributed={self.distributed}; "
                "expected a distributed loader with at least as many ranks, since a rank augments a sample in one way "
                "in an epoch. Start more processes, or leave the repeats out"
            )
        self.draw_offset = self.rank.number << 32

    def sample_order(self, epoch: int) -> NDArray[np.uint64]:
        assert self.rank is not None
        ids = random(self.ids, self.seed, epoch, for_ranks=True)
        places = self.rank.number + self.rank.world * np.arange(len(ids) // self.rank.world)
        return ids[places // self.num_repeats].astype(np.uint64)
