"""TraversalOrder: in which order a loader goes through its samples."""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gpubeton._plan.order import IdRange, LazyIds, share
from gpubeton._plan.places import Rank
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gpubeton.format.index import Index


class _FileContent(Protocol):
    @property
    def num_samples(self) -> int: ...

    @property
    def index(self) -> Index: ...


class OrderedLoader(Protocol):
    """The attributes of a loader that an order may use."""

    @property
    def reader(self) -> _FileContent: ...

    @property
    def indices(self) -> NDArray[np.uint64]: ...  # (N,)

    @property
    def seed(self) -> int: ...

    @property
    def distributed(self) -> bool: ...

    @property
    def batch_size(self) -> int: ...


class TraversalOrder(ABC):
    """An order of the samples of each epoch; derive from it to write one.

    Parameters
    ----------
    loader : Loader
        The loader that asks. Its ``indices``, ``seed`` and ``distributed`` are kept as attributes.

    Attributes
    ----------
    sampler : torch.utils.data.Sampler or None
        None, unless you set it. The orders of a distributed loader, except for `QuasiRandom`, then follow it: it gives
        positions among the indices.

    Raises
    ------
    OptionError
        If the loader is distributed and torch's process group has not been set up.

    Examples
    --------
    Backwards, in every epoch:

    >>> from gpubeton import Loader
    >>> class Backwards(TraversalOrder):
    ...     def sample_order(self, epoch):
    ...         return self.indices[::-1]
    >>> Loader("train.beton", 3, order=Backwards, indices=[4, 7, 9]).plan()[0].samples.tolist()
    [9, 7, 4]
    """

    sampler: Any = None
    draw_offset: int = 0  # added to the seed of what is drawn for the samples; not 0 where ranks draw differently
    local_arguments: frozenset[str] = frozenset()  # those of the class in which a state's loader may differ
    caches_all: bool = True  # whether the cache of this machine is for all pages, not for those of its ranks
    for_ranks: bool | None = None  # whether it shuffles as ranks do; None if a loader without ranks shuffles alike

    def __init__(self, loader: OrderedLoader) -> None:
        self.loader = loader
        ids: NDArray[np.uint64] | IdRange | None = getattr(loader, "_ids", None)  # as a range if they are all
        self.ids = loader.indices if ids is None else ids
        self.seed = loader.seed
        self.distributed = loader.distributed
        self.rank = rank_of_process() if loader.distributed else None

    @property
    def indices(self) -> NDArray[np.uint64]:
        """The loader's indices, unless others were assigned."""
        return self.ids.array if isinstance(self.ids, IdRange) else self.ids

    @indices.setter
    def indices(self, ids: NDArray[np.uint64]) -> None:
        self.ids = ids

    @abstractmethod
    def sample_order(self, epoch: int) -> Sequence[int] | NDArray[np.uint64]:
        """Sample ids of an epoch, in order.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.

        Returns
        -------
        sequence of int or ndarray of uint64
            The sample ids. Make them a function of the epoch alone, so that training can be resumed.
        """

    def global_order(self, epoch: int) -> NDArray[np.uint64] | None:
        """Sample ids of an epoch, of all ranks; override it to let any number of ranks go on with an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.

        Returns
        -------
        ndarray of uint64, shape (N,), or None
            The sample ids: rank r of W has those at r, r + W, r + 2 W and so on. None, as here: the order depends on
            the number of ranks or on the batch size, so that a state can only be loaded where these are the same.
        """
        return None


