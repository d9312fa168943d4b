"""EpochSchedule: which epoch and batch come next, and which samples an epoch holds."""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto, unique
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpubeton._plan.order import EpochBatches, IdRange, LazyIds, id_dtype, share
from gpubeton.errors import OptionError
from gpubeton.loader.config import check_indices, check_indices_or_all
from gpubeton.traversal_order import QuasiRandom, Random, Sequential, TraversalOrder, Window
from gpubeton.traversal_order.base import GlobalOrder

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.loader.config import Batching

_ORDERS = ("global_order", "sample_order")
# Ids that are hashed at once.
_AT_ONCE = 1 << 16
# In a fingerprint, longer lists are hashed.
_LONGEST_LIST = 16


@unique
class OrderOption(Enum):
    """Order in which a loader goes through its samples."""

    SEQUENTIAL = auto()
    """As its indices list them."""
    RANDOM = auto()
    """Shuffled for each epoch."""
    QUASI_RANDOM = auto()
    """Shuffled, but from few pages of the file at a time; for files that do not fit into memory."""
    WINDOW = auto()
    """Shuffled, from a window of pages that moves through the file; the same order for any number of ranks."""


OrderName = Literal["sequential", "random", "quasi_random", "window"]
"""The names of the options; upper case is the same."""

ORDER_TYPE = OrderOption | OrderName | type[TraversalOrder]
"""What may be given as a loader's order."""

ORDER_MAP: dict[Any, type[TraversalOrder]] = {
    OrderOption.SEQUENTIAL: Sequential,
    OrderOption.RANDOM: Random,
    OrderOption.QUASI_RANDOM: QuasiRandom,
    OrderOption.WINDOW: Window,
}
"""The class of each option, FFCV has the first three; a user may add other keys, and replace classes."""


def order_class(order: object) -> type[TraversalOrder]:
    """Find the class of an order: an option, its name, or a class."""
    found: Any = order
    if isinstance(order, str) and order.upper() in OrderOption.__members__:
        found = OrderOption[order.upper()]
    if isinstance(found, Hashable) and found in ORDER_MAP:
        return ORDER_MAP[found]
    if isinstance(found, type) and issubclass(found, TraversalOrder):
        return found
    names = ", ".join(repr(option.name.lower()) for option in OrderOption)
    raise OptionError(
        f"order is {order!r}; expected one of {', '.join(map(str, OrderOption))}, its name ({names}), or a class "
        "derived from TraversalOrder (the class, not an object of it)"
    )


def _is_library_order(order: TraversalOrder) -> bool:
    """Whether the order is one of this package's; a user's own may ignore the attributes."""
    return type(order).__module__.startswith("gpubeton.")


def with_current_indices(order: TraversalOrder, then: object, now: NDArray[np.uint64] | IdRange) -> TraversalOrder:
    """Give an assigned order the loader's indices, if they changed since; an order of the user's keeps its own."""
    if now is not then and _is_library_order(order):
        order = copy.copy(order)  # the user may assign the object again, with the samples that it has
        order.ids = now
    return order


