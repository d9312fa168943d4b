"""Contents: the samples of a file, as the values that were written."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import BadImageError, FormatError, NotesError, OptionError
from gpubeton.fields.codecs import CODECS, PNG
from gpubeton.fields.registry import CustomFields, open_single
from gpubeton.format import ImageMode, read_notes
from gpubeton.format.data_files import split_offsets

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gpubeton.fields.base import ImageColumn
    from gpubeton.format import Index

#: Elements of a raw pixel, and the type of each, by the pixel's bytes.
_PIXELS = {1: (1, "<u1"), 2: (1, "<u2"), 3: (3, "<u1"), 4: (4, "<u1"), 6: (3, "<u2"), 8: (4, "<u2")}


@dataclass(frozen=True)
class StoredImage:
    """An image as it is stored. Made by `Contents.value`."""

    kind: str  #: the kind of the content: "jpg" or "png" for a file, "raw" for pixels
    height: int  #: in pixels, by the file's metadata
    width: int  #: in pixels, by the file's metadata
    content: bytes  #: the file, or the pixels, row by row

    def pixels(self) -> NDArray[Any]:
        """Decode the image.

        Returns
        -------
        ndarray of uint8 or uint16, shape (height, width, C)
            Its pixels: a JPEG file's as RGB, raw ones as they are.

        Raises
        ------
        BadImageError
            If it cannot be decoded.
        """
        if self.kind == "raw":
            size = len(self.content) // (self.height * self.width)
            if size not in _PIXELS or len(self.content) != size * self.height * self.width:
                raise BadImageError(f"{len(self.content)} bytes are no {self.height} x {self.width} pixels")
            channels, element = _PIXELS[size]
            return np.frombuffer(self.content, element).reshape(self.height, self.width, channels)
        try:
            return CODECS[ImageMode[self.kind.upper()]].decode(self.content, None, None)
        except BadImageError as error:
            raise BadImageError(f"a {self.kind} file that cannot be decoded: {error}") from error

    def to_file(self) -> tuple[str, bytes]:
        """Give the image as a file: a JPEG or PNG file as it is, pixels as PNG, without any loss.

        Returns
        -------
        tuple of str and bytes
            The ending of its name, and its content.
        """
        if self.kind != "raw":
            return f".{self.kind}", self.content
        return f".{PNG.suffix}", PNG.encode(self.pixels(), 100)


class Contents:
    """The samples of a file, as the values that were written.

    Parameters
    ----------
    path : str or path
        The file.
    custom_fields : mapping of str to Field class, optional
        The class of each custom field.

    Examples
    --------
    >>> contents = Contents("train.beton")
    >>> contents.value(299, "label"), contents.to_file(299, "image")[0]
    (2, '.jpg')
    """

    def __init__(self, path: str | os.PathLike[str], custom_fields: CustomFields | None = None) -> None:
        self.index: Index  #: header and metadata of the file
        self.index, self._fields = open_single(path, custom_fields)
        self.class_names = self.index.class_names or None  #: names of the classes; None if there are none
        if not self.index.files[0].is_container:
            with suppress(NotesError):  # the samples may be sound
                notes = read_notes(self.index.files[0].path, self.index.files[0].identity)
                self.class_names = None if notes is None else notes.class_names

    @property
    def image_fields(self) -> list[str]:
        """Names of the fields of images."""
        return [name for name in self.index.names if self._images(name) is not None]

    def labels(self, name: str = "label") -> NDArray[np.int64] | None:
        """Give the label of each sample.

        Parameters
        ----------
        name : str
            The field.

        Returns
        -------
        ndarray of int64, shape (N,), or None
            None if the field does not exist, or does not hold whole numbers.
        """
        if name not in self.index.names:
            return None
        numbers = self._fields[name].numbers(self.index.column(name))
        return None if numbers is None or numbers.dtype.kind != "i" else numbers.astype(np.int64, copy=False)

    def stored(self, sample: int, name: str) -> bytes:
        """Read the bytes of a value: its region, or its metadata if it has none.

        Parameters
        ----------
        sample, name
            The sample and the field.

        Returns
        -------
        bytes
            As they are in the file.

        Raises
        ------
        OptionError, NoSuchFieldError
            If there is no such sample or field.
        StorageError
            If the bytes cannot be read.
        """
        checked_samples([sample], self.index.num_samples, f"{self.index.path}: ")
        if not self.index.has_regions(name):
            return bytes(self.index.column(name)[sample].tobytes())
        regions = self.index.regions(name)
        file, offset = split_offsets(regions.offset[sample : sample + 1])
        with self.index.files[int(file[0])].open() as source:
            size = int(regions.size[sample])
            return source.read_exactly(int(offset[0]), size) if size else b""

    def value(self, sample: int, name: str) -> Any:
        """Read a value; errors as for `stored`.

        Parameters
        ----------
        sample, name
            The sample and the field.

        Returns
        -------
        int, float, bytes, StoredImage, ndarray or object
            The value, see `Field.read_value`. JSON gives Python objects.

        Raises
        ------
        FormatError
            If the value is damaged, such as JSON that cannot be parsed.
        """
        content = self.stored(sample, name)
        images = self._images(name, sample)
        if images is not None:
            codec = CODECS.get(images.mode[0])
            kind = "raw" if codec is None else codec.suffix
            return StoredImage(kind, int(images.height[0]), int(images.width[0]), content)
        with self._reading(sample, name, content):
            return self._fields[name].read_value(self.index.column(name)[sample], content)

    def to_file(self, sample: int, name: str) -> tuple[str, bytes]:
        """Convert a value to a file; errors as for `value`.

        Parameters
        ----------
        sample, name
            The sample and the field.

        Returns
        -------
        tuple of str and bytes
            The ending of its name, and its content: JPEG files as they are, pixels as PNG, arrays as ``.npy``, numbers
            as text, JSON and bytes as they are, also damaged JSON.
        """
        if self._images(name) is not None:
            image: StoredImage = self.value(sample, name)
            return image.to_file()
        content = self.stored(sample, name)
        with self._reading(sample, name, content):
            return self._fields[name].to_file(self.index.column(name)[sample], content)

    def _images(self, name: str, sample: int = 0) -> ImageColumn | None:
        column = self.index.column(name)[sample : sample + 1]  # raises `NoSuchFieldError`
        return self._fields[name].images(column)

    @contextmanager
    def _reading(self, sample: int, name: str, content: bytes) -> Iterator[None]:
        """Name the sample and the field in an error of the field."""
        try:
            yield
        except ValueError as error:
            raise FormatError(
                f"{place_of(self, sample, name)}: {len(content)} bytes that cannot be read: {error}. "
                f"`gpubeton cat FILE {sample} --only FIELD` writes the bytes as they are"
            ) from error


def place_of(contents: Contents, sample: int, name: str) -> str:
    """Name the place of a value in a message."""
    return f"{contents.index.path}: sample {sample}, field {name!r}"


def class_name(label: int, names: Sequence[str] | None) -> str:
    """Name the class of a label; give the number if it has no name."""
    return names[label] if names is not None and 0 <= label < len(names) else str(label)


def checked_samples(samples: Sequence[int] | NDArray[Any] | None, count: int, place: str = "") -> NDArray[np.int64]:
    """List samples, (N,), of `count`, by default all; OptionError if one does not exist."""
    chosen: NDArray[Any] = np.arange(count) if samples is None else np.asarray(samples)  # numbers of any size
    wrong = chosen[(chosen < 0) | (chosen >= count)]
    if len(wrong):
        raise OptionError(f"{place}no sample {wrong[0]}; there are {count}: 0 to {count - 1}")
    return chosen.astype(np.int64, copy=False)
