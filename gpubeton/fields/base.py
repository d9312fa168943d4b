"""Field and RowDecoder: bases of every way to store the values of a column, and to read them back."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from gpubeton.errors import PipelineError
from gpubeton.format.layout import ARGUMENTS_SIZE, IMAGE_DTYPE, FieldType
from gpubeton.pipeline.operation import Operation

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpubeton.format.field_arguments import ImageKind
    from gpubeton.pipeline.ragged import Ragged

__all__ = ["ARG_TYPE", "Field"]

#: What `Field.to_binary` returns one of: the 1024 bytes of arguments of a descriptor.
ARG_TYPE = np.dtype([("", "u1", ARGUMENTS_SIZE)])


def as_arguments(content: bytes) -> np.void:
    """Give bytes, up to 1024, as the arguments of a descriptor."""
    arguments: np.void = np.frombuffer(content.ljust(ARGUMENTS_SIZE, b"\0"), ARG_TYPE)[0]
    return arguments


class Malloc(Protocol):
    """Gives room for the bytes of a value, while a sample is written."""

    @property
    def sample(self) -> int:
        """Row of the file that is being written, for choices that depend on the sample alone."""
        ...

    def __call__(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        """Make room for `size` bytes: give a pointer to store in the metadata, and zeroed memory to fill."""
        # The writer decides later where the bytes go in the file, and then replaces the pointer by the offset.
        ...


@dataclass(frozen=True)
class ImageColumn:
    """How the images of a column are stored."""

    mode: NDArray[np.uint8]  # (N,) `ImageMode`
    height: NDArray[np.uint16]  # (N,) pixels
    width: NDArray[np.uint16]  # (N,) pixels
    kind: ImageKind | None = None  # None if only the field's class knows it
    gpu_decodes: bool = True  # False: the CPU decodes them for a GPU, too


class Field(ABC):
    """How the values of one column are stored.

    Derive from it to store values of another kind. Pass such a class to
    the loader as ``custom_fields={name: TheClass}``. The commands show the
    stored bytes of its values, unless the class has a `read_value` method.

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

    # What a descriptor names; a class derived from one of the library's is a custom one all the same.
    type_id: ClassVar[FieldType] = FieldType.CUSTOM

    @property
    @abstractmethod
    def metadata_type(self) -> np.dtype[Any]:
        """Dtype of the field's metadata, little-endian."""

    @staticmethod
    @abstractmethod
    def from_binary(binary: NDArray[np.uint8]) -> Field:
        """Make the field from its arguments in a file.

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
        """Give the arguments that the file stores for the field.

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

    def __init_subclass__(cls, **options: Any) -> None:
        """Use the defaults below for a class that stores values in another way than its base class."""
        super().__init_subclass__(**options)
        if "encode" in vars(cls):
            # A base class cannot read what this class stores: bytes that it takes for damaged may be sound.
            for name in ("read_value", "to_file", "numbers", "images"):
                if name not in vars(cls):
                    setattr(cls, name, vars(Field)[name])

    def read_value(self, row: np.generic, content: bytes) -> Any:
        """Read one value, for ``gpubeton cat``, ``extract`` and ``verify``.

        Parameters
        ----------
        row : numpy scalar of metadata_type
            Its metadata.
        content : bytes
            Its stored bytes; those of the metadata for a field without regions.

        Returns
        -------
        object
            The value. By default the stored bytes.

        Raises
        ------
        ValueError
            If the bytes are damaged.
        """
        del row
        return content

    def to_file(self, row: np.generic, content: bytes) -> tuple[str, bytes]:
        """Give one value as a file, for ``gpubeton extract``.

        Parameters
        ----------
        row, content
            As for `read_value`, whose errors it raises.

        Returns
        -------
        tuple of str and bytes
            The ending of the file's name, and its content. By default arrays as ``.npy``, bytes as they are, anything
            else as text.
        """
        value = self.read_value(row, content)
        if isinstance(value, bytes):
            return ".bin", value
        if isinstance(value, np.ndarray):
            file = io.BytesIO()
            np.save(file, value, allow_pickle=False)
            return ".npy", file.getvalue()
        return ".txt", repr(value).encode()

    def numbers(self, column: NDArray[Any]) -> NDArray[Any] | None:
        """Give the values of a field of numbers, for ``gpubeton info``.

        Parameters
        ----------
        column : ndarray of metadata_type, shape (N,)
            The metadata of all samples.

        Returns
        -------
        ndarray of int64 or float64, shape (N,), or None
            The values. By default None: the values are not numbers.
        """
        del column
        return None

    def images(self, column: NDArray[Any]) -> ImageColumn | None:
        """Describe how images are stored.

        Parameters
        ----------
        column : ndarray of metadata_type, shape (N,)
            The metadata of some samples.

        Returns
        -------
        ImageColumn or None
            By default None, except for metadata with the columns of `RGBImageField`.
        """
        names = column.dtype.names
        if names is None or not set(IMAGE_DTYPE.names or ()) <= set(names):
            return None
        return ImageColumn(column["mode"].copy(), column["height"].copy(), column["width"].copy())


class ArgumentlessField(Field):
    """A field that needs no arguments to be read: it is made by calling its class without any."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @classmethod
    def from_binary(cls, binary: NDArray[np.uint8]) -> Self:
        del binary  # zeros
        return cls()

    def to_binary(self) -> np.void:
        """Give zeros."""
        return as_arguments(b"")


Gather = Callable[[int], NDArray[np.uint8]]
"""Called with a width, it gives the regions of the samples of a batch: (N, width), zeros after their ends."""


class RowDecoder(Operation):
    """A decoder that turns the metadata and the regions of a batch into one array, or a `Ragged`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def accept_extent(self, max_size: int) -> None:
        """Learn the size of the longest region of the field in the whole file."""
        self._max_size: int | None = max_size

    @property
    def max_size(self) -> int:
        """Bytes of the longest region of the field, from `accept_extent`."""
        size: int | None = getattr(self, "_max_size", None)
        if size is None:
            raise PipelineError(f"{type(self).__name__} does not know the longest value: use it in a Loader")
        return size

    @abstractmethod
    def decode(self, rows: NDArray[Any], gather: Gather) -> NDArray[Any] | Ragged:
        """Decode the samples of a batch."""
        # `rows`: ndarray (N,); returns ndarray (N, ...), or Ragged: a new array

    def generate_code(self) -> Callable[..., Any]:
        """Refuse: loaders call `decode`, which needs no compiler, unless a class derived from this one has its own."""
        raise PipelineError(
            f"{type(self).__name__} is not a function of a batch: the loader calls decode(). "
            "Put it first in the pipeline of its field."
        )
