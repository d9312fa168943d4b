"""EpochSchedule and Checkpoint: which epoch and batch come next, which samples they hold, and how a loader resumes."""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum, auto, unique
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gpubeton._plan.order import EpochBatches, IdRange, LazyIds, id_dtype, share
from gpubeton._plan.places import Rank
from gpubeton.errors import OptionError, StateError
from gpubeton.format.dataset import renew_fingerprint
from gpubeton.loader.config import check_indices, check_indices_or_all
from gpubeton.traversal_order import QuasiRandom, Random, Sequential, TraversalOrder, Window
from gpubeton.traversal_order.base import GlobalOrder
from gpubeton.traversal_order.mixed import Mixed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.format.index import Index
    from gpubeton.loader.config import Batching

_ORDERS = ("global_order", "sample_order")

_VERSION = 3

# The entries that have to be equal, and how an error calls them.
_MEANINGS = {
    "file": "the file (its fields and metadata)",
    "num_samples": "number of samples in the file",
    "indices": "indices",
    "order": "order",
    "seed": "the seed",
    "batch_size": "batch_size",
    "drop_last": "drop_last",
    "world_size": "number of ranks",
    "distributed": "distributed",
    "mixture": "the mixture",
}
# Entries of the states of mixtures, and what others have instead.
_OF_MIXTURES = {"mixture": "", "block": 0}
# Those that may differ if the order is global.
_ANY_RANKS = {"batch_size", "world_size", "distributed"}

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
    option: Any = order
    if isinstance(order, str) and order.upper() in OrderOption.__members__:
        option = OrderOption[order.upper()]
    if isinstance(option, Hashable) and option in ORDER_MAP:
        return ORDER_MAP[option]
    if isinstance(option, type) and issubclass(option, TraversalOrder):
        return option
    names = ", ".join(repr(option.name.lower()) for option in OrderOption)
    raise OptionError(
        f"order is {order!r}; expected one of {', '.join(map(str, OrderOption))}, its name ({names}), or a class "
        "derived from TraversalOrder (the class, not an object of it)"
    )


def _is_library_order(order: TraversalOrder) -> bool:
    """Whether the order is one of this package; one that a user wrote may ignore the attributes."""
    return type(order).__module__.startswith("gpubeton.")


def with_current_indices(
    order: TraversalOrder, ids_before: object, ids: NDArray[np.uint64] | IdRange
) -> TraversalOrder:
    """Give an assigned order the loader's indices, if they changed since; an order that a user wrote keeps its own."""
    if ids is not ids_before and _is_library_order(order):
        order = copy.copy(order)  # the user may assign the object again, with the samples that it has
        order.ids = ids
    return order


@dataclass(frozen=True, eq=False)
class Sampling:
    """What decides which samples an epoch holds, besides its number and the seed, as it was when the epoch began."""

    indices: NDArray[np.uint64] | IdRange  # (N,), the loader's
    order: TraversalOrder
    arguments: Mapping[str, Any]  # of the order's class
    order_indices: Any  # (M,) int, which may have been assigned to the order; None for an order that a user wrote
    sampler: Any  # which may have been assigned to the order

    @classmethod
    def of(cls, indices: NDArray[np.uint64] | IdRange, order: TraversalOrder, arguments: Mapping[str, Any]) -> Sampling:
        """Keep the present values: the order may get others."""
        is_ours = _is_library_order(order)
        return cls(indices, order, arguments, order.ids if is_ours else None, order.sampler if is_ours else None)

    @cached_property
    def fingerprints(self) -> tuple[str, str]:
        """Fingerprints of the loader's indices and of the order."""
        kind = self.order.kind if isinstance(self.order, Mixed) else type(self.order)
        fixed = {name: value for name, value in self.arguments.items() if name not in self.order.local_arguments}
        order = f"{kind.__module__}.{kind.__qualname__}{arguments_fingerprint(fixed)}"
        ids = self.order_indices
        if ids is not None and ids is not self.indices and not np.array_equal(ids, self.indices):
            order += f" of {_hashed(np.asarray(ids, np.uint64))}"
        if self.sampler is not None:
            order += f", sampled by {type(self.sampler).__qualname__}"
        return _indices_fingerprint(self.indices), order


