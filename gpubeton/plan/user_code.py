"""The functions of users' operations: how they are called, and the memory that they ask for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OperationError
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.dtypes import dtype_name, is_torch_dtype, torch_dtype
from gpubeton.pipeline.refusals import take_refusals

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.pipeline.operation import Memory

ONE_PARALLEL_REGION = threading.Lock()
"""Numba's default threading layer ends the process when two threads run parallel code at once."""


def call_code(code: Callable[..., Any], *arguments: Any) -> Any:
    """Call the function of a user's operation, or wait for another that runs in parallel.

    Parameters
    ----------
    code : callable
        The function, compiled or not.
    *arguments : object
        What it is called with.

    Returns
    -------
    object
        What it returns.

    Raises
    ------
    OperationError
        If it asked for something that cannot be done.
    """
    try:
        if not getattr(plain_code(code), "is_parallel", False):
            result = code(*arguments)
        else:
            with ONE_PARALLEL_REGION:
                Compiler.set_num_threads(Compiler.num_threads)  # Numba keeps the number per thread
                result = code(*arguments)
    except Exception as error:
        # Compiled code cannot say more than a fixed sentence.
        refusals = take_refusals()
        if refusals:
            raise OperationError("; ".join(refusals)) from error
        raise
    # Nor can it raise an error where it runs in parallel.
    refusals = take_refusals()
    if refusals:
        raise OperationError("; ".join(refusals))
    return result


def plain_code(code: Callable[..., Any]) -> Callable[..., Any]:
    """Give the Python function that was compiled, which carries the attributes that the user set.

    Parameters
    ----------
    code : callable
        A function, compiled or not.

    Returns
    -------
    callable
        The Python function.
    """
    plain: Callable[..., Any] = getattr(code, "py_func", code)
    return plain


def allocate(memory: Memory, count: int, take: Callable[..., Any] = np.empty) -> Any:
    """Allocate what an operation asked for.

    Parameters
    ----------
    memory : AllocationQuery, sequence of AllocationQuery, or None
        Its wish.
    count : int
        Number of samples N.
    take : callable
        ``take(shape, dtype)`` gives memory for arrays.

    Returns
    -------
    ndarray, torch.Tensor, tuple of them, or None
        Each of shape (N, ...), not initialised.

    Examples
    --------
    >>> allocate(AllocationQuery((2, 3), np.dtype("uint8")), 4).shape
    (4, 2, 3)
    """
    if memory is None:
        return None
    if not isinstance(memory, AllocationQuery):
        return tuple(allocate(query, count, take) for query in memory)
    shape = (count, *map(int, memory.shape))
    on_cpu = memory.device is None or str(memory.device).startswith("cpu")
    if on_cpu and not is_torch_dtype(memory.dtype) and dtype_name(memory.dtype) != "bfloat16":
        return take(shape, memory.dtype)
    import torch

    return torch.empty(shape, dtype=torch_dtype(memory.dtype), device=memory.device)
