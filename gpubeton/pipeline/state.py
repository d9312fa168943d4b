"""State: the description of the batch between two operations of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class State:
    """The batch between two operations, described without the batch axis.

    Parameters
    ----------
    jit_mode : bool
        True while operations are compiled functions over numpy arrays, False once the batch is handled by plain
        Python (from ``ToTensor`` on).
    device : torch.device
        Where the batch lies.
    shape : tuple of int
        Shape of one sample, e.g. ``(224, 224, 3)``.
    dtype : numpy.dtype or torch.dtype
        Element type: numpy's before ``ToTensor``, torch's after it.

    Examples
    --------
    >>> import numpy as np
    >>> from dataclasses import replace
    >>> image = State(jit_mode=True, device="cpu", shape=(224, 224, 3), dtype=np.dtype("uint8"))
    >>> replace(image, shape=(112, 112, 3)).shape
    (112, 112, 3)
    """

    jit_mode: bool
    device: Any
    shape: tuple[int, ...]
    dtype: Any
