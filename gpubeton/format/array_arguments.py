"""Shape and dtype of an array field, as its descriptor stores them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import numpy as np

from gpubeton.errors import FieldArgumentsError
from gpubeton.format.layout import ARGUMENTS_SIZE

__all__ = ["ArrayArguments"]

#: 32 lengths (a zero ends them), then the length of the dtype's description, which follows.
_ARGUMENTS_DTYPE = np.dtype([("shape", "<u8", 32), ("type_length", "<u8")])

_PLAIN_DTYPE = re.compile(r"[<>|=]?[biufcmMSUV][1-9][0-9]{0,4}(\[[0-9]*[A-Za-z]+\])?")


@dataclass(frozen=True)
class ArrayArguments:
    """Shape and dtype of every value of an array field.

    Parameters
    ----------
    shape : tuple of int
        Shape of one value; ``()`` for a scalar.
    dtype : dtype
        A plain dtype without Python objects, possibly big-endian.

    Examples
    --------
    >>> arguments = ArrayArguments((2, 3), np.dtype("<f4"))
    >>> arguments.nbytes, ArrayArguments.from_bytes(arguments.to_bytes()) == arguments
    (24, True)
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def nbytes(self) -> int:
        """Bytes of one value."""
        return math.prod(self.shape) * self.dtype.itemsize

    @classmethod
    def from_bytes(cls, arguments: bytes) -> ArrayArguments:
        """Read what a descriptor says.

        Parameters
        ----------
        arguments : bytes
            The 1024 bytes of the descriptor.

        Returns
        -------
        ArrayArguments
            Shape and dtype.

        Raises
        ------
        FieldArgumentsError
            If they cannot be read or cannot be those of an array.
        """
        stored = np.frombuffer(arguments, _ARGUMENTS_DTYPE, 1)[0]
        lengths: list[int] = stored["shape"].tolist()
        while lengths and lengths[-1] == 0:
            lengths.pop()
        if 0 in lengths:
            raise FieldArgumentsError(f"shape {tuple(lengths)} has a length of 0 inside")
        text = arguments[_ARGUMENTS_DTYPE.itemsize :]
        if int(stored["type_length"]) > len(text):
            raise FieldArgumentsError(f"the dtype is said to take {stored['type_length']} of {len(text)} bytes")
        return cls(tuple(lengths), _parse_dtype(text[: int(stored["type_length"])]))

    def to_bytes(self) -> bytes:
        """Give the bytes that a descriptor stores, equal to FFCV's.

        Returns
        -------
        bytes
            1024 of them.

        Raises
        ------
        FieldArgumentsError
            If shape or dtype are beyond what the format can hold.
        """
        if len(self.shape) > 32 or any(length < 1 for length in self.shape):
            raise FieldArgumentsError(f"shape {self.shape}: the format holds up to 32 lengths of at least 1")
        # Structures and subarrays have the `str` of plain memory, and are not equal to it.
        if not _PLAIN_DTYPE.fullmatch(self.dtype.str) or np.dtype(self.dtype.str) != self.dtype:
            raise FieldArgumentsError(f"dtype {self.dtype}: the format holds plain numbers only")
        text = json.dumps(self.dtype.descr).encode("ascii")
        stored = np.zeros(1, _ARGUMENTS_DTYPE)
        stored["shape"][0, : len(self.shape)] = self.shape
        stored["type_length"] = len(text)
        return (stored.tobytes() + text).ljust(ARGUMENTS_SIZE, b"\0")


def _parse_dtype(text: bytes) -> np.dtype[np.generic]:
    """Turn ``[["", "<f4"]]`` into a dtype, without evaluating anything."""
    try:
        [[name, code]] = json.loads(text)
        # Of what np.dtype() accepts, only numbers, strings and plain memory: an object array
        # would make its reader follow pointers that were read from a file.
        if name != "" or not _PLAIN_DTYPE.fullmatch(code):
            raise ValueError(f"{code!r} is not a plain dtype")
        dtype: np.dtype[np.generic] = np.dtype(code)
    except (ValueError, TypeError, RecursionError) as error:
        raise FieldArgumentsError(f'the dtype is stored as {text!r}, expected JSON such as [["", "<f4"]]') from error
    return dtype
