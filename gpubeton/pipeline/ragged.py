"""Ragged: the arrays of a batch, of varying length, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpubeton.pipeline.state import State

VARYING = -1
"""The length that varies, first in the shape of a sample."""


@dataclass(frozen=True, eq=False, repr=False)
class Ragged:
    """Arrays of varying length, one for each sample of a batch, without any padding.

    Parameters
    ----------
    values : ndarray or torch.Tensor, shape (M, ...)
        The rows of all samples, one sample after the other.
    offsets : ndarray or torch.Tensor of int64, shape (N + 1,)
        Sample i has the rows from ``offsets[i]`` to ``offsets[i + 1]``; the first is 0, the last M.

    Notes
    -----
    ``torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)`` makes a nested tensor of it, and copies
    nothing.

    Examples
    --------
    >>> boxes = Ragged(np.arange(12).reshape(3, 4), np.array([0, 2, 2, 3]))
    >>> len(boxes), boxes[0].tolist(), boxes[1].shape
    (3, [[0, 1, 2, 3], [4, 5, 6, 7]], (0, 4))
    >>> boxes.lengths.tolist(), boxes.rows.tolist()
    ([2, 0, 1], [0, 0, 2])
    """

    values: Any
    offsets: Any

    def __len__(self) -> int:
        """Number of samples N."""
        return len(self.offsets) - 1

    def __getitem__(self, sample: int) -> Any:
        """Give the array of one sample, a view of `values`; raises IndexError beyond the end."""
        if not -len(self) <= sample < len(self):
            raise IndexError(f"sample {sample} of a batch of {len(self)}; expected 0 to {len(self) - 1}")
        sample %= len(self)
        return self.values[int(self.offsets[sample]) : int(self.offsets[sample + 1])]

    def __iter__(self) -> Iterator[Any]:
        """Go through the arrays of the samples."""
        return (self.values[start:stop] for start, stop in pairwise(self.offsets.tolist()))

    @property
    def lengths(self) -> Any:
        """Number of rows of each sample, int64 of shape (N,)."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def rows(self) -> Any:
        """The row of the batch to which each row of `values` belongs, int64 of shape (M,)."""
        if isinstance(self.offsets, np.ndarray):
            return np.repeat(np.arange(len(self)), self.lengths)
        import torch

        return torch.repeat_interleave(torch.arange(len(self), device=self.offsets.device), self.lengths)

    @property
    def dtype(self) -> Any:
        """Element type of the values."""
        return self.values.dtype

    @property
    def device(self) -> Any:
        """Where a Ragged of tensors is."""
        return self.values.device

    def map(self, change: Callable[[Any], Any]) -> Ragged:
        """Change the values, and keep the offsets."""
        return Ragged(change(self.values), self.offsets)

    def to(self, *arguments: Any, **keywords: Any) -> Ragged:
        """Move values and offsets to another device."""
        values = self.values.to(*arguments, **keywords)
        return Ragged(values, self.offsets.to(values.device, non_blocking=bool(keywords.get("non_blocking"))))

    def clone(self) -> Ragged:
        """Copy values and offsets, so that either may be changed."""
        parts = (self.values, self.offsets)
        return Ragged(*(part.copy() if isinstance(part, np.ndarray) else part.clone() for part in parts))

    def tensors(self) -> Ragged:
        """View numpy arrays as tensors over the same memory."""
        import torch

        return Ragged(*(torch.as_tensor(part) for part in (self.values, self.offsets)))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} samples, values of shape {tuple(self.values.shape)}, {self.dtype})"


def is_ragged(state: State) -> bool:
    """Tell whether the batch between two operations is a `Ragged`."""
    return tuple(state.shape[:1]) == (VARYING,)


def tensors_in(outputs: Sequence[Any]) -> list[Any]:
    """Find the tensors of a batch, also those inside a `Ragged` or a dict."""
    # `outputs`: sequence of ndarray, torch.Tensor, Ragged or dict
    import torch

    parts: list[Any] = []
    for output in outputs:
        if isinstance(output, dict):
            parts += output.values()
        else:
            parts += [output.values, output.offsets] if isinstance(output, Ragged) else [output]
    return [part for part in parts if isinstance(part, torch.Tensor)]
