"""AccelerateLoader: a loader for Hugging Face Accelerate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from gpubeton.integrations.data_loader import THE_LOADERS, DataLoaderAdapter

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
    """A loader that ``accelerator.prepare`` takes as it is: batches on the right device, shared out once.

    Make the loader after the ``Accelerator``, with ``distributed=True`` if there are several processes; it shares out
    the samples itself. Gradient accumulation, ``gather_for_metrics`` and ``save_state``, in the middle of an epoch too,
    know it. ``skip_first_batches`` is not needed: ``load_state`` goes on where the state was saved.

    Parameters
    ----------
    loader : Loader
        The loader.
    names : sequence of str, optional
        As for `DataLoaderAdapter`: batches become dicts.
    non_blocking : bool
        Whether copies to the device wait for nobody.

    Attributes
    ----------
    adapter : DataLoaderAdapter
        What everything else is asked of.

    Examples
    --------
    >>> accelerator = Accelerator()                                                                   # doctest: +SKIP
    >>> loader = Loader("train.beton", 256, order="random", seed=0, distributed=True)                 # doctest: +SKIP
    >>> model, optimizer, loader = accelerator.prepare(model, optimizer, AccelerateLoader(loader))    # doctest: +SKIP
    """

    # It is a DataLoader by name only, so that `prepare` registers it; this keeps it from being taken to pieces.
    _is_accelerate_prepared = True
    # Has `save_state` and `load_state` ask for the state.
    use_stateful_dataloader = True
    # Accelerate's: how many samples of the last batches of all ranks are no repetitions; -1 if that is not known.
    remainder: int

    def __init__(self, loader: Loader, *, names: Sequence[str] | None = None, non_blocking: bool = False) -> None:
        # DataLoader's own __init__ is left out: there is no dataset to make batches of.
        self.adapter = DataLoaderAdapter(loader, names=names)
        self.gradient_state = GradientState()
        self.dataset = self.adapter.dataset  # type: ignore[assignment]  # it has a length, which is what is asked for
        self._non_blocking = non_blocking

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.adapter)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # DataLoader's is a class of its own
        """Begin the next epoch, or go on where a loaded state says.

        Yields
        ------
        tuple or dict
            A batch, on the process's device.
        """
        device = PartialState().device
        self.begin()
        if self.remainder > 0 and not self._remainder_is_at_the_end():
            self.remainder = -1
        try:
            # The loader knows how many batches there are: none is asked for ahead, which a state would count.
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
        if "adapter" in vars(self) and name in THE_LOADERS:
            setattr(self.adapter, name, value)
        else:
            super().__setattr__(name, value)

    @property
    def _drop_last(self) -> bool:  # Accelerate asks for it
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
        """Choose the epoch that the next ``for`` loop goes through.

        Parameters
        ----------
        epoch : int
            Its number.
        """
        self.adapter.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Tell where the loader stands.

        Returns
        -------
        dict
            As `DataLoaderAdapter.state_dict`.
        """
        return self.adapter.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another loader stood.

        Parameters
        ----------
        state : mapping
            What `state_dict` returned.
        """
        self.adapter.load_state_dict(state)

    def _remainder_is_at_the_end(self) -> bool:
        """Whether samples that fill up the last ranks come last when the last batches of all are put together.

        ``gather_for_metrics`` cuts them off there. They are the last row of the last ranks: behind all others if there
        is one such rank, or if the last batches have one row each.
        """
        sampler = self.adapter.sampler
        filled_up = len(sampler) * sampler.num_replicas - self.total_dataset_length
        return filled_up <= 1 or len(sampler) % self.adapter.loader.batch_size == 1