@dataclass(frozen=True, eq=False)
class Sampling:
    """What decides which samples an epoch holds, besides its number and the seed, as it was when the epoch began."""

    indices: NDArray[np.uint64] | IdRange  # (N,), the loader's
    order: TraversalOrder
    arguments: Mapping[str, Any]  # of the order's class
    order_indices: Any  # (M,) int, which may have been assigned to the order; None for an order of the user's
    sampler: Any  # which may have been assigned to the order

    @classmethod
    def of(cls, indices: NDArray[np.uint64] | IdRange, order: TraversalOrder, arguments: Mapping[str, Any]) -> Sampling:
        """Keep the present values: the order may get others."""
        if _is_library_order(order):
            return cls(indices, order, arguments, order.ids, order.sampler)
        return cls(indices, order, arguments, None, None)

    @property
    def _has_other_indices(self) -> bool:
        own = self.order_indices
        return own is not None and own is not self.indices and not np.array_equal(own, self.indices)

    @property
    def is_changed(self) -> bool:
        """Whether something was assigned to the order, so that the loader's arguments do not determine it."""
        return self._has_other_indices or self.sampler is not None

    @property
    def for_ranks(self) -> bool | None:
        """Whether the samples are shuffled as ranks do; None if that makes no difference."""
        return self.order.for_ranks

    @cached_property
    def fingerprints(self) -> tuple[str, str]:
        """Fingerprints of the loader's indices and of the order."""
        kind = type(self.order)
        order = f"{kind.__module__}.{kind.__qualname__}{arguments_fingerprint(self.arguments)}"
        if self._has_other_indices:
            order += f" of {_hashed(np.asarray(self.order_indices, np.uint64))}"
        if self.sampler is not None:
            order += f", sampled by {type(self.sampler).__qualname__}"
        return _indices_fingerprint(self.indices), order


def _indices_fingerprint(indices: NDArray[np.uint64] | IdRange) -> str:
    size = len(indices)
    is_range = indices == IdRange(size) if isinstance(indices, IdRange) else np.array_equal(indices, np.arange(size))
    return range_fingerprint(size) if is_range else _hashed(np.asarray(indices))


def range_fingerprint(size: int) -> str:
    """Give the fingerprint of all samples in their order: an epoch may have billions of them."""
    return f"{size} samples, from 0 on"


def old_range_fingerprint(size: int) -> str:
    """Give the fingerprint that they have in states of versions 1 and 2."""
    digest, indices = hashlib.blake2b(digest_size=8), IdRange(size)
    for start in range(0, size, _AT_ONCE):
        digest.update(indices[start : start + _AT_ONCE].data)
    return f"{size} samples, {digest.hexdigest()}"


def _hashed(indices: NDArray[np.uint64]) -> str:
    digest = hashlib.blake2b(np.ascontiguousarray(indices).view(np.uint8).data, digest_size=8)
    return f"{len(indices)} samples, {digest.hexdigest()}"


def arguments_fingerprint(arguments: Mapping[str, Any]) -> str:
    """Write an order's arguments as Python writes a dict, with hashes for arrays: numpy would abbreviate them.

    >>> arguments_fingerprint({"step": 2, "weights": np.ones(3)})
    "{'step': 2, 'weights': 'float64 (3,), 15e0d9b6717f8ff8'}"
    """
    return str({name: _fingerprint(value) for name, value in arguments.items()} or "")


def _fingerprint(value: Any) -> Any:
    is_long = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > _LONGEST_LIST
    if not is_long and not hasattr(value, "__array__"):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype.kind not in "biuf" or array.nbytes <= array.itemsize:
        return value
    digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=8)
    return f"{array.dtype} {np.shape(value)}, {digest.hexdigest()}"


@dataclass
class EpochCursor:
    """How far an epoch has come."""

    epoch: int
    batching: Batching
    first: int = 0  # samples of all ranks before batch 0: of an epoch that other ranks or batches began
    batch: int = 0  # the first batch that was not received
    is_complete: bool = False  # the loop has seen the end
    sampling: Sampling | None = None  # of an epoch that has begun
    num_batches: int = 0  # of an epoch that has begun


@dataclass
class _Answer:
    """The last samples of the order."""

    epoch: int
    first: int
    attributes: dict[str, Any]
    samples: NDArray[Any] | LazyIds  # (N,)

    def holds(self, epoch: int, first: int, order: TraversalOrder) -> bool:
        """Whether the order would give the same: for the same place, if no attribute was assigned since."""
        now = vars(order)
        same = (epoch, first) == (self.epoch, self.first) and now.keys() == self.attributes.keys()
        return same and all(now[name] is value for name, value in self.attributes.items())


