"""RowDecoder: a decoder whose result has the same shape for every sample, made with numpy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.errors import PipelineError
from gpubeton.pipeline.operation import Operation

if TYPE_CHECKING:
    from gpubeton.pipeline.ragged import Ragged

__all__ = ["Gather", "RowDecoder"]

Gather = Callable[[int], NDArray[np.uint8]]
"""Called with a width, it gives the regions of the samples of a batch: (N, width), zeros behind their ends."""


class RowDecoder(Operation):
    """A decoder that turns the metadata and the regions of a batch into one array, or a `Ragged`."""

    def accept_extent(self, max_size: int) -> None:
        """Learn the size of the longest region of the field in the whole file.

        Parameters
        ----------
        max_size : int
            Bytes; 0 for a field without regions.
        """
        self._max_size: int | None = max_size

    @property
    def max_size(self) -> int:
        """Bytes of the longest region of the field, as `accept_extent` was told."""
        found: int | None = getattr(self, "_max_size", None)
        if found is None:
            raise PipelineError(f"{type(self).__name__} has not been told the longest value: use it in a Loader")
        return found

    @abstractmethod
    def decode(self, rows: NDArray[Any], gather: Gather) -> NDArray[Any] | Ragged:
        """Decode the samples of a batch.

        Parameters
        ----------
        rows : ndarray, shape (N,)
            Their metadata.
        gather : callable
            Called with a width, gives their regions as uint8 (N, width), each
            followed by zeros.

        Returns
        -------
        ndarray, shape (N, ...), or Ragged
            A new array, which the caller may keep.
        """

    def generate_code(self) -> Callable[..., Any]:
        """Refuse: loaders call `decode`, which needs no compiler, unless a class derived from this one has its own."""
        raise PipelineError(
            f"{type(self).__name__} is not a function of a batch: the loader calls decode(). "
            "Put it first in the pipeline of its field."
        )
