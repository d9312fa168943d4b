"""Field: how the values of one column are stored, and the base of every field that a user writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gpubeton.format.layout import ARGUMENTS_SIZE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

    from gpubeton.pipeline.operation import Operation

__all__ = ["ARG_TYPE", "Field"]

#: What `Field.to_binary` returns one of: the 1024 bytes of arguments of a descriptor.
ARG_TYPE = np.dtype([("", "u1", ARGUMENTS_SIZE)])


class Malloc(Protocol):
    """Gives room for the bytes of a value, while a sample is written.

    Attributes
    ----------
    sample : int
        Row of the file that is being written, for choices that are to depend on
        the sample alone.
    """

    @property
    def sample(self) -> int:
        """Row of the file that is being written."""
        ...

    def __call__(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        """Make room.

        Parameters
        ----------
        size : int
            Bytes wanted.

        Returns
        -------
        tuple of int and ndarray of uint8, shape (size,)
            A pointer to store in the metadata as an unsigned 64-bit number, and
            zeroed memory to fill. Where the bytes go in the file is decided
            later; the writer then puts the offset in place of the pointer.
        """
        ...


class Field(ABC):
    """How the values of one column are stored.

    Derive from it to store values of a kind of your own. Pass such a class to
    the loader as ``custom_fields={name: TheClass}``.

    Examples
    --------
    >>> class PairField(Field):
    ...     '''Two 32-bit numbers, kept in the metadata itself.'''
    ...     metadata_type = np.dtype([("left", "<i4"), ("right", "<i4")])
    ...     from_binary = staticmethod(lambda binary: PairField())
    ...     to_binary = lambda self: np.zeros(1, ARG_TYPE)[0]
    ...     get_decoder_class = lambda self: PairDecoder
    ...     def encode(self, destination, value, malloc):
    ...         destination["left"], destination["right"] = value
    >>> row = np.zeros(1, PairField.metadata_type)
    >>> PairField().encode(row, (3, 4), None)
    >>> row[0]
    np.void((3, 4), dtype=[('left', '<i4'), ('right', '<i4')])
    """

    @property
    @abstractmethod
    def metadata_type(self) -> np.dtype[Any]:
        """Dtype of the field's metadata, little-endian."""

    @staticmethod
    @abstractmethod
    def from_binary(binary: NDArray[np.uint8]) -> Field:
        """Make the field from what a file says about it.

        Parameters
        ----------
        binary : ndarray of uint8, shape (1024,)
            The arguments of its descriptor.

        Returns
        -------
        Field
            A field that reads what the writer's field wrote.
        """

    @abstractmethod
    def to_binary(self) -> np.void:
        """Give what the file is to say about the field.

        Returns
        -------
        void of ARG_TYPE
            Its arguments; zeros if it has none.
        """

    @abstractmethod
    def encode(self, destination: NDArray[Any], value: Any, malloc: Malloc) -> None:
        """Store one value.

        Parameters
        ----------
        destination : ndarray of metadata_type, shape (1,)
            Its metadata, to be filled.
        value : object
            What the dataset gave.
        malloc : Malloc
            Gives room for bytes that do not fit in the metadata.
        """

    @abstractmethod
    def get_decoder_class(self) -> type[Operation]:
        """Give the decoder that a pipeline without one gets.

        Returns
        -------
        type
            An `Operation` that can be made without arguments.
        """


class PlainField(Field):
    """A field that needs no arguments to be read: it is made by calling its class without any."""

    @classmethod
    def from_binary(cls, binary: NDArray[np.uint8]) -> Self:
        del binary  # zeros
        return cls()

    def to_binary(self) -> np.void:
        """Give zeros."""
        empty: np.void = np.zeros(1, ARG_TYPE)[0]
        return empty
