"""Arrays of one shape, and arrays whose first length varies from sample to sample: boxes, points, tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import FieldArgumentsError, PipelineError
from gpubeton.fields.base import Field, Gather, Malloc, RowDecoder, as_arguments
from gpubeton.fields.bytes import BytesDecoder, BytesField
from gpubeton.format.field_arguments import ArrayArguments
from gpubeton.format.layout import ARGUMENTS_SIZE, BYTES_DTYPE, FieldType
from gpubeton.pipeline.allocation_query import AllocationQuery
from gpubeton.pipeline.ragged import VARYING, Ragged

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from numpy.typing import DTypeLike, NDArray

    from gpubeton.pipeline.operation import Memory, Operation
    from gpubeton.pipeline.state import State

__all__ = ["NDArrayDecoder", "NDArrayField", "RaggedDecoder", "RaggedField", "TorchTensorField"]


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
        dtype = self.field.dtype.newbyteorder("=")
        state = replace(previous_state, jit_mode=True, shape=self.field.shape, dtype=dtype)
        return state, AllocationQuery(state.shape, dtype)

    def decode(self, rows: NDArray[Any], gather: Gather) -> NDArray[Any]:
        return read_array(gather(self.field.element_size), self.field.dtype, (len(rows), *self.field.shape))


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

    type_id = FieldType.NDARRAY
    metadata_type = np.dtype("<u8")

    def __init__(self, dtype: DTypeLike, shape: Sequence[int]) -> None:
        self._arguments = ArrayArguments(tuple(int(length) for length in shape), np.dtype(dtype))
        self._arguments.to_bytes()  # raises if a file cannot hold it, before anything is written
        self.dtype: np.dtype[Any] = self._arguments.dtype
        self.shape = self._arguments.shape
        self.element_size = self._arguments.nbytes

    @staticmethod
    def from_binary(binary: NDArray[np.uint8]) -> NDArrayField:
        """Make the field from the shape and dtype that a file names; FieldArgumentsError if they cannot be read."""
        arguments = ArrayArguments.from_bytes(binary.tobytes())
        return NDArrayField(arguments.dtype, arguments.shape)

    def to_binary(self) -> np.void:
        return as_arguments(self._arguments.to_bytes())

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one array, in C order.

        Axes of length 1 may be missing or added, and the byte order may differ. ValueError for another shape or dtype:
        FFCV compares the number of bytes only, and stores the rest as it comes.
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

    type_id = FieldType.TORCH_TENSOR

    def __init__(self, dtype: torch.dtype, shape: Sequence[int]) -> None:
        import torch

        super().__init__(torch.zeros(0, dtype=dtype).numpy().dtype, shape)


def read_array(content: bytes | NDArray[np.uint8], dtype: np.dtype[Any], shape: Sequence[int]) -> NDArray[Any]:
    """Make an array of stored bytes, in the machine's byte order: torch knows no other."""
    stored = np.frombuffer(content, dtype)
    return stored.astype(dtype.newbyteorder("="), copy=False).reshape(shape)


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


_MARK = b"gpubeton.ragged\0"
"""Begins the arguments of a field of bytes that holds arrays; FFCV leaves the arguments of bytes zero, and unread."""


