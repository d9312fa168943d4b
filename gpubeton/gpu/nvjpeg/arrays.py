"""Arrays: what is looked at before nvJPEG is given the address of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpubeton.errors import OptionError


def address_of(array: object, dtype: np.dtype[Any], count: int, name: str) -> int:
    """Give the address of an array that nvJPEG will read `count` entries of.

    Parameters
    ----------
    array : ndarray, shape (count,)
        The array.
    dtype : dtype
        What nvJPEG takes its entries for.
    count : int
        How many nvJPEG will read.
    name : str
        What it is called, for the error.

    Returns
    -------
    int
        Address of the first entry, good while the array lives.

    Raises
    ------
    OptionError
        If nvJPEG would read something else than was meant.
    """
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (count,):
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise OptionError(f"{name}: {found}; expected an ndarray of {dtype} and shape ({count},)")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise OptionError(
            f"{name}: its entries do not lie one after the other in memory (strides {array.strides}); "
            "take numpy.ascontiguousarray of it"
        )
    return int(array.ctypes.data)