class EpochSchedule:
    """Counts epochs and batches, and plans which samples each batch holds."""

    def __init__(self, make_order: Callable[[], TraversalOrder], num_samples: int, batching: Batching) -> None:
        self.order = make_order()
        self.next = EpochCursor(0, batching)  # where the next loop begins
        self.has_begun = False  # any loop
        self.is_order_assigned = False  # an object, and not by its class
        self._make_order = make_order
        self._num_samples = num_samples  # of the file
        self._lock = threading.Lock()
        self._current: EpochCursor | None = None
        self._answer: _Answer | None = None

    def plan(
        self, epoch: int, samples: NDArray[np.uint64] | None = None, *, first: int = 0, asks_again: bool = False
    ) -> EpochBatches:
        """Plan an epoch after `first` samples of all ranks, of the order's samples or of these."""
        # `asks_again`: an earlier answer of a user's order or sampler is not trusted.
        if samples is not None:
            return EpochBatches(samples, self.next.batching.batch_size, drop_last=False)
        # What a user's order or sampler depends on may lie deeper than in its attributes.
        asks_again &= self.order.sampler is not None or not _is_library_order(self.order)
        answer = self._answer  # kept, since len() comes before the loop, and in it
        if answer is None or asks_again or not answer.holds(epoch, first, self.order):
            attributes = dict(vars(self.order))
            if _is_library_order(self.order):  # they may have been assigned
                check_indices_or_all("indices of the order", self.order.ids, self._num_samples)
            found = self._samples(epoch, first)
            if self._own_global_order is None:
                found = check_indices("the order", found, self._num_samples)
            if isinstance(found, np.ndarray):
                found = found.astype(id_dtype(self._num_samples), copy=False)
            self._answer = answer = _Answer(epoch, first, attributes, found)
        return self.next.batching.cut(answer.samples)

    def _samples(self, epoch: int, first: int) -> Any:
        if self._own_global_order is not None:
            return self._own_global_order.ids_of(epoch, first)
        if first:
            ids = self.order.global_order(epoch)
            assert ids is not None, "only a global order can go on at a sample"
            return share(ids, self.order.rank, first)
        return self.order.sample_order(epoch)

    def following(self, epoch: int) -> Callable[[], EpochBatches] | None:
        """Give a function that plans the epoch after one, in any thread; None if the order runs code of the user's."""
        order, own, batching = self.order, self._own_global_order, self.next.batching
        if not self.has_begun or not _is_library_order(order) or order.sampler is not None:
            return None
        if own is not None:
            return lambda: batching.cut(own.ids_of(epoch + 1, 0))
        return lambda: batching.cut(np.asarray(order.sample_order(epoch + 1), np.uint64))

    def num_samples_of(self, epoch: int) -> int:
        """Count the samples of an epoch, of all ranks; the order has to be global."""
        if self._own_global_order is not None:
            return self._own_global_order.num_ids()
        ids = self.order.global_order(epoch)
        return 0 if ids is None else len(ids)

    @property
    def _own_global_order(self) -> GlobalOrder | None:
        """The order, if it is a global one of this package."""
        return self.order if _is_library_order(self.order) and isinstance(self.order, GlobalOrder) else None

    @property
    def is_global(self) -> bool:
        """Whether the order is the same for any number of ranks and any batch size."""
        classes = type(self.order).__mro__
        defines = [next(i for i, kind in enumerate(classes) if name in vars(kind)) for name in _ORDERS]
        # A class that overrides only `sample_order` may give other samples than the class it derives from.
        return defines[0] <= defines[1] and self.order.sampler is None

    def coming(self, sampling: Sampling, *, is_last: bool) -> EpochCursor:
        """Find where a loop would begin: with the next epoch, or with `is_last` that which was counted last."""
        if is_last:
            return replace(self.next, epoch=max(self.next.epoch - 1, 0), first=0, batch=0, sampling=None)
        if self.next.sampling is not None and self.next.sampling.fingerprints != sampling.fingerprints:
            self._check_that_no_epoch_is_resumed("samples")
        return self.next

    def begin(self, cursor: EpochCursor, sampling: Sampling, num_batches: int) -> EpochCursor:
        """Begin an epoch that `coming` gave, and count it if it is the next; the loop moves the cursor."""
        with self._lock:
            if cursor is self.next:
                self.next = replace(cursor, epoch=cursor.epoch + 1, first=0, batch=0, sampling=None)
            cursor.sampling, cursor.num_batches = sampling, num_batches
            self._current = cursor
            self.has_begun = True
            return cursor

    def go_to(self, epoch: int, first: int = 0, batch: int = 0, sampling: Sampling | None = None) -> None:
        """Choose where the next loop begins; `sampling` belongs to the samples and batches before."""
        if epoch < 0:
            raise OptionError(f"epoch is {epoch}; expected at least 0")
        with self._lock:
            is_begun = first > 0 or batch > 0
            self.next = replace(
                self.next, epoch=int(epoch), first=first, batch=batch, sampling=sampling if is_begun else None
            )
            self._current = None

    def set_batching(self, batching: Batching) -> None:
        """Cut the epochs from the next one on into other batches."""
        with self._lock:
            self._check_that_no_epoch_is_resumed(" and ".join(batching._fields))
            self.next = replace(self.next, batching=batching)
            self._answer = None  # an order may depend on the batch size

    def set_order(self, make_order: Callable[[], TraversalOrder], *, is_assigned: bool = False) -> None:
        """Go through the samples in another order, from the next epoch on."""
        with self._lock:
            self._check_that_no_epoch_is_resumed("samples")
        self.order, self._make_order, self._answer = make_order(), make_order, None
        self.is_order_assigned = is_assigned

    def set_samples(self) -> None:
        """Take the loader's new indices, from the next epoch on."""
        with self._lock:
            self._check_that_no_epoch_is_resumed("samples")
        self._remake_order()

    def shuffle_for_ranks(self, for_ranks: bool | None) -> None:
        """Shuffle as ranks do, or as a loader without ranks, from the next epoch on; nothing if these are alike."""
        if self.order.for_ranks is not None:
            self.order.for_ranks = for_ranks

    def set_seed(self, seed: int) -> None:
        """Order the samples by another seed."""
        self.order.seed = seed
        if not _is_library_order(self.order):  # ours read it for each epoch
            self._remake_order()

    def _remake_order(self) -> None:
        order = self._make_order()
        if order.sampler is None:
            order.sampler = self.order.sampler
        if order.for_ranks is not None:
            order.for_ranks = self.order.for_ranks
        self.order, self._answer = order, None

    def _check_that_no_epoch_is_resumed(self, what: str) -> None:
        if self.next.first or self.next.batch:
            place = f"sample {self.next.first}" if self.next.first else f"batch {self.next.batch}"
            raise OptionError(
                f"{what} cannot change before the next loop: it resumes at {place} of epoch {self.next.epoch}, for "
                "which a loaded state fixes them. Begin that loop first, or call set_epoch to begin an epoch from its "
                "first batch"
            )

    @property
    def now(self) -> EpochCursor:
        """How far the current epoch has come; where the next begins if there is none."""
        current = self._current
        return self.next if current is None or current.is_complete else current

    @property
    def after_received(self) -> EpochCursor:
        """Like `now`; but after the last batch it is the next epoch, although the loop has not seen the end."""
        now = self.now
        if now is self.next and (now.first or now.batch) and now.batch >= len(self.plan(now.epoch, first=now.first)):
            return replace(now, epoch=now.epoch + 1, first=0, batch=0, sampling=None)
        if now.batch and now is not self.next and now.batch >= now.num_batches:
            return self.next
        return now

    @property
    def num_left(self) -> int:
        """Number of batches that the next loop will give."""
        return max(0, len(self.plan(self.next.epoch, first=self.next.first)) - self.next.batch)

    @property
    def world_size(self) -> int:
        """Number of ranks that share an epoch."""
        return 1 if self.order.rank is None else self.order.rank.world