class GlobalOrder(TraversalOrder):
    """An order that is the same for any number of ranks and any batch size."""

    def global_order(self, epoch: int) -> NDArray[np.uint64]:
        return np.asarray(self.global_ids(epoch), np.uint64)

    def sample_order(self, epoch: int) -> NDArray[np.uint64]:
        sampled = self._sampled(epoch)
        return np.asarray(self._share(self.global_order(epoch), 0), np.uint64) if sampled is None else sampled

    def ids_of(self, epoch: int, first: int) -> NDArray[Any] | LazyIds:
        """Give this rank's sample ids of an epoch after `first` samples of all ranks, as they take least memory."""
        sampled = self._sampled(epoch)
        return self._share(self.global_ids(epoch), first) if sampled is None else sampled

    def _share(self, ids: NDArray[Any] | LazyIds, first: int) -> NDArray[Any] | LazyIds:
        """Give this rank its part of the ids of all ranks, (N,), after the first ones."""
        return share(ids, self.rank, first)

    @abstractmethod
    def global_ids(self, epoch: int) -> NDArray[Any] | LazyIds:
        """Give `global_order` as it takes least memory."""

    def num_ids(self, epoch: int) -> int:
        """Count the sample ids of an epoch, of all ranks."""
        return len(self.ids)

    def _sampled(self, epoch: int) -> NDArray[np.uint64] | None:
        """The samples that the user's sampler chooses, (N,); None if the order does not follow one."""
        if self.sampler is None or not self.distributed:
            return None
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        indices, positions = np.asarray(self.indices, np.uint64), np.fromiter(self.sampler, np.intp)
        wrong = positions[(positions < 0) | (positions >= len(indices))]
        if len(wrong):
            raise OptionError(
                f"the order's sampler gives the position {wrong[0]} ({len(wrong)} such numbers), but there are "
                f"{len(indices)} indices; expected 0 to {len(indices) - 1}. Set a sampler made for as many"
            )
        return indices[positions]


def rank_of_process() -> Rank:
    """Give the rank that torch's process group gave to this process."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        raise OptionError(
            "distributed=True, but torch's process group has not been initialized. "
            "Call torch.distributed.init_process_group() before the loader is made."
        )
    return Rank(dist.get_rank(), dist.get_world_size())


_num_loaders: Counter[str] = Counter()  # made by this process, by their files


def check_ranks(title: str, seed: int, arguments: Mapping[str, Any]) -> None:
    """Raise `OptionError` if another rank's loader has another seed: their shares would overlap; warn of the rest."""
    # `title` names the data. All ranks make the same loaders of one title, in the same order.
    import torch.distributed as dist

    first = _value_of_first_rank(f"seed/{title}, {[*arguments.values()]}", seed)
    if first != seed:
        raise OptionError(
            f"seed is {seed} on rank {dist.get_rank()} of {dist.get_world_size()}, but {first} on another rank: each "
            "would shuffle differently: some samples would come twice, others never. Give all ranks the same "
            "seed; the ranks get different samples, and different draws for them, by distributed=True"
        )
    others = _value_of_first_rank(f"arguments/{title}", dict(arguments))
    unlike = [
        f"{name} is {value} here, {others[name]} there" for name, value in arguments.items() if value != others[name]
    ]
    if unlike:
        warnings.warn(
            f"{title}: rank {dist.get_rank()} of {dist.get_world_size()} has other arguments than another rank: "
            f"{'; '.join(unlike)}. Some samples would come twice, others never, and ranks may wait for each other "
            "forever. Give all ranks the same",
            stacklevel=4,
        )


def _value_of_first_rank(name: str, value: Any) -> Any:
    """Give what the rank that comes first has for a loader, by the number of its loader of that name."""
    import torch.distributed as dist

    _num_loaders[name] += 1
    key = f"gpubeton/{name}/{_num_loaders[name]}"
    try:
        # The first rank leaves its value in the group's store, where the others find it: they wait for that alone.
        # `compare_set` would be one call, but it crashes the process with torch 2.3.
        store = dist.distributed_c10d._get_default_store()  # noqa: SLF001  there is no public way to the store
        if store.add(f"{key}/ranks", 1) == 1:
            store.set(key, json.dumps(value))
        return json.loads(store.get(key))
    except (AttributeError, RuntimeError, ValueError):  # no store, or one that cannot count
        return value
