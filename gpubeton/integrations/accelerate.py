"""AccelerateLoader: a loader for Hugging Face Accelerate; and how to skip batches of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from gpubeton._machine import install
from gpubeton.errors import OptionError
from gpubeton.integrations.data_loader import LOADER_NAMES, DataLoaderAdapter
from gpubeton.pipeline.validation import check_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubeton.loader import Loader

try:
    from accelerate.data_loader import DataLoaderStateMixin
    from accelerate.state import GradientState, PartialState
    from accelerate.utils import send_to_device
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}. Install it: {install('accelerate')}", name=error.name) from error

__all__ = ["AccelerateLoader", "skip_first_batches"]


class AccelerateLoader(DataLoaderStateMixin, DataLoader[Any]):  # type: ignore[misc]  # Accelerate has no types
    """A loader that ``accelerator.prepare`` accepts unchanged: it divides the samples itself.

    Batches come on the device of the process. Make the loader after the ``Accelerator``, with ``distributed=True`` if
    there are several processes. Gradient accumulation, ``gather_for_metrics`` and ``save_state`` work, also in the
    middle of an epoch, and with another number of processes: ``load_state`` continues from the saved position. Where
    only the number of batches was saved, call this module's `skip_first_batches` in place of Accelerate's.

    Parameters
    ----------
    loader : Loader
        The loader.
    names : sequence of str, optional
        As for `DataLoaderAdapter`: batches become dicts.
    non_blocking : bool
        Whether copies to the device are asynchronous.

    Examples
    --------
    >>> accelerator = Accelerator()                                                                   # doctest: +SKIP
    >>> loader = Loader("train.beton", 256, order="random", seed=0, distributed=True)                 # doctest: +SKIP
    >>> model, optimizer, loader = accelerator.prepare(model, optimizer, AccelerateLoader(loader))    # doctest: +SKIP
    """

    # It is a DataLoader only so that `prepare` registers it; with this, `prepare` does not replace it.
    _is_accelerate_prepared = True
    # `save_state` and `load_state` then use state_dict() and load_state_dict().
    use_stateful_dataloader = True
    # Of Accelerate: the samples in the last batches of all ranks that are not repetitions; -1: unknown.
    remainder: int

    def __init__(self, loader: Loader, *, names: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        # DataLoader.__init__ is not called: it would make batches of a dataset.
        self.adapter = DataLoaderAdapter(loader, names=names)  #: this loader has its attributes and methods, too
        self.gradient_state = GradientState()
        self.dataset = self.adapter.dataset  # type: ignore[assignment]  # only its length is used
        self._non_blocking = non_blocking

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.adapter)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # DataLoader returns a private class
        """Give the batches of the next epoch, or the rest of one after `load_state_dict`, on the process's device."""
        device = PartialState().device
        self.begin()
        if self.remainder >= 0:
            self.remainder = self._remainder()
        try:
            # No batch is requested ahead, because a state would count it: the loader knows how many remain.
            batches = iter(self.adapter)
            for batch in batches:
                self.end_of_dataloader = len(batches) == 0
                yield send_to_device(batch, device, non_blocking=self._non_blocking)
        finally:
            self.end()

    def __getattr__(self, name: str) -> Any:
        if name == "adapter" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.adapter, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "adapter" in vars(self) and name in LOADER_NAMES:
            setattr(self.adapter, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def _drop_last(self) -> bool:  # used by Accelerate
        return self.adapter.loader.drop_last

    @property
    def total_batch_size(self) -> int:
        """Samples in a batch, of all processes together."""
        return self.adapter.loader.batch_size * self.adapter.sampler.num_replicas

    @property
    def total_dataset_length(self) -> int:
        """Samples, of all processes together."""
        return len(self.adapter.dataset)

    def _remainder(self) -> int:
        """Count the samples in the last batches of all ranks that are no repetitions; -1 if they are not the first."""
        # `gather_for_metrics` cuts the joined batches at the end. The repeated samples are the last row of the last
        # ranks: they come last if there is one such rank, or if the last batches have one row each.
        sampler, first = self.adapter.sampler, self.adapter.loader._schedule.next.first  # noqa: SLF001  as the adapter
        left = self.total_dataset_length - first  # by these ranks
        share = -(-left // sampler.num_replicas) if first else len(sampler)
        filled_up = share * sampler.num_replicas - left
        is_at_the_end = filled_up <= 1 or share % self.adapter.loader.batch_size == 1
        remainder = left % self.total_batch_size
        return remainder if is_at_the_end or not remainder else -1


def skip_first_batches(
    loader: AccelerateLoader, num_batches: int, *, total_batch_size: int | None = None
) -> AccelerateLoader:
    """Let the next ``for`` loop begin after some batches of its epoch, without making them.

    It takes the place of Accelerate's function of this name, which can only skip batches of a ``Dataset``.
    ``load_state`` needs neither of them.

    Parameters
    ----------
    loader : AccelerateLoader
        The loader. Choose the epoch before, with `set_epoch`.
    num_batches : int
        Batches that each process received, counted from the beginning of the epoch.
    total_batch_size : int, optional
        Samples of all processes together in each of these batches: their number times the batch size. By default as
        now. With other numbers, as many samples are skipped as those processes received.

    Returns
    -------
    AccelerateLoader
        The same one. The loops after the next begin at the first batch.

    Raises
    ------
    OptionError
        If a number is negative, or `loader` is no `AccelerateLoader`.
    StateError
        If the epoch has fewer batches, or its order depends on the number of processes.

    Examples
    --------
    >>> from gpubeton.loader import Loader
    >>> loader = AccelerateLoader(Loader("train.beton", 50, order="random", seed=0, pipelines={"image": None}))
    >>> loader.set_epoch(3)
    >>> sum(1 for batch in skip_first_batches(loader, 4))
    2
    """
    if not isinstance(loader, AccelerateLoader):
        raise OptionError(
            f"loader is {type(loader).__name__}; expected an AccelerateLoader. Accelerate's own skip_first_batches is "
            "for other loaders"
        )
    check_whole("num_batches", num_batches, 0)
    now = loader.total_batch_size
    size = now if total_batch_size is None else check_whole("total_batch_size", total_batch_size, 1)
    loader.adapter.loader.set_epoch(loader.adapter.loader.next_epoch)
    received = {"samples": num_batches * size}
    if size != now:
        received |= {"batch_size": size, "world_size": 1}
    loader.load_state_dict({**loader.state_dict(), **received})
    return loader
