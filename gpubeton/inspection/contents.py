"""Contents: the samples of a file, as what they were written from."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.cpu.fallback import UndecodableError, decode_rgb
from gpubeton.errors import BadImageError, FormatError, NotesError, OptionError
from gpubeton.fields.json import parse_json
from gpubeton.fields.kind_pixels import pixels_of_kind
from gpubeton.fields.png import encode_png, read_png_header
from gpubeton.fields.registry import CustomFields, open_index
from gpubeton.format import FieldType, ImageMode, read_notes
from gpubeton.format.byte_source import open_bytes

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["Contents", "StoredImage", "decode_png_file", "place_of"]

#: Elements of a raw pixel, and the type of each, by the pixel's bytes.
_PIXELS = {1: (1, "<u1"), 2: (1, "<u2"), 3: (3, "<u1"), 4: (4, "<u1"), 6: (3, "<u2"), 8: (4, "<u2")}


@dataclass(frozen=True)
class StoredImage:
    """An image as it is stored.

    Made by `Contents.value`.

    Attributes
    ----------
    kind : {"jpg", "png", "raw"}
        A file of that kind, or pixels.
    height, width : int
        Its size in pixels, by the file's metadata.
    content : bytes
        The file, or the pixels, row by row.
    """

    kind: str
    height: int
    width: int
    content: bytes

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
            return decode_rgb(self.content) if self.kind == "jpg" else decode_png_file(self.content)
        except (UndecodableError, OSError, ValueError) as error:
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
        return ".png", encode_png(self.pixels())


class Contents:
    """The samples of a file, as what they were written from.

    Parameters
    ----------
    path : str or path
        The file.
    custom_fields : mapping of str to Field class, optional
        The class of each custom field.

    Attributes
    ----------
    index : Index
        What the file says.
    class_names : tuple of str or None
        Names of the classes.

    Raises
    ------
    FormatError
        If the file is damaged.
    OSError
        If it cannot be read.

    Examples
    --------
    >>> contents = Contents("train.beton")
    >>> contents.value(299, "label"), contents.to_file(299, "image")[0]
    (2, '.jpg')
    """

    def __init__(self, path: str | os.PathLike[str], custom_fields: CustomFields | None = None) -> None:
        self.index, self._fields = open_index(path, custom_fields)
        try:
            notes = read_notes(path, self.index.files[0].identity)
        except NotesError:  # which says nothing about the samples
            notes = None
        self.class_names = None if notes is None else notes.class_names

    @property
    def image_fields(self) -> list[str]:
        """Names of the fields of images."""
        return [name for name in self.index.names if self._is_image(name)]

    def is_rgb(self, name: str) -> bool:
        """Tell whether a field is FFCV's own of images, whose pixels have three colours of 8 bits.

        Parameters
        ----------
        name : str
            The field.

        Returns
        -------
        bool
            Not so for images of other kinds.
        """
        return self._is_image(name) and self._type_id(name) == FieldType.RGB_IMAGE

    def labels(self, name: str = "label") -> NDArray[np.int64] | None:
        """Give the label of each sample.

        Parameters
        ----------
        name : str
            The field.

        Returns
        -------
        ndarray of int64, shape (N,), or None
            None if there is no such field, or it holds no whole numbers.
        """
        if name not in self.index.names or self._type_id(name) != FieldType.INT:
            return None
        column: NDArray[np.int64] = self.index.column(name)
        return column

    def class_name(self, label: int) -> str:
        """Name the class of a label.

        Parameters
        ----------
        label : int
            The label.

        Returns
        -------
        str
            Its name, or the number.
        """
        names = self.class_names or ()
        return names[label] if 0 <= label < len(names) else str(label)

    def stored(self, sample: int, name: str) -> bytes:
        """Give the bytes of a value: its region, or its metadata where it has none.

        Parameters
        ----------
        sample : int
            Which sample.
        name : str
            Which field.

        Returns
        -------
        bytes
            As they are in the file.

        Raises
        ------
        OptionError
            If there is no such sample.
        NoSuchFieldError
            If there is no such field.
        StorageError
            If they cannot be read.
        """
        if not 0 <= sample < self.index.num_samples:
            raise OptionError(
                f"{self.index.path}: no sample {sample}; there are {self.index.num_samples}: "
                f"0 to {self.index.num_samples - 1}"
            )
        if not self.index.has_regions(name):
            return bytes(self.index.column(name)[sample].tobytes())
        regions = self.index.regions(name)
        offset, size = int(regions.offset[sample]), int(regions.size[sample])
        with open_bytes(self.index.path, self.index.files[0].identity) as source:
            return source.read_exactly(offset, size) if size else b""

    def value(self, sample: int, name: str) -> Any:
        """Give a value.

        Parameters
        ----------
        sample : int
            Which sample.
        name : str
            Which field.

        Returns
        -------
        int, float, bytes, StoredImage, ndarray, or what JSON held
            The value; the stored bytes of a field that only its own class can read.

        Raises
        ------
        OptionError
            If there is no such sample.
        NoSuchFieldError
            If there is no such field.
        FormatError
            If the JSON cannot be read.
        """
        content = self.stored(sample, name)
        row = self.index.column(name)[sample]
        if self._is_image(name):
            kind = {int(ImageMode.JPG): "jpg", int(ImageMode.PNG): "png"}.get(int(row["mode"]), "raw")
            if kind == "png" and self._type_id(name) != FieldType.CUSTOM:
                kind = "raw"  # FFCV takes every other number for raw pixels
            return StoredImage(kind, int(row["height"]), int(row["width"]), content)
        match self._type_id(name):
            case FieldType.INT | FieldType.FLOAT:
                return row.item()
            case FieldType.JSON:
                return self._json(sample, name, content)
            case FieldType.NDARRAY | FieldType.TORCH_TENSOR | FieldType.BYTES:
                return self._array(name, content)
        return content

    def to_file(self, sample: int, name: str) -> tuple[str, bytes]:
        """Give a value as a file.

        Parameters
        ----------
        sample : int
            Which sample.
        name : str
            Which field.

        Returns
        -------
        tuple of str and bytes
            The ending of its name, and its content: JPEG files as they are, pixels as PNG, arrays as ``.npy``, numbers
            as text, JSON and bytes as they are, also JSON that cannot be read.
        """
        if name in self.index.names and self._type_id(name) == FieldType.JSON:
            return ".json", self.stored(sample, name).removesuffix(b"\0")
        value = self.value(sample, name)
        if isinstance(value, StoredImage):
            return value.to_file()
        if isinstance(value, bytes):
            return ".bin", value
        if isinstance(value, np.ndarray):
            return ".npy", _npy(value)
        return ".txt", repr(value).encode()

    def _json(self, sample: int, name: str, content: bytes) -> Any:
        try:
            return parse_json(content.removesuffix(b"\0"))
        except ValueError as error:
            raise FormatError(
                f"{place_of(self, sample, name)}: {len(content)} bytes that are no JSON: {error}. Expected the text of "
                f"one value in UTF-8; `gpubeton cat FILE {sample} --only FIELD` writes the bytes as they are"
            ) from error

    def _array(self, name: str, content: bytes) -> NDArray[Any] | bytes:
        field: Any = self._fields[name]
        dtype, shape = getattr(field, "dtype", None), getattr(field, "shape", None)
        if dtype is None or shape is None:
            return content
        array = np.frombuffer(content, dtype)
        return array.astype(dtype.newbyteorder("="), copy=False).reshape(shape)

    def _is_image(self, name: str) -> bool:
        names = self.index.column(name).dtype.names
        return names is not None and {"mode", "height", "width", "data_ptr"} <= set(names)

    def _type_id(self, name: str) -> int:
        return self.index.descriptors[self.index.names.index(name)].type_id


def place_of(contents: Contents, sample: int, name: str) -> str:
    """Name the place of a value, for messages."""
    return f"{contents.index.path}: sample {sample}, field {name!r}"


def _npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def decode_png_file(content: bytes) -> NDArray[Any]:
    """Decode a PNG file as fields of images store them, checksums and all.

    Parameters
    ----------
    content : bytes
        The file.

    Returns
    -------
    ndarray of uint8 or uint16, shape (H, W, C)
        Its pixels.

    Raises
    ------
    ValueError
        If it is damaged, or of a kind that no field stores.
    OSError
        If it is damaged.
    """
    header = read_png_header(content)
    if header is None or header.kind is None:
        raise ValueError("no PNG file of a kind that is stored: gray, RGB or RGBA, of 8 or 16 bits, not interlaced")
    return pixels_of_kind(content, header.kind)