def _indices_fingerprint(indices: NDArray[np.uint64] | IdRange) -> str:
    size = len(indices)
    is_range = indices == IdRange(size) if isinstance(indices, IdRange) else np.array_equal(indices, np.arange(size))
    # An epoch of all samples may have billions of them.
    return f"{size} samples, from 0 on" if is_range else _hashed(np.asarray(indices))


def _old_range_fingerprint(size: int) -> str:
    """Give the fingerprint of all samples in states of versions 1 and 2."""
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


class EpochSchedule:
    """Counts epochs and batches, and plans which samples each batch holds."""

    def __init__(self, make_order: Callable[[], TraversalOrder], num_samples: int, batching: Batching) -> None:
        self.order = make_order()
        self.next = EpochCursor(0, batching)  # where the next loop begins
        self.has_begun = False  # any loop
        self._make_order = make_order
        self._num_samples = num_samples  # of the file
        self._lock = threading.Lock()
        self._current: EpochCursor | None = None
        # Of a resumed epoch: its cursor, the first batch, and the cursor of the epoch after it.
        self._resumed: tuple[EpochCursor, int, EpochCursor] | None = None
        # Epoch, place in it and ids of the order's attributes; these attributes, which keep their ids; the samples.
        self._cached: tuple[Any, dict[str, Any], NDArray[Any] | LazyIds] | None = None

    def plan(
        self, epoch: int, samples: NDArray[np.uint64] | None = None, *, first: int = 0, refresh: bool = False
    ) -> EpochBatches:
        """Plan an epoch after `first` samples of all ranks, of the order's samples or of these."""
        if samples is not None:
            return EpochBatches(samples, self.next.batching.batch_size, drop_last=False)
        # The order is cached, since len() comes before the loop, and in it. `refresh` does not trust the cache for an
        # order or a sampler that a user wrote: what it depends on may lie deeper than in its attributes.
        refresh &= self.order.sampler is not None or not _is_library_order(self.order)
        attributes, cached = dict(vars(self.order)), self._cached
        key = epoch, first, {name: id(value) for name, value in attributes.items()}
        if cached is None or refresh or cached[0] != key:
            if _is_library_order(self.order):  # they may have been assigned
                check_indices_or_all("indices of the order", self.order.ids, self._num_samples)
            ids = self._samples_of(epoch, first)()
            if self._global_order is None:
                ids = check_indices("the order", ids, self._num_samples)
            if isinstance(ids, np.ndarray):
                ids = ids.astype(id_dtype(self._num_samples), copy=False)
            self._cached = cached = key, attributes, ids
        return EpochBatches(cached[2], *self.next.batching)

    def _samples_of(self, epoch: int, first: int = 0) -> Callable[[], Any]:
        """Give a function of the present order that lists the samples of an epoch."""
        if self._global_order is not None:
            return partial(self._global_order.ids_of, epoch, first)
        order = self.order
        if not first:
            return partial(order.sample_order, epoch)
        ids = order.global_order(epoch)
        assert ids is not None, "only a global order can go on at a sample"
        return partial(share, ids, order.rank, first)

    def plan_next_epoch(self, epoch: int) -> Callable[[], EpochBatches] | None:
        """Give a function that plans the epoch after `epoch`, in any thread; None if this would run a user's code."""
        if not self.has_begun or not _is_library_order(self.order) or self.order.sampler is not None:
            return None
        batching, list_samples = self.next.batching, self._samples_of(epoch + 1)
        if self._global_order is not None:
            return lambda: EpochBatches(list_samples(), *batching)
        return lambda: EpochBatches(np.asarray(list_samples(), np.uint64), *batching)

    def num_samples_of(self, epoch: int) -> int:
        """Count the samples of an epoch, of all ranks; the order has to be global."""
        if self._global_order is not None:
            return self._global_order.num_ids(epoch)
        ids = self.order.global_order(epoch)
        return 0 if ids is None else len(ids)

    @property
    def _global_order(self) -> GlobalOrder | None:
        """The order, if it is a global one of this package; None if not."""
        return self.order if _is_library_order(self.order) and isinstance(self.order, GlobalOrder) else None

    @property
    def is_global(self) -> bool:
        """Whether the order is the same for any number of ranks and any batch size."""
        classes = type(self.order).__mro__
        defines = [next(i for i, kind in enumerate(classes) if name in vars(kind)) for name in _ORDERS]
        # A class that overrides only `sample_order` may give other samples than the class it derives from.
        return defines[0] <= defines[1] and self.order.sampler is None

    def next_cursor(self, sampling: Sampling, *, is_last: bool) -> EpochCursor:
        """Find where a loop would begin: with the next epoch, or with `is_last` that which was counted last."""
        if is_last:
            return replace(self.next, epoch=max(self.next.epoch - 1, 0), first=0, batch=0, sampling=None)
        if self._resumed is not None:
            cursor, first_batch, following = self._resumed
            if self.next is following and cursor.batch == first_batch and not cursor.is_complete:
                self.next = replace(cursor)  # no batch was received: ``len(iter(loader))`` loses nothing
        if self.next.sampling is not None and self.next.sampling.fingerprints != sampling.fingerprints:
            self._check_that_no_epoch_is_resumed("samples")
        return self.next

    def begin(self, cursor: EpochCursor, sampling: Sampling, num_batches: int) -> None:
        """Begin the epoch of a `next_cursor`, and count it if it is the next; the loop moves the cursor."""
        with self._lock:
            if cursor is self.next:
                self.next = replace(cursor, epoch=cursor.epoch + 1, first=0, batch=0, sampling=None)
                self._resumed = (cursor, cursor.batch, self.next) if cursor.first > 0 or cursor.batch > 0 else None
            cursor.sampling, cursor.num_batches = sampling, num_batches
            self._current = cursor
            self.has_begun = True

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
            if batching == self.next.batching:
                return
            self._check_that_no_epoch_is_resumed(" and ".join(batching._fields))
            self.next = replace(self.next, batching=batching)
            self._cached = None  # an order may depend on the batch size

    def set_order(self, make_order: Callable[[], TraversalOrder]) -> None:
        """Go through the samples in another order, from the next epoch on."""
        with self._lock:
            self._check_that_no_epoch_is_resumed("samples")
        order = make_order()
        if isinstance(self.order, Mixed):
            self.order.check_next(order)
        self.order, self._make_order, self._cached = order, make_order, None

    def set_samples(self) -> None:
        """Take the loader's new indices, from the next epoch on."""
        with self._lock:
            self._check_that_no_epoch_is_resumed("samples")
        self._remake_order()

    def set_block(self, epoch: int, samples: int) -> None:
        """Keep the blocks of a mixture in an epoch that another loader began; new ones if there are no samples."""
        if isinstance(self.order, Mixed):
            self.order.begun = (epoch, samples) if samples else None

    def take_order_of(self, loaded: Checkpoint) -> None:
        """Shuffle as the loader of a state did: as ranks do or not, and in the same blocks of a mixture."""
        if self.order.for_ranks is not None:
            self.order.for_ranks = loaded.distributed
        self.set_block(loaded.epoch, loaded.block)

    def set_seed(self, seed: int) -> None:
        """Order the samples by another seed."""
        self.order.seed = seed
        if not _is_library_order(self.order) or isinstance(self.order, Mixed):  # others read it for each epoch
            self._remake_order()

    def _remake_order(self) -> None:
        order = self._make_order()
        if order.sampler is None:
            order.sampler = self.order.sampler
        if order.for_ranks is not None:
            order.for_ranks = self.order.for_ranks
        self.order, self._cached = order, None

    def _check_that_no_epoch_is_resumed(self, what: str) -> None:
        if self.next.first or self.next.batch:
            place = f"sample {self.next.first}" if self.next.first else f"batch {self.next.batch}"
            raise OptionError(
                f"{what} cannot change before the next loop: it resumes at {place} of epoch {self.next.epoch}, for "
                "which a loaded state fixes them. Begin that loop first, or call set_epoch to begin an epoch from its "
                "first batch"
            )

    @property
    def current_cursor(self) -> EpochCursor:
        """How far the current epoch has come; where the next begins if there is none."""
        current = self._current
        return self.next if current is None or current.is_complete else current

    @property
    def checkpoint_cursor(self) -> EpochCursor:
        """The current cursor; after the last batch the next epoch, although the loop has not seen the end."""
        cursor = self.current_cursor
        if cursor is not self.next:
            return self.next if cursor.batch and cursor.batch >= cursor.num_batches else cursor
        is_resumed = cursor.first > 0 or cursor.batch > 0
        if is_resumed and cursor.batch >= len(self.plan(cursor.epoch, first=cursor.first)):
            return replace(cursor, epoch=cursor.epoch + 1, first=0, batch=0, sampling=None)
        return cursor

    @property
    def num_left(self) -> int:
        """Number of batches that the next loop will give."""
        return max(0, len(self.plan(self.next.epoch, first=self.next.first)) - self.next.batch)

    @property
    def world_size(self) -> int:
        """Number of ranks that share an epoch."""
        return 1 if self.order.rank is None else self.order.rank.world


