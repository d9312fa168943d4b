"""Settings: what of a loader may be assigned to once it is there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpubeton.errors import OptionError
from gpubeton.loader import arguments
from gpubeton.loader.epochs import Epochs
from gpubeton.loader.line import Memory
from gpubeton.reader import Reader

_CHECKS: dict[str, Callable[[Any], Any]] = {
    "batch_size": partial(arguments.checked_count, "batch_size"),
    "drop_last": bool,
    "num_workers": arguments.checked_workers,
    "batches_ahead": partial(arguments.checked_count, "batches_ahead"),
    "on_error": arguments.checked_on_error,
    "recompile": bool,
}

# The order, the plan of the memory and the choice of the device were made from them.
_FIXED = {
    "fname": "fname",
    "os_cache": "os_cache",
    "order": "order",
    "order_kwargs": "order_kwargs",
    "traversal_order": "order",
    "distributed": "distributed",
    "seed": "seed",
    "indices": "indices",
    "pipelines": "pipelines",
    "custom_fields": "custom_fields",
    "device": "device",
    "decoder": "decoder",
    "gpu_options": "gpu_options",
}


class Settings:
    """The part of a loader that takes assignments: those that count from the next epoch on; it refuses all others.

    `Loader` sets the attributes, `_epochs` behind the arguments.

    Attributes
    ----------
    reader : Reader
        What the file holds.
    batch_size : int
        Samples in a batch.
    drop_last : bool
        Whether a smaller last batch is left out.
    """

    reader: Reader
    batch_size: int
    drop_last: bool
    _epochs: Epochs
    _memory: Memory

    def __setattr__(self, name: str, value: Any) -> None:
        if "_epochs" in vars(self):
            self._refuse(name)
            if name in _CHECKS:
                value = _CHECKS[name](value)
            if name in ("batch_size", "drop_last"):
                self._epochs.cut_anew(**{"batch_size": self.batch_size, "drop_last": self.drop_last, name: value})
        super().__setattr__(name, value)

    def _refuse(self, name: str) -> None:
        """Refuse an assignment that would change nothing, or only a part of what it should."""
        title = self.reader.index.title
        if name in _FIXED:
            argument = _FIXED[name]
            raise OptionError(
                f"{title}: {name} of a loader cannot be changed once it is made. Make a new one: "
                f"Loader(..., {argument}=...). What may be set is {', '.join(_CHECKS)} and next_epoch; what is changed "
                f"in the operations of the pipelines counts, too. All count from the next epoch on."
            )
        if name == "batches_ahead" and self._memory.gpu is not None:
            raise OptionError(
                f"{title}: batches_ahead cannot be changed: the GPU has its memory for as many batches as the loader "
                f"was made with. Make a new one: Loader(..., batches_ahead=...)."
            )
