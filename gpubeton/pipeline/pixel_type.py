"""Element types under one name, whether they were written for numpy or for torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def dtype_name(dtype: Any) -> str:
    """Name of an element type."""
    written = str(dtype)
    if is_torch_dtype(dtype):
        return written.removeprefix("torch.")
    return written if written == "bfloat16" else np.dtype(dtype).name


def is_torch_dtype(dtype: Any) -> bool:
    """Whether an element type is torch's, found out without importing torch."""
    return type(dtype).__module__ == "torch"


def torch_dtype(dtype: Any) -> torch.dtype:
    """Torch's element type of the same name."""
    import torch

    found = getattr(torch, dtype_name(dtype), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no element type {dtype_name(dtype)!r}; convert the array to one that it has")
    return found
