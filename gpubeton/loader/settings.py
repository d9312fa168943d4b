"""Settings: what of a loader may be assigned to once it is there."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gpubeton.errors import OptionError
from gpubeton.loader import arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.gpu.gpu_options import GpuOptions
    from gpubeton.loader.epochs import Epochs
    from gpubeton.loader.gpu_choice import Decoder
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

# The plan of the memory and the choice of the device were made from them.
_FIXED = (
    *("fname", "os_cache", "order_kwargs", "distributed", "seed", "pipelines", "custom_fields"),
    *("device", "decoder", "gpu_options"),
)
# FFCV's loader has none of these: classes derived from it may have their own.
_FREE = ("os_cache", "custom_fields", "device", "decoder", "gpu_options")
_SAMPLES = ("indices", "order", "traversal_order")


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
    traversal_order: Any
    device: str
    decoder: Decoder
    gpu_options: GpuOptions
    os_cache: bool
    _epochs: Epochs
    _memory: Memory

    def __setattr__(self, name: str, value: Any) -> None:
        if "_epochs" in vars(self):
            self._refuse(name, value)
            if name in _CHECKS:
                value = _CHECKS[name](value)
            if name in ("batch_size", "drop_last"):
                self._epochs.cut_anew(**{"batch_size": self.batch_size, "drop_last": self.drop_last, name: value})
            if name == "indices":
                self._go_through(value)
                return
            if name == "order":
                name = "traversal_order"
        super().__setattr__(name, value)

    def _go_through(self, indices: Any) -> None:
        """Take other samples."""
        before = vars(self)["indices"]
        vars(self)["indices"] = arguments.checked_indices("indices", indices, self.reader.num_samples)
        try:
            self._epochs.go_through()
        except BaseException:
            vars(self)["indices"] = before
            raise

    def _refuse(self, name: str, value: Any) -> None:
        """Refuse an assignment that would change nothing, or only a part of what it should."""
        title = self.reader.index.title
        is_free = name in _FREE and not type(self).__module__.startswith("gpubeton.")
        if name in _FIXED and not is_free and value is not getattr(self, name):
            raise OptionError(
                f"{title}: {name} of a loader cannot be changed once it is made. Make a new one: "
                f"Loader(..., {name}=...). What may be set is {', '.join((*_SAMPLES, *_CHECKS))} and next_epoch; what "
                f"is changed in the operations of the pipelines counts, too. All count from the next epoch on."
            )
        if name == "batches_ahead" and self._memory.gpu is not None:
            raise OptionError(
                f"{title}: batches_ahead cannot be changed: the GPU has its memory for as many batches as the loader "
                f"was made with. Make a new one: Loader(..., batches_ahead=...)."
            )
