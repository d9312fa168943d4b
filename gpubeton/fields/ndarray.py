"""Arrays and tensors whose shape and dtype are the same for every sample."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.fields.base import ARG_TYPE, Field, Malloc
from gpubeton.fields.row_decoder import Gather, RowDecoder
from gpubeton.format.field_arguments import ArrayArguments
from gpubeton.pipeline.allocation_query import AllocationQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import DTypeLike, NDArray

    from gpubeton.pipeline.operation import Memory, Operation
    from gpubeton.pipeline.state import State

__all__ = ["NDArrayDecoder", "NDArrayField", "TorchTensorField"]


class NDArrayDecoder(RowDecoder):
    """Decode arrays: shape ``(N, *shape)``, in the machine's byte order.

    Examples
    --------
    >>> from gpubeton import DatasetWriter, Loader
    >>> fields = {"point": NDArrayField("<f4", (2,))}
    >>> DatasetWriter("points.beton", fields, num_workers=1, progress=False).from_indexed_dataset(
    ...     [(np.array([1, 2], "f4"),), (np.array([3, 4], "f4"),)])
    >>> for (points,) in Loader("points.beton", 2, pipelines={"point": [NDArrayDecoder()]}):
    ...     print(points.tolist())
    [[1.0, 2.0], [3.0, 4.0]]
    """

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        """Say that the result has the field's shape and dtype."""
        dtype = self.field.dtype.newbyteorder("=")
        state = replace(previous_state, jit_mode=True, shape=self.field.shape, dtype=dtype)
        return state, AllocationQuery(state.shape, dtype)

    def decode(self, rows: NDArray[Any], gather: Gather) -> NDArray[Any]:
        """Gather the arrays: shape ``(N, *shape)``."""
        dtype: np.dtype[Any] = self.field.dtype
        stored = gather(self.field.element_size).reshape(-1).view(dtype)
        # torch knows no other byte order than the machine's.
        return stored.astype(dtype.newbyteorder("="), copy=False).reshape(len(rows), *self.field.shape)


class NDArrayField(Field):
    """Arrays whose shape and dtype are the same for every sample.

    Parameters
    ----------
    dtype : dtype
        Element type, of plain numbers; big-endian ones are kept and read back
        in the machine's order.
    shape : sequence of int
        Shape of each array; all lengths at least 1.

    Raises
    ------
    FieldArgumentsError
        If the format cannot hold such arrays.

    Examples
    --------
    >>> NDArrayField("<f4", (2, 3)).element_size
    24
    """

    metadata_type = np.dtype("<u8")

    def __init__(self, dtype: DTypeLike, shape: Sequence[int]) -> None:
        self._arguments = ArrayArguments(tuple(int(length) for length in shape), np.dtype(dtype))
        self._arguments.to_bytes()  # refuses what a file cannot say, before anything is written
        self.dtype: np.dtype[Any] = self._arguments.dtype
        self.shape = self._arguments.shape
        self.element_size = self._arguments.nbytes

    @staticmethod
    def from_binary(binary: NDArray[np.uint8]) -> NDArrayField:
        """Make the field from the shape and dtype that a file names.

        Parameters
        ----------
        binary : ndarray of uint8, shape (1024,)
            The arguments of its descriptor.

        Returns
        -------
        NDArrayField
            With that shape and dtype.

        Raises
        ------
        FieldArgumentsError
            If they cannot be read.
        """
        arguments = ArrayArguments.from_bytes(binary.tobytes())
        return NDArrayField(arguments.dtype, arguments.shape)

    def to_binary(self) -> np.void:
        """Give shape and dtype, as FFCV stores them."""
        stored: np.void = np.frombuffer(self._arguments.to_bytes(), ARG_TYPE)[0]
        return stored

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one array, in C order.

        Parameters
        ----------
        destination : ndarray of uint64, shape (1,)
            Its metadata.
        value : ndarray or torch.Tensor on the CPU, shape `shape`
            The array. Axes of length 1 may be missing or added, and the byte
            order may differ.
        malloc : Malloc
            Gives room for it.

        Raises
        ------
        ValueError
            If it has another shape or dtype. FFCV compares the number of bytes
            only, and stores the rest as it comes.
        """
        array = np.asarray(value)
        if not np.can_cast(array.dtype, self.dtype, "equiv"):
            raise ValueError(f"an array of {array.dtype}, but the field was made for {self.dtype}; convert it")
        if _long_axes(array.shape) != _long_axes(self.shape):
            raise ValueError(f"an array of shape {array.shape}, but the field was made for {self.shape}; reshape it")
        destination[0], region = malloc(self.element_size)
        region.view(self.dtype)[:] = array.reshape(-1)

    def read_value(self, row: np.generic, content: bytes) -> Any:
        """Give the array, in the machine's byte order."""
        return read_array(content, self.dtype, self.shape)

    def get_decoder_class(self) -> type[Operation]:
        """Give `NDArrayDecoder`."""
        return NDArrayDecoder


class TorchTensorField(NDArrayField):
    """Tensors whose shape and dtype are the same for every sample.

    Parameters
    ----------
    dtype : torch.dtype
        Element type, one that numpy has too (not bfloat16).
    shape : sequence of int
        Shape of each tensor.

    Raises
    ------
    TypeError
        If numpy has no such element type.

    Examples
    --------
    >>> import torch
    >>> TorchTensorField(torch.float16, (2, 3)).element_size
    12
    """

    def __init__(self, dtype: torch.dtype, shape: Sequence[int]) -> None:
        import torch

        super().__init__(torch.zeros(0, dtype=dtype).numpy().dtype, shape)


def read_array(content: bytes, dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Make an array of stored bytes, in the machine's byte order."""
    stored = np.frombuffer(content, dtype)
    return stored.astype(dtype.newbyteorder("="), copy=False).reshape(shape)


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)
