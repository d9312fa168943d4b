"""AllocationQuery: memory that an operation asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AllocationQuery:
    """Memory for one sample; the loader allocates it for a whole batch.

    Parameters
    ----------
    shape : tuple of int
        Shape for one sample. The operation receives an array of shape ``(N, *shape)``, N samples in the batch.
    dtype : numpy.dtype or torch.dtype
        A numpy type gives a numpy array, a torch type a tensor.
    device : torch.device, optional
        Where a tensor lies; the CPU by default.

    Examples
    --------
    >>> import numpy as np
    >>> AllocationQuery((32, 32, 3), np.dtype("uint8")).shape
    (32, 32, 3)
    """

    shape: tuple[int, ...]
    dtype: Any
    device: Any = None
