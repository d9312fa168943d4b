"""BetonNode: a loader as a source of torchdata's graphs of nodes; needs ``gpubeton[torchdata]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubeton._machine import install
from gpubeton.integrations.data_loader import AdapterIterator, DataLoaderAdapter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.loader import Loader

try:
    from torchdata.nodes import BaseNode
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}. Install it: {install('torchdata')}", name=error.name) from error

__all__ = ["BetonNode"]


class BetonNode(BaseNode[Any]):  # type: ignore[misc]  # torchdata has no types
    """The batches of a loader, as a source for torchdata's nodes.

    Each pass of a ``torchdata.nodes.Loader`` is an epoch. Its ``state_dict`` holds the position of the loader: another
    one with this state continues in the middle of the epoch with exactly the remaining batches.

    Parameters
    ----------
    loader : Loader
        The loader. Use it in no other loop.
    names : sequence of str, optional
        As for `DataLoaderAdapter`: batches become dicts.

    Examples
    --------
    >>> from torchdata import nodes
    >>> from gpubeton.fields.decoders import CenterCropRGBImageDecoder
    >>> from gpubeton.loader import Loader
    >>> from gpubeton.transforms import ToTensor
    >>> image = [CenterCropRGBImageDecoder((32, 32), 1), ToTensor()]
    >>> node = BetonNode(Loader("train.beton", 100, pipelines={"image": image}), names=["pixels", "labels"])
    >>> batches = nodes.Loader(nodes.Mapper(node, lambda batch: batch["pixels"]))
    >>> [len(pixels) for pixels in batches]
    [100, 100, 100]
    """

    def __init__(self, loader: Loader, *, names: Sequence[str] | None = None) -> None:
        super().__init__()
        self._adapter = DataLoaderAdapter(loader, names=names)
        self._batches: AdapterIterator  # BaseNode calls reset() first
        self._end: dict[str, Any] | None = None  # the state at the end of the epoch

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        """Begin the next epoch, or continue from the result of `get_state`."""
        super().reset(initial_state)
        loader = self._adapter.loader
        if initial_state is not None:
            self._adapter.load_state_dict(initial_state)
        elif self._adapter.is_to_resume:  # a state was loaded that no loop has continued
            loader.set_epoch(loader.next_epoch)
        self._batches = iter(self._adapter)
        self._end = None

    def next(self) -> Any:
        """Wait for the next batch, a tuple or a dict."""
        if self._end is None and not len(self._batches):
            # After this, the loader is at the next epoch. Other nodes rely on a source that stays at its end.
            self._end = self._adapter.loader.state_dict()
        return next(self._batches)

    def get_state(self) -> dict[str, Any]:
        """Return the position of the loader; at the end of an epoch it is the end, not the next epoch's beginning."""
        return self._end or self._adapter.loader.state_dict()
