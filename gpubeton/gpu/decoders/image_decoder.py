"""ImageDecoder: what all of them offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.gpu.device import Stream


class ImageDecoder(Protocol):
    """Decodes JPEGs into memory of the device, a list at a time; for one thread at a time."""

    @property
    def name(self) -> str:
        """By which `open_decoder` knows it."""
        ...

    def decode(self, data: Sequence[memoryview], targets: Sequence[Any], stream: Stream) -> list[tuple[int, str]]:
        """Decode images; returns when all of them are done, and nothing of them is used any more.

        Parameters
        ----------
        data : sequence of memoryview
            The bytes of each JPEG, in the host's memory.
        targets : sequence of Tensor
            Where each image goes: uint8, shape (height, width, 3), on the device; rows need not be dense.
        stream : Stream
            Torch's current one. Everything is done in its order.

        Returns
        -------
        list of tuple of int and str
            Images that could not be decoded, by their place in the list, and why; their targets hold anything. All
            others are complete.
        """
        ...
