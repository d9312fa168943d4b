"""Integers and floating point numbers, stored in the metadata itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.fields.base import ArgumentlessField, Gather, Malloc, RowDecoder
from gpubeton.format.layout import FieldType
from gpubeton.pipeline.allocation_query import AllocationQuery

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory, Operation
    from gpubeton.pipeline.state import State

__all__ = ["BasicDecoder", "FloatDecoder", "FloatField", "IntDecoder", "IntField"]


class BasicDecoder(RowDecoder):
    """Decode numbers; derive from it with another `dtype` for another type of number.

    Examples
    --------
    >>> class ByteDecoder(BasicDecoder):
    ...     dtype = np.dtype("u1")
    >>> ByteDecoder().decode(np.array([4, 5]), None).tolist()
    [[4], [5]]
    """

    dtype: ClassVar[np.dtype[Any]]

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        return replace(previous_state, jit_mode=True, shape=(1,), dtype=self.dtype), AllocationQuery((1,), self.dtype)

    def decode(self, rows: NDArray[Any], gather: Gather) -> NDArray[Any]:
        return rows.astype(self.dtype).reshape(-1, 1)


class IntDecoder(BasicDecoder):
    """Decode integers: int64, shape (N, 1).

    Examples
    --------
    >>> IntDecoder().decode(np.array([4, 5]), None)
    array([[4],
           [5]])
    """

    dtype = np.dtype("<i8")


class FloatDecoder(BasicDecoder):
    """Decode floating point numbers: float64, shape (N, 1).

    Examples
    --------
    >>> FloatDecoder().decode(np.array([0.5, 0.25]), None)
    array([[0.5 ],
           [0.25]])
    """

    dtype = np.dtype("<f8")


class _NumberField(ArgumentlessField):
    """A number in the metadata."""

    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one number, converted as numpy does."""
        destination[0] = value

    def read_value(self, row: np.generic, content: bytes) -> Any:
        return row.item()

    def numbers(self, column: NDArray[Any]) -> NDArray[Any] | None:
        return column


class IntField(_NumberField):
    """A signed 64-bit integer. As in FFCV, 3.7 is stored as 3.

    Examples
    --------
    >>> row = np.zeros(1, IntField().metadata_type)
    >>> IntField().encode(row, 3.7, None)
    >>> row
    array([3])
    """

    type_id = FieldType.INT
    metadata_type = np.dtype("<i8")

    def get_decoder_class(self) -> type[Operation]:
        return IntDecoder


class FloatField(_NumberField):
    """A 64-bit floating point number.

    Examples
    --------
    >>> row = np.zeros(1, FloatField().metadata_type)
    >>> FloatField().encode(row, 0.5, None)
    >>> row
    array([0.5])
    """

    type_id = FieldType.FLOAT
    metadata_type = np.dtype("<f8")

    def get_decoder_class(self) -> type[Operation]:
        return FloatDecoder
