"""DataLoaderAdapter: a loader for code that expects a ``torch.utils.data.DataLoader``."""

from __future__ import annotations

import weakref
from inspect import signature
from typing import TYPE_CHECKING, Any

from gpubeton.errors import OptionError
from gpubeton.integrations.samplers import BatchSampler, FileDataset, Sampler
from gpubeton.loader import Loader, LoaderIterator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["AdapterIterator", "DataLoaderAdapter"]

# What the loader takes, or refuses, if it is assigned to the adapter.
THE_LOADERS = frozenset({*signature(Loader).parameters, "traversal_order", "next_epoch", "first_traversal_order"})


class DataLoaderAdapter:
    """A loader with the attributes of a ``DataLoader``, for training loops that look at them.

    It is none, on purpose: loops that meet a ``DataLoader`` make another one of its parts, with a sampler of their own.
    Sharding between ranks and shuffling are the loader's.

    Parameters
    ----------
    loader : Loader
        The loader.
    names : sequence of str, optional
        Makes each batch a dict with these names for its outputs, in their order, as models of Hugging Face want it.
        By default a batch is the loader's tuple.

    Attributes
    ----------
    loader : Loader
        The loader; whatever else is asked of the adapter is the loader's: ``adapter.stats()``.
    dataset : FileDataset
        Has a length.
    batch_size, drop_last, num_workers : int, bool, int
        The loader's.
    prefetch_factor : int
        The loader's `batches_ahead`.
    sampler : Sampler
        The ids of the next epoch; ``set_epoch``.
    batch_sampler : BatchSampler
        The ids of its batches.
    pin_memory, persistent_workers, in_order, timeout, pin_memory_device
        As if these had been passed to a ``DataLoader``: False, True, True, 0.0, "". Batches for a GPU are made there.
    is_to_resume : bool
        Whether a state was loaded since the last epoch began.
    collate_fn, worker_init_fn, generator, multiprocessing_context : None
        There are none.

    Raises
    ------
    OptionError
        When a batch has another number of outputs than there are `names`.

    Examples
    --------
    >>> from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
    >>> from gpubeton.loader import Loader
    >>> from gpubeton.transforms import ToTensor
    >>> image = [RandomResizedCropRGBImageDecoder((32, 32)), ToTensor()]
    >>> loader = DataLoaderAdapter(Loader("train.beton", 100, pipelines={"image": image}), names=["pixels", "labels"])
    >>> len(loader.dataset), next(iter(loader))["labels"].shape
    (300, torch.Size([100, 1]))
    """

    pin_memory = False
    pin_memory_device = ""
    persistent_workers = in_order = True
    timeout = 0.0
    collate_fn = worker_init_fn = generator = multiprocessing_context = None

    def __init__(self, loader: Loader, *, names: Sequence[str] | None = None) -> None:
        self.loader = loader
        self.names = None if names is None else tuple(names)
        self.dataset = FileDataset(loader)
        self.sampler = Sampler(loader, self.set_epoch)
        self.batch_sampler = BatchSampler(loader, self.sampler)
        self.prefetch_factor = loader.batches_ahead
        self._latest: weakref.ref[AdapterIterator] | None = None
        self.is_to_resume = False

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.loader)

    def __iter__(self) -> AdapterIterator:
        """Begin the next epoch, or go on where a loaded state says, when the first batch is asked for.

        Not before: training loops call ``iter`` only to see whether that is possible, too.

        Returns
        -------
        AdapterIterator
            Its batches.
        """
        iterator = AdapterIterator(self)
        self._latest = weakref.ref(iterator)
        return iterator

    def begin(self) -> LoaderIterator:
        """Begin the next epoch now.

        Returns
        -------
        LoaderIterator
            Has begun to make batches.
        """
        self.is_to_resume = False
        return iter(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # not there yet: a copy that is being made
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "loader" in vars(self) and name in THE_LOADERS:  # the loader knows which of them may be set
            setattr(self.loader, name, value)
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_latest": None}  # a copy has no iterator yet

    def __repr__(self) -> str:
        return f"<DataLoaderAdapter of {self.loader!r}>"

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next ``for`` loop goes through.

        Training loops say it at different moments, some when the epoch's iterator is there already, or when a state was
        loaded in the middle of it. That epoch goes on then.

        Parameters
        ----------
        epoch : int
            Its number.
        """
        latest = None if self._latest is None else self._latest()
        if latest is not None and latest.is_under_way and latest.epoch == epoch:
            return
        if self.is_to_resume and self.loader.next_epoch == epoch:
            return
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Tell where the loader stands.

        Returns
        -------
        dict
            As `Loader.state_dict`; after the last batch it is the next epoch's beginning, also for loops that count the
            batches and never ask for the end.
        """
        return self.loader._state(ends_with_last_batch=True).to_dict()  # noqa: SLF001  it speaks for the loader

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another loader stood: the next ``for`` loop gives exactly the batches that were still to come.

        Parameters
        ----------
        state : mapping
            What `state_dict` returned.
        """
        self.loader.load_state_dict(state)
        self.is_to_resume = True


class AdapterIterator:
    """The batches of an epoch; made by ``iter(adapter)``.

    Parameters
    ----------
    adapter : DataLoaderAdapter
        The loader.
    """

    def __init__(self, adapter: DataLoaderAdapter) -> None:
        self._adapter = adapter
        self._batches: LoaderIterator | None = None
        self._is_ended = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        """Batches that are still to come."""
        if self._batches is None:
            state = self._adapter.state_dict() if self._adapter.is_to_resume else {"batch": 0}
            return len(self._adapter) - int(state["batch"])
        return len(self._batches)

    @property
    def epoch(self) -> int:
        """Number of the epoch."""
        return self._adapter.loader.next_epoch if self._batches is None else self._batches.epoch

    @property
    def is_under_way(self) -> bool:
        """Whether batches were asked for, and not the end."""
        return self._batches is not None and not self._is_ended

    def __next__(self) -> Any:
        """Wait for the next batch.

        Returns
        -------
        tuple or dict
            Its outputs.
        """
        if self._batches is None:
            self._batches = self._adapter.begin()
        try:
            batch = next(self._batches)
        except BaseException:
            self._is_ended = True
            raise
        names = self._adapter.names
        if names is None:
            return batch
        if len(names) != len(batch):
            raise OptionError(f"names are {list(names)}, but a batch has {len(batch)} outputs; expected as many")
        return dict(zip(names, batch, strict=True))
