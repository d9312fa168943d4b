"""Bytes of any length."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.fields.base import ArgumentlessField, Gather, Malloc, RowDecoder
from gpubeton.format.layout import BYTES_DTYPE, FieldType
from gpubeton.pipeline.allocation_query import AllocationQuery

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory, Operation
    from gpubeton.pipeline.state import State

__all__ = ["BytesDecoder", "BytesField"]


class BytesDecoder(RowDecoder):
    """Decode bytes: uint8, shape (N, longest of the file), zeros after each value.

    Examples
    --------
    >>> from gpubeton import DatasetWriter, Loader
    >>> DatasetWriter("words.beton", {"word": BytesField()}, num_workers=1, progress=False).from_indexed_dataset(
    ...     [(b"ox",), (b"horse",)])
    >>> for (words,) in Loader("words.beton", 2, pipelines={"word": [BytesDecoder()]}):
    ...     print(words.tolist())
    [[111, 120, 0, 0, 0], [104, 111, 114, 115, 101]]
    """

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        state = replace(previous_state, jit_mode=True, shape=(self.max_size,), dtype=np.dtype("u1"))
        return state, AllocationQuery(state.shape, state.dtype)

    def decode(self, rows: NDArray[Any], gather: Gather) -> NDArray[Any]:
        return gather(self.max_size)


class BytesField(ArgumentlessField):
    """Bytes of any length, given as `bytes` or as a one-dimensional array of numbers from 0 to 255.

    Examples
    --------
    >>> BytesField().metadata_type.names
    ('ptr', 'size')
    """

    type_id = FieldType.BYTES
    metadata_type = BYTES_DTYPE

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one value; TypeError and ValueError for other types, and for arrays that hold no bytes."""
        content = _as_bytes(value)
        destination["ptr"], region = malloc(content.size)
        region[:] = content
        destination["size"] = content.size

    def get_decoder_class(self) -> type[Operation]:
        return BytesDecoder


def _as_bytes(value: Any) -> NDArray[np.uint8]:
    if isinstance(value, bytes | bytearray | memoryview):
        return np.frombuffer(value, np.uint8)
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a BytesField takes bytes or a 1-dimensional uint8 array, not {type(value).__name__}")
    if value.ndim != 1:
        raise ValueError(f"a BytesField takes an array of 1 dimension, not of shape {value.shape}; use NDArrayField")
    if value.dtype == np.uint8:
        return value
    # FFCV casts any array; a number that is no byte would come back changed.
    if value.dtype.kind not in "biuf" or not np.all((value >= 0) & (value <= 255) & (value == np.floor(value))):
        raise ValueError(f"an array of {value.dtype} with values that are no bytes (0 to 255); use NDArrayField")
    return value.astype(np.uint8)
