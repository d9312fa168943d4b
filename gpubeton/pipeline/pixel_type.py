"""PixelType: one element type of images under one name, for numpy, for torch and for the executors.

A type that executors write besides uint8 is one row of `PIXEL_TYPES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PixelType:
    """An element type of images."""

    name: str  # numpy's name, which is torch's too
    dtype: np.dtype[Any]  # arrays of such pixels have it; unsigned integers of the same bits if numpy lacks the type
    jit_dtype: np.dtype[Any] | None  # arrays have it in compiled operations; None: there are tensors only
    has_numpy: bool = True
    is_fused: bool = False  # the pass over single images writes it
    round: Callable[[NDArray[np.float64]], NDArray[Any]] | None = None  # by default numpy's `astype`

    def encode(self, values: NDArray[np.float64]) -> NDArray[Any]:
        """Round numbers to this type, to nearest even; the array has `dtype`."""
        return values.astype(self.dtype) if self.round is None else self.round(values)

    @property
    def exchange_dtype(self) -> np.dtype[Any]:
        """Dtype as which torch takes memory of another owner before it is viewed as this type."""
        return self.dtype if self.has_numpy else np.dtype(f"i{self.dtype.itemsize}")

    def tensor(self, array: NDArray[Any]) -> torch.Tensor:
        """View an array of `dtype` as a tensor of this type."""
        import torch

        return torch.from_numpy(array.view(self.exchange_dtype)).view(torch_dtype(self.name))

    def array(self, tensor: torch.Tensor) -> NDArray[Any]:
        """View a tensor of this type on the CPU as an array of `dtype`."""
        return tensor.view(torch_dtype(self.exchange_dtype)).numpy().view(self.dtype)


def _round_to_bfloat16(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    # By way of float32, as torch does.
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


PIXEL_TYPES = {
    kind.name: kind
    for kind in (
        # FFCV hands half floats on as the integers of their bits, since Numba has no half floats.
        PixelType("float16", np.dtype("float16"), np.dtype("int16"), is_fused=True),
        PixelType("bfloat16", np.dtype("uint16"), None, has_numpy=False, is_fused=True, round=_round_to_bfloat16),
        PixelType("float32", np.dtype("float32"), np.dtype("float32"), is_fused=True),
    )
}
"""The types that executors write besides those of the stored images."""


def pixel_type(dtype: Any) -> PixelType:
    """Find the type of a numpy.dtype, torch.dtype, type or name."""
    return _type_of(dtype_name(dtype))


@cache
def _type_of(name: str) -> PixelType:
    return PIXEL_TYPES.get(name) or PixelType(name, np.dtype(name), np.dtype(name))


def dtype_name(dtype: Any) -> str:
    """Name of an element type."""
    return _name_of(dtype) if isinstance(dtype, (str, np.dtype)) else _named(dtype)


def _named(dtype: Any) -> str:
    written = str(dtype)
    if is_torch_dtype(dtype):
        return written.removeprefix("torch.")
    return written if written in PIXEL_TYPES else np.dtype(dtype).name


_name_of = cache(_named)  # numpy takes longer to write a name than to make a small batch


def is_torch_dtype(dtype: Any) -> bool:
    """Whether an element type is torch's, found out without importing torch."""
    return type(dtype).__module__ == "torch"


def torch_dtype(dtype: Any) -> torch.dtype:
    """Torch's element type of the same name."""
    import torch

    equivalent = getattr(torch, dtype_name(dtype), None)
    if not isinstance(equivalent, torch.dtype):
        raise TypeError(f"torch has no element type {dtype_name(dtype)!r}; convert the array to one that it has")
    return equivalent