@dataclass(frozen=True)
class Checkpoint:
    """The position of a loader, and all that decides which batches follow."""

    epoch: int  # the current epoch, or the next
    samples: int  # received of it by all ranks together, as if all had received as many batches
    first: int  # of these, the samples before batch 0: received from a loader of other ranks or batches
    seed: int
    file: str  # fingerprint
    num_samples: int  # of the file
    indices: str  # fingerprint
    order: str  # its class and arguments
    batch_size: int
    drop_last: bool
    world_size: int  # number of ranks
    distributed: bool  # whether samples are shuffled as ranks do
    mixture: str = ""  # its weights, and how many samples of each source came before the epoch
    block: int = 0  # samples of the blocks of an epoch that has begun, see `gpubeton._plan.mixture.SourceTurns`

    @property
    def batch(self) -> int:
        """The first batch that was not received."""
        return (self.samples - self.first) // (self.batch_size * self.world_size)

    def to_dict(self) -> dict[str, Any]:
        """Convert to strings and numbers, which JSON and torch.save can store."""
        entries = {name: value for name, value in asdict(self).items() if name not in _OF_MIXTURES or value}
        return {"version": _VERSION, **entries, "batch": self.batch}

    @classmethod
    def of(
        cls, cursor: EpochCursor, sampling: Sampling, index: Index, seed: int, ranks: int, distributed: bool
    ) -> Checkpoint:
        """Describe a position: in an epoch, of samples that were chosen like this."""
        indices, order = sampling.fingerprints
        batch_size, mixed = cursor.batching.batch_size, sampling.order
        samples = cursor.first + cursor.batch * batch_size * ranks
        return cls(
            epoch=cursor.epoch,
            samples=samples,
            first=cursor.first,
            seed=seed,
            file=index.fingerprint,
            num_samples=index.num_samples,
            indices=indices,
            order=order,
            batch_size=batch_size,
            drop_last=cursor.batching.drop_last,
            world_size=ranks,
            distributed=distributed if sampling.order.for_ranks is None else sampling.order.for_ranks,
            mixture=mixed.describe(cursor.epoch) if isinstance(mixed, Mixed) else "",
            block=mixed.block_of(cursor.epoch, batch_size) if isinstance(mixed, Mixed) and samples else 0,
        )

    @classmethod
    def from_dict(cls, state: Mapping[str, Any], *, distributed: bool, index: Index) -> Checkpoint:
        """Read and check the result of `to_dict`; the loader's arguments are for older versions."""
        if not isinstance(state, Mapping):
            raise StateError(f"a loader's state is a dict, not {type(state).__name__}")
        if state.get("version") not in range(1, _VERSION + 1):
            raise StateError(
                f"the state has version {state.get('version')!r}, expected 1 to {_VERSION}. "
                "It was saved by another release, or is not the state of a loader."
            )
        names = {entry.name: entry.type for entry in fields(cls)}
        if state["version"] == 1:  # it did not save `distributed`, and counted the batches of a rank
            names = {name: kind for name, kind in names.items() if name not in ("samples", "first", "distributed")}
            names["batch"] = "int"
        entries: dict[str, Any] = {}
        for name, kind in names.items():
            value: Any = state.get(name, _OF_MIXTURES.get(name))
            if type(value).__name__ != kind:
                raise StateError(f"the state's entry {name!r} is {value!r}, expected one of type {kind}")
            if kind == "int" and value < (least := int(name in ("batch_size", "world_size"))):
                raise StateError(f"the state's entry {name!r} is {value}, expected at least {least}")
            entries[name] = value
        if "batch" in entries:
            samples = entries.pop("batch") * entries["batch_size"] * entries["world_size"]
            entries.update(samples=samples, first=0, distributed=distributed or entries["world_size"] > 1)
        # Before version 3, all ids were hashed, also if they are those of all samples.
        if state["version"] < 3 and entries["indices"] == _old_range_fingerprint(index.num_samples):
            entries["indices"] = _indices_fingerprint(IdRange(index.num_samples))
        loaded = cls(**entries | {"file": renew_fingerprint(index, entries["file"])})
        if loaded.samples < loaded.first or (loaded.samples - loaded.first) % (loaded.batch_size * loaded.world_size):
            raise StateError(
                f"the state has {loaded.samples} samples after {loaded.first}, expected whole batches of "
                f"{loaded.world_size} times {loaded.batch_size}"
            )
        return loaded

    def check_against(self, current: Checkpoint, schedule: EpochSchedule, *, seed_is_fixed: bool) -> None:
        """Refuse the state if the loader's `current` position differs in anything that decides what batches hold."""
        may_differ = (set() if seed_is_fixed else {"seed"}) | (_ANY_RANKS if schedule.is_global else set())
        names = [name for name in _MEANINGS if name not in may_differ and getattr(current, name) != getattr(self, name)]
        if not names:
            return
        differences = "; ".join(
            f"{_MEANINGS[name]} is {getattr(current, name)!r} here and {getattr(self, name)!r} in the state"
            for name in names
        )
        advice = "Make the loader with the arguments of the saved one."
        if names == ["file"]:
            advice += (
                " For a state, the same samples converted, or in another number of files, are another dataset: finish "
                "the epoch with the files of the state."
            )
        if _ANY_RANKS.issuperset(names):
            advice += (
                f" The batches of {type(schedule.order).__name__} depend on them. With order='window' or 'random', "
                "another number of ranks and another batch size can go on with an epoch."
            )
        raise StateError(f"the state belongs to another loader: {differences}. {advice}")

    def place_in(self, current: Checkpoint, schedule: EpochSchedule) -> tuple[int, int]:
        """Give `first` and `batch` of a loader with the ranks and the batches of `current` that goes on here."""
        is_alike = (self.batch_size, self.world_size) == (current.batch_size, current.world_size)
        if is_alike:
            num_samples, num_batches = 0, len(schedule.plan(self.epoch, first=self.first))
        else:
            num_samples = schedule.num_samples_of(self.epoch)
            share_size = Rank(0, self.world_size).share(max(num_samples - self.first, 0))
            num_batches = share_size // self.batch_size if self.drop_last else -(-share_size // self.batch_size)
        if self.batch > num_batches:
            raise StateError(f"the state is at batch {self.batch}, but epoch {self.epoch} has {num_batches}")
        if is_alike:
            return self.first, self.batch
        # Nothing is left of an epoch that is over, also if its last samples made no whole batch.
        return (max(self.samples, num_samples) if self.batch == num_batches else self.samples), 0
