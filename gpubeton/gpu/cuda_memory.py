"""CudaMemory: memory of a GPU, and page-locked memory of the host."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class CudaMemory:
    """Memory of a GPU, or page-locked memory of the host. Made by `CudaDevice`.

    Parameters
    ----------
    address : int
        First byte.
    nbytes : int
        Its size.
    free : callable
        Takes the address; called once.

    Attributes
    ----------
    address, nbytes : int
        The same.
    """

    def __init__(self, address: int, nbytes: int, free: Callable[[int], object]) -> None:
        self.address = address
        self.nbytes = nbytes
        self._free = free
        self._finalizer = weakref.finalize(self, _free_quietly, free, address)
        # At the end of the process CUDA may be gone, and frees everything anyway.
        self._finalizer.atexit = False

    def free(self) -> None:
        """Free it now; may be called twice."""
        if self._finalizer.detach() is not None:
            self._free(self.address)


class CudaPinnedMemory(CudaMemory):
    """Page-locked memory of the host, at the same address for the GPU. Made by `CudaDevice.allocate_pinned`."""

    @property
    def array(self) -> NDArray[np.uint8]:
        """The memory, shape (nbytes,); it lives as long as this array."""
        return np.asarray(self)

    @property
    def __array_interface__(self) -> dict[str, object]:
        """How numpy finds it."""
        return {"data": (self.address, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}


class DescribedMemory:
    """Memory of a device, as torch takes it from other libraries without a copy: ``torch.as_tensor(described)``.

    Parameters
    ----------
    address : int
        First byte of the first element.
    shape : tuple of int
        Elements along each axis; at least one.
    strides : tuple of int
        From one element to the next along each axis, in elements.
    dtype : dtype
        Of the elements.
    """

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "strides": tuple(dtype.itemsize * stride for stride in strides),
            "typestr": dtype.str,
            "version": 2,
        }


def _free_quietly(free: Callable[[int], object], address: int) -> None:
    """Free what nobody refers to any more. If CUDA is stuck with an error, whoever calls it next is told."""
    try:
        free(address)
    except DeviceError:
        return