class RaggedDecoder(BytesDecoder):
    """Decode arrays of varying length: a `Ragged`, values of shape (M, ...) and offsets of shape (N + 1,), no padding.

    Reads a `RaggedField`, and a `BytesField` as FFCV writes it; other fields of bytes if it is the ``decoder`` of a
    ``PipelineSpec``.

    Parameters
    ----------
    dtype : dtype, optional
        Element type that the bytes are read as; by default the field's, bytes without one.
    shape : sequence of int, optional
        Shape of a value, the first length -1 as it varies, e.g. ``(-1, 4)`` for boxes; by default the field's, (-1,)
        without one.

    Raises
    ------
    FieldArgumentsError
        If there are no such arrays.

    Examples
    --------
    >>> from gpubeton import DatasetWriter, Loader
    >>> fields = {"boxes": RaggedField("<f4", (-1, 4))}
    >>> DatasetWriter("boxes.beton", fields, num_workers=1, progress=False).from_indexed_dataset(
    ...     [(np.ones((2, 4), "f4"),), (np.zeros((0, 4), "f4"),), (np.ones((1, 4), "f4"),)])
    >>> for (boxes,) in Loader("boxes.beton", 3, pipelines={"boxes": [RaggedDecoder()]}):
    ...     print(boxes.values.shape, boxes.offsets.tolist())
    (3, 4) [0, 2, 2, 3]
    """

    def __init__(self, dtype: DTypeLike | None = None, shape: Sequence[int] | None = None) -> None:
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.shape = None if shape is None else tuple(int(length) for length in shape)
        _row(self.dtype or np.dtype("u1"), (VARYING,) if self.shape is None else self.shape)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        """Say that the first length of the result varies; refuse fields whose values are no such arrays."""
        if getattr(self.field, "metadata_type", None) != BYTES_DTYPE:
            raise PipelineError(
                f"RaggedDecoder reads fields of bytes, such as RaggedField and BytesField; {self.field!r} is none"
            )
        self._row = _row(
            getattr(self.field, "dtype", np.dtype("u1")) if self.dtype is None else self.dtype,
            getattr(self.field, "shape", (VARYING,)) if self.shape is None else self.shape,
        )
        odd = np.flatnonzero(self.metadata["size"] % np.uint64(self._row.nbytes))
        if len(odd):
            size, row = self.metadata["size"][odd[0]], self._row
            raise PipelineError(
                f"RaggedDecoder: sample {odd[0]} ({len(odd)} such samples) has {size} bytes, but {row.dtype} of shape "
                f"{(VARYING, *row.shape[1:])} takes a multiple of {row.nbytes}. Is this the type that was written?"
            )
        state = replace(previous_state, jit_mode=False, shape=(VARYING, *self._row.shape[1:]))
        return replace(state, dtype=self._row.dtype.newbyteorder("=")), None

    def decode(self, rows: NDArray[Any], gather: Gather) -> Any:
        """Gather the arrays: a `Ragged`."""
        size = rows["size"].astype(np.int64)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(size // self._row.nbytes, out=offsets[1:])
        longest = int(size.max(initial=0))
        stored = gather(longest)[np.arange(longest) < size[:, None]]
        values = stored.view(self._row.dtype).astype(self._row.dtype.newbyteorder("="), copy=False)
        return Ragged(values.reshape(-1, *self._row.shape[1:]), offsets)


def describes_ragged(arguments: bytes) -> bool:
    """Return whether the arguments of a field of bytes are those of a `RaggedField`."""
    return arguments.startswith(_MARK)


class RaggedField(BytesField):
    """Arrays whose first length varies from sample to sample, and may be 0.

    In the file it is a field of bytes that FFCV's ``BytesField`` reads. The rest is in the arguments of its
    descriptor, which FFCV does not read: the mark ``gpubeton.ragged``, a zero, then shape and dtype of one row as for
    an ``NDArrayField``.

    Parameters
    ----------
    dtype : dtype
        Element type, of plain numbers.
    shape : sequence of int
        Shape of a value: first -1 for the length that varies, then lengths of at least 1.

    Raises
    ------
    FieldArgumentsError
        If the format cannot hold such arrays.

    Examples
    --------
    >>> boxes = RaggedField("<f4", shape=(-1, 4))
    >>> boxes.shape, RaggedField.from_binary(np.frombuffer(boxes.to_binary().tobytes(), "u1")).dtype
    ((-1, 4), dtype('float32'))
    """

    def __init__(self, dtype: DTypeLike, shape: Sequence[int] = (VARYING,)) -> None:
        self._row = _row(np.dtype(dtype), tuple(int(length) for length in shape))
        self.dtype: np.dtype[Any] = self._row.dtype
        self.shape = (VARYING, *self._row.shape[1:])

    @classmethod
    def from_binary(cls, binary: NDArray[np.uint8]) -> RaggedField:
        """Make the field from the shape and dtype that a file names; FieldArgumentsError if they cannot be read."""
        stored = binary.tobytes()
        if not describes_ragged(stored):
            raise FieldArgumentsError(
                f"the field was not written by RaggedField: its arguments begin with {stored[:16]!r}, not {_MARK!r}. "
                "Read it as a BytesField, with RaggedDecoder(dtype, shape) in its pipeline."
            )
        row = ArrayArguments.from_bytes(stored[len(_MARK) :].ljust(ARGUMENTS_SIZE, b"\0"))
        return RaggedField(row.dtype, (VARYING, *row.shape[1:]))

    def to_binary(self) -> np.void:
        """Give the mark, and shape and dtype of one row."""
        return as_arguments((_MARK + self._row.to_bytes())[:ARGUMENTS_SIZE])

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one array, in C order; ValueError for another shape or dtype, except of one without elements."""
        array = np.asarray(value)
        if array.size:
            if not np.can_cast(array.dtype, self.dtype, "equiv"):
                raise ValueError(f"an array of {array.dtype}, but the field was made for {self.dtype}; convert it")
            if array.ndim != len(self.shape) or array.shape[1:] != self.shape[1:]:
                raise ValueError(
                    f"an array of shape {array.shape}, but the field was made for {self.shape}; reshape it"
                )
        stored = np.ascontiguousarray(array.reshape(-1), self.dtype)
        super().encode(destination, stored.view(np.uint8), malloc)

    def read_value(self, row: np.generic, content: bytes) -> Any:
        """Give the array, in the machine's byte order."""
        return read_array(content, self.dtype, self.shape)

    def get_decoder_class(self) -> type[Operation]:
        return RaggedDecoder


def _row(dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArrayArguments:
    """One row of the arrays, shape (1, ...)."""
    if shape[:1] != (VARYING,) or any(length < 1 for length in shape[1:]):
        raise FieldArgumentsError(
            f"shape {shape}: expected -1 first, for the length that varies, then lengths of at least 1, as in (-1, 4)"
        )
    row = ArrayArguments((1, *shape[1:]), dtype)
    row.to_bytes()  # raises if a file cannot hold it
    return row
