"""Epochs: which batches come next, and which samples they hold."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpubeton.errors import OptionError
from gpubeton.loader.arguments import checked_indices
from gpubeton.plan.epoch import EpochPlan

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.loader.origin import Origin
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
    origin : Origin, optional
        Where its samples come from, of an epoch that has begun.
    num_batches : int
        How many it has, of an epoch that has begun.
    """

    epoch: int
    batch_size: int
    drop_last: bool
    batch: int = 0
    is_complete: bool = False
    origin: Origin | None = None
    num_batches: int = 0


@dataclass
class _Asked:
    """What an order has answered."""

    epoch: int
    attributes: dict[str, Any]
    samples: NDArray[np.uint64]

    def answers(self, epoch: int, order: TraversalOrder) -> bool:
        """Whether the order would say the same: it is that epoch, and no attribute was assigned since."""
        now = vars(order)
        same = epoch == self.epoch and now.keys() == self.attributes.keys()
        return same and all(now[name] is value for name, value in self.attributes.items())


class Epochs:
    """Counts epochs and batches, and plans which samples each batch holds.

    Parameters
    ----------
    make_order : callable
        Makes the order of the samples; called again when the seed or the samples have changed.
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
    has_begun : bool
        Whether any loop has begun.
    """

    def __init__(
        self, make_order: Callable[[], TraversalOrder], num_samples: int, batch_size: int, *, drop_last: bool
    ) -> None:
        self.order = make_order()
        self.next = Progress(0, batch_size, drop_last)
        self.has_begun = False
        self._make_order = make_order
        self._num_samples = num_samples
        self._lock = threading.Lock()
        self._current: Progress | None = None
        self._kept: _Asked | None = None

    def plan(self, epoch: int, samples: NDArray[np.uint64] | None = None, *, anew: bool = False) -> EpochPlan:
        """Plan an epoch.

        Parameters
        ----------
        epoch : int
            Its number.
        samples : ndarray of uint64, shape (N,), optional
            Its samples, of which none are left out; by default those that the order gives.
        anew : bool
            Ask an order of the user's own again, even if it has the attributes with which it was asked for that epoch
            before: what it goes by may lie deeper.

        Returns
        -------
        EpochPlan
            Its batches.

        Raises
        ------
        OptionError
            If an order of the user's own gives anything but samples of the file, or the library's was given such.
        """
        if samples is not None:
            return EpochPlan(samples, self.next.batch_size, drop_last=False)
        is_ours = type(self.order).__module__.startswith("gpubeton.")
        anew &= self.order.sampler is not None or not is_ours
        kept = self._kept
        if kept is None or anew or not kept.answers(epoch, self.order):  # len() comes before the loop, and in it
            attributes = dict(vars(self.order))
            if is_ours:  # they may have been assigned
                checked_indices("indices of the order", self.order.indices, self._num_samples)
            samples = checked_indices("the order", self.order.sample_order(epoch), self._num_samples)
            self._kept = kept = _Asked(epoch, attributes, samples)
        return EpochPlan(kept.samples, self.next.batch_size, self.next.drop_last)

    def coming(self, *, is_last: bool, origin: Origin) -> Progress:
        """Tell what a loop would begin with.

        Parameters
        ----------
        is_last : bool
            Whether that is the beginning of the epoch that was counted last.
        origin : Origin
            Where the samples of an epoch come from now.

        Returns
        -------
        Progress
            To be given to `begin`.

        Raises
        ------
        OptionError
            If it is in the middle of an epoch of other samples.
        """
        if is_last:
            return replace(self.next, epoch=max(self.next.epoch - 1, 0), batch=0, origin=None)
        if self.next.origin is not None and self.next.origin.fingerprints != origin.fingerprints:
            self._check_that_it_begins_anew("samples")
        return self.next

    def begin(self, epoch: Progress, origin: Origin, num_batches: int) -> Progress:
        """Begin an epoch; if it is the next one, count it.

        Parameters
        ----------
        epoch : Progress
            What `coming` gave.
        origin : Origin
            Where its samples come from.
        num_batches : int
            How many batches they are.

        Returns
        -------
        Progress
            Where to begin; to be kept up to date by whoever goes through the epoch.
        """
        with self._lock:
            if epoch is self.next:
                self.next = replace(epoch, epoch=epoch.epoch + 1, batch=0, origin=None)
            epoch.origin, epoch.num_batches = origin, num_batches
            self._current = epoch
            self.has_begun = True
            return epoch

    def go_to(self, epoch: int, batch: int = 0, origin: Origin | None = None) -> None:
        """Choose what the next loop begins with.

        Parameters
        ----------
        epoch, batch : int
            Number of the epoch, and of the first batch in it.
        origin : Origin, optional
            Where the samples of the batches before it came from.

        Raises
        ------
        OptionError
            If the epoch is negative.
        """
        if epoch < 0:
            raise OptionError(f"epoch is {epoch}; expected at least 0")
        with self._lock:
            self.next = replace(self.next, epoch=int(epoch), batch=batch, origin=origin if batch else None)
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
            self._check_that_it_begins_anew("batch_size and drop_last")
            self.next = replace(self.next, batch_size=batch_size, drop_last=drop_last)
            self._kept = None  # an order may depend on the batch size

    def go_through(self, make_order: Callable[[], TraversalOrder] | None = None) -> None:
        """Go through other samples, or in another order, in the next epoch and all behind it.

        Parameters
        ----------
        make_order : callable, optional
            Makes the order; by default the one that there is, made anew.

        Raises
        ------
        OptionError
            If the next loop begins in the middle of an epoch, after batches of the samples as they were.
        """
        with self._lock:
            self._check_that_it_begins_anew("samples")
        if make_order is None:
            self.remake_order()
        else:
            self.order, self._make_order, self._kept = make_order(), make_order, None

    def _check_that_it_begins_anew(self, what: str) -> None:
        if self.next.batch:
            raise OptionError(
                f"the next loop goes on at batch {self.next.batch} of epoch {self.next.epoch}, of which a loaded "
                f"state says the {what}. Begin that loop first, or call set_epoch to begin an epoch anew"
            )

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
        """Make the order anew, after the seed or the samples have changed."""
        order = self._make_order()
        if order.sampler is None:
            order.sampler = self.order.sampler
        self.order, self._kept = order, None
