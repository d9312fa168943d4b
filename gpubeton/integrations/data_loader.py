"""DataLoaderAdapter: a loader for code that expects a ``torch.utils.data.DataLoader``."""

from __future__ import annotations

import weakref
from inspect import signature
from typing import TYPE_CHECKING, Any

from gpubeton.errors import OptionError
from gpubeton.loader import Loader, LoaderIterator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch.utils.data import BatchSampler

# Names that the loader accepts or refuses when they are assigned to the adapter.
LOADER_NAMES = frozenset({*signature(Loader).parameters, "traversal_order", "next_epoch", "first_traversal_order"})


class DataLoaderAdapter:
    """A loader with the attributes of a ``DataLoader``, for training loops that use them.

    It is not a ``DataLoader``, on purpose: libraries replace a ``DataLoader`` by one with their own sampler. The loader
    itself shuffles the samples and divides them between ranks.

    Parameters
    ----------
    loader : Loader
        The loader.
    names : sequence of str, optional
        Makes each batch a dict with these names for its outputs, in this order, as models of Hugging Face expect.
        By default a batch is the tuple of the loader. Another number of names than of outputs is an `OptionError`.

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

    # Of a ``DataLoader``, as arguments. Batches for a GPU are made on that GPU.
    pin_memory = False
    pin_memory_device = ""
    persistent_workers = in_order = True
    timeout = 0.0
    collate_fn = worker_init_fn = generator = multiprocessing_context = None

    def __init__(self, loader: Loader, *, names: Sequence[str] | None = None) -> None:
        self.loader = loader  #: the adapter has all of its attributes and methods, too: ``adapter.stats()``
        self.names = None if names is None else tuple(names)
        self.dataset = FileDataset(loader)  #: the samples; only its length
        self.sampler = Sampler(loader, self.set_epoch)  #: the sample ids of the next epoch, and ``set_epoch``
        self.prefetch_factor = loader.batches_ahead  #: `batches_ahead` of the loader
        self._latest: weakref.ref[AdapterIterator] | None = None
        self.is_to_resume = False  #: whether a state was loaded after the last epoch began

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.loader)

    def __iter__(self) -> AdapterIterator:
        """Return the batches of the next epoch, or the rest of an epoch after `load_state_dict`.

        The epoch begins with the first ``next``, because some training loops call ``iter`` only as a test.
        """
        iterator = AdapterIterator(self)
        self._latest = weakref.ref(iterator)
        return iterator

    @property
    def batch_sampler(self) -> BatchSampler:
        """The sample ids of each batch of the next epoch."""
        from torch.utils.data import BatchSampler

        return BatchSampler(self.sampler, self.loader.batch_size, self.loader.drop_last)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # a copy in the making has no attributes yet
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "loader" in vars(self) and name in LOADER_NAMES:  # the loader knows which of them can be set
            setattr(self.loader, name, value)
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_latest": None}  # a copy has no iterator

    def __repr__(self) -> str:
        return f"<DataLoaderAdapter of {self.loader!r}>"

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``for`` loop.

        An epoch that has begun, or is to be resumed after `load_state_dict`, continues: training loops may call this
        after they have made the iterator or loaded a state.

        Parameters
        ----------
        epoch : int
            Number of the epoch.
        """
        latest = None if self._latest is None else self._latest()
        if latest is not None and latest.is_under_way and latest.epoch == epoch:
            return
        if self.is_to_resume and self.loader.next_epoch == epoch:
            return
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader in its epochs.

        Returns
        -------
        dict
            As from `Loader.state_dict`. After the last batch it is the beginning of the next epoch, also for loops that
            count the batches and never reach ``StopIteration``.
        """
        return self.loader._checkpoint(ends_with_last_batch=True).to_dict()  # noqa: SLF001  the adapter represents the loader

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the position of another loader: the next ``for`` loop gives exactly the remaining batches.

        Parameters
        ----------
        state : mapping
            The result of `state_dict`.
        """
        self.loader.load_state_dict(state)
        self.is_to_resume = True


class AdapterIterator:
    """The batches of an epoch, made by ``iter(adapter)``."""

    def __init__(self, adapter: DataLoaderAdapter) -> None:
        self._adapter = adapter
        self._batches: LoaderIterator | None = None
        self._is_ended = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        """Remaining batches."""
        if self._batches is None:
            return self._adapter.loader._schedule.num_left  # noqa: SLF001  the adapter represents the loader
        return len(self._batches)

    @property
    def epoch(self) -> int:
        """Number of the epoch."""
        return self._adapter.loader.next_epoch if self._batches is None else self._batches.epoch

    @property
    def is_under_way(self) -> bool:
        """Whether the first batch was requested, and the end not reached."""
        return self._batches is not None and not self._is_ended

    def __next__(self) -> Any:
        """Wait for the next batch, a tuple or a dict."""
        if self._batches is None:
            self._adapter.is_to_resume = False
            self._batches = iter(self._adapter.loader)
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


class FileDataset:
    """The `dataset` of an adapter: only its length, because the loader makes whole batches."""

    def __init__(self, loader: Loader) -> None:
        self.fname = loader.fname
        self._loader = loader

    def __len__(self) -> int:
        """Samples of the loader, of all ranks together."""
        return len(self._loader.indices)

    def __getitem__(self, sample: int) -> Any:
        raise OptionError(
            f"{self.fname}: there are no single samples here, because the loader makes whole batches. If Accelerate's "
            "skip_first_batches asks for them, call gpubeton.integrations.accelerate.skip_first_batches"
        )

    def __repr__(self) -> str:
        return f"<{len(self)} samples of {self.fname}>"


class Sampler:
    """The `sampler` of an adapter: the sample ids of the next epoch."""

    def __init__(self, loader: Loader, set_epoch: Callable[[int], None]) -> None:
        self._loader = loader
        self._set_epoch = set_epoch
        rank = loader.traversal_order.rank
        self.rank, self.num_replicas = (0, 1) if rank is None else (rank.number, rank.world)

    def __len__(self) -> int:
        """Samples of this rank in an epoch, including those of a last batch that is dropped."""
        return len(self._loader.traversal_order.sample_order(self._loader.next_epoch))

    def __iter__(self) -> Iterator[int]:
        yield from map(int, self._loader.traversal_order.sample_order(self._loader.next_epoch))

    @property
    def epoch(self) -> int:
        """Number of the next epoch."""
        return self._loader.next_epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``for`` loop, as `DataLoaderAdapter.set_epoch`."""
        self._set_epoch(epoch)
