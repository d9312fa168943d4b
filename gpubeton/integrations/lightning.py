"""BetonDataModule: ``.beton`` files for PyTorch Lightning."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from gpubeton._machine import install
from gpubeton.errors import DeviceError, OptionError
from gpubeton.integrations.data_loader import DataLoaderAdapter, Sampler
from gpubeton.loader import Loader, LoaderStats

try:
    from lightning.pytorch import LightningDataModule, Trainer
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}. Install it: {install('lightning')}", name=error.name) from error

__all__ = ["BetonDataModule", "Source"]

Source: TypeAlias = Loader | Mapping[str, Any] | Callable[[], Loader]
"""A loader, its arguments, or a function that makes it."""


class BetonDataModule(LightningDataModule):
    """``.beton`` files for a ``Trainer``.

    A checkpoint in the middle of an epoch contains the position in the training data: ``trainer.fit(...,
    ckpt_path=...)`` continues with exactly the remaining batches, also after the process was killed, and also with
    another number of devices or another batch size. With several devices, the loader gives each rank its share, without
    Lightning's samplers. Batches are made on the device of the rank.

    Parameters
    ----------
    train : Loader, mapping of str to object, or callable
        The training data: the arguments of a `Loader`, or a function that makes one; either is used when the rank and
        its device are known. Or a loader.
    val, test, predict : the same, or a sequence of these
        The other data.
    **common : object
        Arguments for all loaders that are given as mappings.

    Notes
    -----
    Loaders that are given as mappings have these defaults: ``distributed`` is true if there are several ranks; then
    ``seed`` is the seed of ``lightning.seed_everything``, else 0; ``device`` is the GPU of the rank, if it has one;
    ``drop_last`` is true only for training, so that metrics use all samples.

    Examples
    --------
    >>> data = BetonDataModule(                                                                       # doctest: +SKIP
    ...     train={"fname": "train.beton", "order": "random", "pipelines": {"image": augmented}},
    ...     val={"fname": "val.beton", "pipelines": {"image": plain}},
    ...     batch_size=256,
    ... )
    >>> Trainer(max_epochs=16).fit(model, data, ckpt_path="last")                                     # doctest: +SKIP
    """

    def __init__(
        self,
        train: Source | None = None,
        val: Source | Sequence[Source] | None = None,
        test: Source | Sequence[Source] | None = None,
        predict: Source | Sequence[Source] | None = None,
        **common: Any,
    ) -> None:
        super().__init__()
        self._sources = {"train": train, "val": val, "test": test, "predict": predict}
        self._common = common
        self._train: DataLoaderAdapter | None = None
        self._loaders: dict[str, list[Loader]] = {}
        self._made: list[Loader] = []
        self._state_to_load: Mapping[str, Any] | None = None

    def train_dataloader(self) -> DataLoaderAdapter:
        """Make the loader of the training data; its epochs begin at the trainer's or at the checkpoint's position."""
        (self._train,) = self._adapters("train")
        # A schedule that asks for `estimated_stepping_batches` makes the loader before Lightning restores its loops.
        # They are restored when an epoch begins, and then Lightning sets the epoch of the sampler.
        self._train.sampler = Sampler(self._train.loader, self._begin_epoch)
        return self._train

    def val_dataloader(self) -> list[DataLoaderAdapter]:
        """Make the loaders of the validation data, one for each source."""
        return [] if self._sources["val"] is None else self._adapters("val")

    def test_dataloader(self) -> list[DataLoaderAdapter]:
        """Make the loaders of the test data, one for each source."""
        return self._adapters("test")

    def predict_dataloader(self) -> list[DataLoaderAdapter]:
        """Make the loaders of the data to predict, one for each source."""
        return self._adapters("predict")

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the training data; it is part of each checkpoint."""
        return {} if self._train is None else {"train": self._state_to_load or self._train.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the result of `state_dict` when training resumes."""
        self._state_to_load = state_dict.get("train")

    def stats(self) -> dict[str, list[LoaderStats]]:
        """Return the statistics of the last epoch of each loader.

        Returns
        -------
        dict of str to list of LoaderStats
            By "train", "val", "test" and "predict".
        """
        return {name: [loader.stats() for loader in loaders] for name, loaders in self._loaders.items()}

    def teardown(self, stage: str) -> None:
        """Close the loaders that this data module made."""
        for loader in self._made:
            loader.close()
        self._made.clear()

    def _begin_epoch(self, epoch: int) -> None:
        """Go to an epoch, or to the position of a checkpoint in it."""
        train, trainer, state = self._train, self.trainer, self._state_to_load
        if train is None:
            return
        if state is not None and trainer is not None and trainer.fit_loop.restarting:
            train.load_state_dict(state)
            _count_as_now(train, trainer)
        else:
            train.set_epoch(epoch)
        self._state_to_load = None

    def _adapters(self, name: str) -> list[DataLoaderAdapter]:
        data: Any = self._sources[name]
        if data is None:
            raise OptionError(f"this BetonDataModule has no data to {name}; expected BetonDataModule({name}=...)")
        sources = list(data) if isinstance(data, Sequence) and not isinstance(data, str) else [data]
        for wrong in sources:
            if not (isinstance(wrong, (Loader, Mapping)) or callable(wrong)):
                raise OptionError(
                    f"{name} is {wrong!r}; expected the arguments of a Loader as a dict, "
                    '{"fname": "train.beton", "pipelines": pipelines}, a Loader, or a function that makes one'
                )
        self._loaders[name] = [self._loader(source, is_training=name == "train") for source in sources]
        return [DataLoaderAdapter(loader) for loader in self._loaders[name]]

    def _loader(self, source: Source, *, is_training: bool) -> Loader:
        if isinstance(source, Loader):
            return self._checked_share(source)
        if isinstance(source, Mapping):
            loader = self._make({"drop_last": is_training, **self._common, **source})
        else:
            loader = self._checked_share(source())
        self._made.append(loader)
        return loader

    def _make(self, arguments: dict[str, Any]) -> Loader:
        if self._world_size > 1:
            arguments = {"distributed": True, "seed": int(os.environ.get("PL_GLOBAL_SEED", "0")), **arguments}
        trainer = self.trainer
        device = None if trainer is None else trainer.strategy.root_device
        if device is None or device.type != "cuda" or "device" in arguments:
            return Loader(**arguments)
        try:
            return Loader(**arguments, device=device)
        except DeviceError as error:
            warnings.warn(
                f"{arguments.get('fname')}: batches are made on the CPU, because the GPU cannot be used: {error}",
                stacklevel=2,
            )
            return Loader(**arguments)

    def _checked_share(self, loader: Loader) -> Loader:
        if self._world_size > 1 and not loader.distributed:
            warnings.warn(
                f"{loader.fname}: {self._world_size} ranks, but the loader was made with distributed=False, so each "
                "rank gets all samples. Pass its arguments, or a function that makes it.",
                stacklevel=2,
            )
        return loader

    @property
    def _world_size(self) -> int:
        return 1 if self.trainer is None else self.trainer.world_size


def _count_as_now(train: DataLoaderAdapter, trainer: Trainer) -> None:
    """Count the batches of a resumed epoch as if these ranks, with these batches, had received all of them."""
    # Lightning ends an epoch, and validates in it, by its own count, which goes on from the checkpoint. Without other
    # ranks or batches nothing changes here.
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress
    limit = trainer.limit_train_batches
    whole, left = len(train), len(iter(train))
    at_most = min(whole, limit) if isinstance(limit, int) else int(whole * limit)
    if progress.is_last_batch:
        received = at_most
    elif isinstance(limit, int):  # the same number for any ranks
        received = at_most - min(left, limit - progress.current.processed)
    else:
        received = whole - left
    more = received - progress.current.processed
    for name, count in vars(progress.current).items():
        setattr(progress.current, name, count + more)
