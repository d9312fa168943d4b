"""AccelerateLoader: a loader for Hugging Face Accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from gpubeton.integrations.data_loader import LOADER_NAMES, DataLoaderAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpubeton.loader import Loader

try:
    from accelerate.data_loader import DataLoaderStateMixin
    from accelerate.state import GradientState, PartialState
    from accelerate.utils import send_to_device
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}. Install it: pip install 'gpubeton[accelerate]'", name=error.name) from error

__all__ = ["AccelerateLoader"]


class AccelerateLoader(DataLoaderStateMixin, DataLoader[Any]):  # type: ignore[misc]  # Accelerate has no types
    """A loader that ``accelerator.prepare`` accepts unchanged: it divides the samples itself.

    Batches come on the device of the process. Make the loader after the ``Accelerator``, with ``distributed=True`` if
    there are several processes. Gradient accumulation, ``gather_for_metrics`` and ``save_state`` work, also in the
    middle of an epoch. ``skip_first_batches`` is not needed: ``load_state`` continues from the saved position.

    Parameters
    ----------
    loader : Loader
        The loader.
    names : sequence of str, optional
        As for `DataLoaderAdapter`: batches become dicts.
    non_blocking : bool
        Whether copies to the device are asynchronous.

    Attributes
    ----------
    adapter : DataLoaderAdapter
        The adapter; this loader has all of its attributes too.

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
        self.adapter = DataLoaderAdapter(loader, names=names)
        self.gradient_state = GradientState()
        self.dataset = self.adapter.dataset  # type: ignore[assignment]  # only its length is used
        self._non_blocking = non_blocking

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.adapter)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # DataLoader returns a private class
        """Iterate over the next epoch, or the rest of an epoch after `load_state_dict`.

        Yields
        ------
        tuple or dict
            A batch, on the device of the process.
        """
        device = PartialState().device
        self.begin()
        if self.remainder > 0 and not self._remainder_is_at_the_end():
            self.remainder = -1
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

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next ``for`` loop.

        Parameters
        ----------
        epoch : int
            Number of the epoch.
        """
        self.adapter.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader in its epochs.

        Returns
        -------
        dict
            As from `DataLoaderAdapter.state_dict`.
        """
        return self.adapter.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the position of another loader.

        Parameters
        ----------
        state : mapping
            The result of `state_dict`.
        """
        self.adapter.load_state_dict(state)

    def _remainder_is_at_the_end(self) -> bool:
        """Whether the repeated samples come last when the last batches of all ranks are joined."""
        # `gather_for_metrics` cuts the joined batches at the end. The repeated samples are the last row of the last
        # ranks: they come last if there is one such rank, or if the last batches have one row each.
        sampler = self.adapter.sampler
        filled_up = len(sampler) * sampler.num_replicas - self.total_dataset_length
        return filled_up <= 1 or len(sampler) % self.adapter.loader.batch_size == 1
