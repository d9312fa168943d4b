"""Resumable: where a loader stands among its epochs, told, chosen, saved and taken up again."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from gpubeton.errors import StateError
from gpubeton.loader.order_option import order_class
from gpubeton.loader.origin import Origin
from gpubeton.loader.state import LoaderState, file_fingerprint, state_of
from gpubeton.traversal_order import TraversalOrder

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.loader.epochs import Epochs, Progress
    from gpubeton.loader.loader import Loader
    from gpubeton.reader import Reader


class Resumable:
    """The part of a loader that knows where it stands. `Loader` sets the attributes.

    Attributes
    ----------
    reader : Reader
        What the file holds.
    indices : ndarray of uint64, shape (N,)
        The samples.
    order_kwargs : dict
        Arguments of the order's class.
    batch_size : int
        Samples in a batch.
    drop_last : bool
        Whether a smaller last batch is left out.
    seed : int
        What order and augmentations depend on.
    """

    reader: Reader
    indices: NDArray[np.uint64]
    order_kwargs: dict[str, Any]
    batch_size: int
    drop_last: bool
    seed: int
    _epochs: Epochs
    _seed_was_given: bool
    _order_was_assigned = False

    def __len__(self) -> int:
        """Number of batches of the next epoch."""
        return len(self._epochs.plan(self.next_epoch))

    @property
    def traversal_order(self) -> TraversalOrder:
        """The order, an object with ``sample_order(epoch)``.

        What is assigned, an option, its name, a class or an object, counts from the next epoch on, and so do
        assignments to its own attributes. An object of a class of your own keeps its own `indices` when the loader gets
        others.
        """
        return self._epochs.order

    @traversal_order.setter
    def traversal_order(self, order: Any) -> None:
        if isinstance(order, TraversalOrder):
            self._epochs.go_through(partial(_with_indices, self, order, self.indices))
            self._order_was_assigned = True
        else:
            self._epochs.go_through(partial(order_class(order), cast("Loader", self)))
            vars(self).update(order=order, order_kwargs={}, _order_was_assigned=False)

    @property
    def next_epoch(self) -> int:
        """Number of the epoch that the next ``for`` loop goes through, from 0. May be set."""
        return self._epochs.next.epoch

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next ``for`` loop goes through, from its first batch on.

        Parameters
        ----------
        epoch : int
            Its number, at least 0.

        Raises
        ------
        OptionError
            If it is negative.

        Examples
        --------
        >>> from gpubeton import Loader
        >>> loader = Loader("train.beton", 100, seed=0)
        >>> loader.set_epoch(5)
        >>> loader.next_epoch
        5
        """
        self._epochs.go_to(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Tell where the loader stands.

        Only batches that the loop has received count. In a loop, the state is that of the iterator made last.

        Returns
        -------
        dict
            Strings, numbers and truth values only: may be stored with JSON or ``torch.save``. It does not hold the
            pipelines; make the loader that is to go on with the same ones.
        """
        return self._state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another loader stood: the next ``for`` loop gives exactly the batches that were still to come.

        A loader that was made without a seed takes over the state's. Ranks may all load the state of one of them.

        Parameters
        ----------
        state : mapping
            What `state_dict` returned, in this process or another.

        Raises
        ------
        StateError
            If the state is of another file, order, batch size, number of ranks or seed.

        Examples
        --------
        >>> from gpubeton import Loader
        >>> loader = Loader("train.beton", 100, seed=0, pipelines={"image": None})
        >>> batches = iter(loader)
        >>> _ = next(batches)
        >>> resumed = Loader("train.beton", 100, seed=0, pipelines={"image": None})
        >>> resumed.load_state_dict(loader.state_dict())
        >>> len(list(resumed)) == len(list(batches)) == 2
        True
        """
        loaded = LoaderState.from_dict(state)
        # Of an epoch that is under way, the batches may have been others.
        loaded.check_against(self._state_at(self._epochs.next, self._origin), seed_is_fixed=self._seed_was_given)
        if loaded.seed != self.seed:
            vars(self)["seed"] = self.traversal_order.seed = loaded.seed  # the loader's is not for users to set
            if not type(self.traversal_order).__module__.startswith("gpubeton."):  # the library's ask for it each time
                self._epochs.remake_order()
        num_batches = len(self._epochs.plan(loaded.epoch))
        if loaded.batch > num_batches:
            raise StateError(f"the state is at batch {loaded.batch}, but epoch {loaded.epoch} has {num_batches}")
        self._epochs.go_to(loaded.epoch, loaded.batch, self._origin)

    @cached_property
    def _file_fingerprint(self) -> str:
        return file_fingerprint(self.reader.index)

    @property
    def _origin(self) -> Origin:
        return Origin.of(self.indices, self.traversal_order, self.order_kwargs)

    def _state(self, *, ends_with_last_batch: bool = False) -> LoaderState:
        now, following = self._epochs.now, self._epochs.next
        if ends_with_last_batch and now.batch:
            if now is following and now.batch >= len(self._epochs.plan(now.epoch)):
                now = replace(now, epoch=now.epoch + 1, batch=0, origin=None)
            elif now is not following and now.batch >= now.num_batches:
                now = following
        return self._state_at(now, now.origin or self._origin)

    def _state_at(self, now: Progress, origin: Origin) -> LoaderState:
        return state_of(self, now, self._file_fingerprint, origin, self._epochs.world_size)


def _with_indices(loader: Resumable, order: TraversalOrder, then: NDArray[np.uint64]) -> TraversalOrder:
    """An order that was made already; if it is one of the library's, of the samples that the loader got since then."""
    if loader.indices is not then and type(order).__module__.startswith("gpubeton."):
        order = copy.copy(order)  # the object may be put back, with the samples that it has
        order.indices = loader.indices
    return order
