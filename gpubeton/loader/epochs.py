"""Epochs: which batches come next, and which samples they hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpubeton.errors import OptionError
from gpubeton.loader.arguments import checked_indices
from gpubeton.plan.epoch import EpochPlan
from gpubeton.traversal_order import TraversalOrder


@dataclass
class Progress:
    """How far an epoch has come.

    Parameters
    ----------
    epoch : int
        Number of the epoch.
    batch : int
        The first batch that was not received.
    is_complete : bool
        Whether the loop has seen its end.
    batch_size : int
        Samples in a batch of it.
    drop_last : bool
        Whether a smaller last batch of it is left out.
    """

    epoch: int
    batch_size: int
    drop_last: bool
    batch: int = 0
    is_complete: bool = False


class Epochs:
    """Counts epochs and batches, and plans which samples each batch holds.

    Parameters
    ----------
    make_order : callable
        Makes the order of the samples; called again when the seed has changed.
    num_samples : int
        Samples of the file.
    batch_size : int
        Samples in a batch.
    drop_last : bool
        Whether a smaller last batch is left out.

    Attributes
    ----------
    order : TraversalOrder
        The order.
    next : Progress
        What the next ``for`` loop begins with.
    """

    def __init__(
        self, make_order: Callable[[], TraversalOrder], num_samples: int, batch_size: int, *, drop_last: bool
    ) -> None:
        self.order = make_order()
        self.next = Progress(0, batch_size, drop_last)
        self._make_order = make_order
        self._num_samples = num_samples
        self._lock = threading.Lock()
        self._current: Progress | None = None
        self._samples: tuple[int, NDArray[np.uint64]] | None = None

    def plan(self, epoch: int) -> EpochPlan:
        """Plan an epoch.

        Parameters
        ----------
        epoch : int
            Its number.

        Returns
        -------
        EpochPlan
            Its batches.

        Raises
        ------
        OptionError
            If an order of the user's own gives anything but samples of the file.
        """
        kept = self._samples  # of the epoch that was asked for last: len() comes before the loop
        if kept is None or kept[0] != epoch:
            kept = epoch, checked_indices("the order", self.order.sample_order(epoch), self._num_samples)
            self._samples = kept
        return EpochPlan(kept[1], self.next.batch_size, self.next.drop_last)

    def begin(self) -> Progress:
        """Take the next epoch.

        Returns
        -------
        Progress
            Where to begin; to be kept up to date by whoever goes through the epoch.
        """
        with self._lock:
            self._current = self.next
            self.next = replace(self._current, epoch=self._current.epoch + 1, batch=0)
            return self._current

    def go_to(self, epoch: int, batch: int = 0) -> None:
        """Choose what the next loop begins with.

        Parameters
        ----------
        epoch, batch : int
            Number of the epoch, and of the first batch in it.

        Raises
        ------
        OptionError
            If the epoch is negative.
        """
        if epoch < 0:
            raise OptionError(f"epoch is {epoch}; expected at least 0")
        with self._lock:
            self.next = replace(self.next, epoch=int(epoch), batch=batch)
            self._current = None

    def cut_anew(self, batch_size: int, drop_last: bool) -> None:
        """Cut the next epoch, and all behind it, into other batches.

        Parameters
        ----------
        batch_size : int
            Samples in a batch.
        drop_last : bool
            Whether a smaller last batch is left out.

        Raises
        ------
        OptionError
            If the next loop begins in the middle of an epoch, after so many of the batches as they were.
        """
        with self._lock:
            if self.next.batch:
                raise OptionError(
                    f"the next loop goes on at batch {self.next.batch} of epoch {self.next.epoch}, of which a loaded "
                    f"state says the batch_size and drop_last. Begin that loop first, or call set_epoch to begin an "
                    f"epoch anew"
                )
            self.next = replace(self.next, batch_size=batch_size, drop_last=drop_last)
            self._samples = None  # an order may depend on the batch size

    @property
    def now(self) -> Progress:
        """How far the epoch under way has come; what comes next if none is."""
        current = self._current
        return self.next if current is None or current.is_complete else current

    @property
    def world_size(self) -> int:
        """Number of ranks that share an epoch."""
        return 1 if self.order.rank is None else self.order.rank.world

    def remake_order(self) -> None:
        """Make the order anew, after the seed has changed."""
        self.order = self._make_order()
        self._samples = None
