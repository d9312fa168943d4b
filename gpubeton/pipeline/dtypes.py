"""Element types under one name, whether they were written for numpy or for torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch


def dtype_name(dtype: Any) -> str:
    """Name of an element type.

    Parameters
    ----------
    dtype : numpy.dtype, torch.dtype, type or str
        E.g. ``np.float16``, ``torch.bfloat16`` or ``"float32"``.

    Returns
    -------
    str
        Numpy's name, which is torch's too; ``"bfloat16"``, which numpy does not have.

    Examples
    --------
    >>> dtype_name(np.float16), dtype_name("bfloat16")
    ('float16', 'bfloat16')
    """
    written = str(dtype)
    if is_torch_dtype(dtype):
        return written.removeprefix("torch.")
    return written if written == "bfloat16" else np.dtype(dtype).name


def is_torch_dtype(dtype: Any) -> bool:
    """Whether an element type is torch's, told without importing torch.

    Parameters
    ----------
    dtype : numpy.dtype, torch.dtype, type or str
        The element type.

    Returns
    -------
    bool
        True for ``torch.float16``, False for ``np.float16`` and ``"float16"``.

    Examples
    --------
    >>> is_torch_dtype(np.float16)
    False
    """
    return type(dtype).__module__ == "torch"


def torch_dtype(dtype: Any) -> torch.dtype:
    """Torch's element type of the same name.

    Parameters
    ----------
    dtype : numpy.dtype, torch.dtype, type or str
        The element type.

    Returns
    -------
    torch.dtype
        E.g. ``torch.float16`` for ``np.float16``.

    Raises
    ------
    TypeError
        If torch has no such type, as for strings or big-endian numbers.

    Examples
    --------
    >>> torch_dtype(np.float16)
    torch.float16
    """
    import torch

    found = getattr(torch, dtype_name(dtype), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no element type {dtype_name(dtype)!r}; convert the array to one that it has")
    return found
