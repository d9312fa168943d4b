"""Chunk: some samples, encoded and kept until it is known where in the file they go."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import RegionTooLargeError, SampleError
from gpubeton.fields.basics import FloatField, IntField
from gpubeton.format.layout import PAGE_SIZE_MAX, metadata_dtype
from gpubeton.writing.extent import Extent, Refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.fields.base import Field

__all__ = ["Chunk", "encode_chunk"]

#: Where the pointers begin that fields get while nothing is placed yet: far from every offset in a file, and also
#: small enough for a signed column.
_FIRST_POINTER = 0x7BE7 << 48

#: Characters of the reason for leaving a sample out, which travels through a pipe.
_LONGEST_REASON = 1000


class Chunk:
    """Some samples, encoded and kept until it is known where in the file they go.

    Parameters
    ----------
    first_row : int
        Row of the file of the first sample.
    metadata : ndarray, shape (N,)
        Their metadata rows, with provisional pointers.
    regions : list of ndarray of uint8
        Their regions.
    extent : Extent
        The regions' sizes, and which sample each belongs to.
    pointers : ndarray of uint64, shape (R,)
        Provisional pointer of each region.
    """

    def __init__(
        self,
        first_row: int,
        metadata: NDArray[np.void],
        regions: list[NDArray[np.uint8]],
        extent: Extent,
        pointers: NDArray[np.uint64],
    ) -> None:
        self.first_row = first_row
        self.metadata = metadata
        self.extent = extent
        self._regions = regions
        self._pointers = pointers

    def settle(self, offset: NDArray[np.uint64], fields: Sequence[Field]) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Put the final pointers in the metadata, and give the regions with them.

        Parameters
        ----------
        offset : ndarray of uint64, shape (N,)
            Where in the file each sample goes.
        fields : sequence of Field
            The fields of the columns.

        Returns
        -------
        iterator of (int, ndarray of uint8)
            Where each region goes, and its bytes. To be read once.
        """
        final = self.extent.pointers(offset)
        last = np.cumsum(self.extent.counts)
        for number, field in enumerate(fields):
            # Other numbers of 64 bits may by chance look like a pointer; those of the library's own fields never do.
            if type(field) not in (IntField, FloatField):
                for column in _words(self.metadata[f"f{number}"]):
                    self._translate(column, final, last - self.extent.counts, last)
        return zip(final.tolist(), self._regions, strict=True)

    def checksums(self) -> NDArray[np.uint32]:
        """Compute the CRC-32 of each region.

        Returns
        -------
        ndarray of uint32, shape (R,)
            In the order of the regions.
        """
        return np.array([zlib.crc32(region.data) for region in self._regions], np.uint32)

    def _translate(
        self,
        column: NDArray[Any],
        final: NDArray[np.uint64],
        first: NDArray[np.int64],
        last: NDArray[np.int64],
    ) -> None:
        """Replace the provisional pointers in a column, also those into the middle of a region."""
        if len(self._pointers) == 0:
            return
        word = column.astype(np.uint64)
        region = np.searchsorted(self._pointers, word, side="right") - 1
        # Only the sample's own regions, and nothing behind the end of the last one.
        per_row = (-1,) + (1,) * (column.ndim - 1)
        is_pointer = (region >= first.reshape(per_row)) & (region < last.reshape(per_row))
        distance = word - self._pointers[region]
        is_pointer &= distance <= self.extent.sizes[region].astype(np.uint64)
        column[is_pointer] = (final[region] + distance)[is_pointer]


class _Allocator:
    """The `Malloc` that fields get: it keeps the regions in memory of their own.

    Attributes
    ----------
    sample : int
        Row of the file that is being written.
    """

    def __init__(self) -> None:
        self.sample = 0
        self.regions: list[NDArray[np.uint8]] = []
        self.pointers: list[int] = []
        self._next = _FIRST_POINTER

    def __call__(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        region = np.zeros(int(size), np.uint8)
        pointer = self._next
        self.regions.append(region)
        self.pointers.append(pointer)
        # One more than the size: the end of a region is not the start of the next.
        self._next += region.size + 1
        return pointer, region


def encode_chunk(
    dataset: Any,
    fields: Mapping[str, Field],
    indices: Sequence[Any],
    first_row: int,
    page_size: int,
    on_sample: Callable[[int], None] | None = None,
    *,
    skip: bool = False,
) -> Chunk:
    """Take samples from a dataset and encode them.

    Parameters
    ----------
    dataset : indexable
        Gives a sample for an index: one value per field, in their order, or a
        mapping with the names of the fields.
    fields : mapping of str to Field
        How each value is stored.
    indices : sequence
        Which samples.
    first_row : int
        Row of the file of the first of them.
    page_size : int
        Bytes that a sample may have.
    on_sample : callable, optional
        Called with the row of each sample before it is taken.
    skip : bool
        Whether a sample that cannot be taken or encoded is left out, instead of raising an error. One that is larger
        than a page always raises it: another page size would do.

    Returns
    -------
    Chunk
        The encoded samples.

    Raises
    ------
    SampleError
        If the dataset or a field raises an exception, which is its cause.
    RegionTooLargeError
        If a sample has more bytes than a page.
    """
    metadata = np.zeros(len(indices), metadata_dtype([field.metadata_type for field in fields.values()]))
    allocator = _Allocator()
    counts: list[int] = []
    refused: list[Refusal] = []
    for number, index in enumerate(indices):
        allocator.sample = first_row + number
        if on_sample is not None:
            on_sample(allocator.sample)
        place = f"sample {index} (row {allocator.sample} of the file)"
        begun, row = len(allocator.regions), len(counts)
        try:
            _encode(dataset, index, fields, metadata[row : row + 1], allocator, place)
        except SampleError as error:
            if not skip:
                raise
            refused.append(Refusal(index, str(error)[:_LONGEST_REASON]))
            metadata[row] = np.zeros((), metadata.dtype)
            del allocator.regions[begun:], allocator.pointers[begun:]
            continue
        own = allocator.regions[begun:]
        counts.append(len(own))
        _check_size(sum(max(1, region.size) for region in own), page_size, place, index)
    sizes = np.fromiter((region.size for region in allocator.regions), np.int64, len(allocator.regions))
    extent = Extent(np.array(counts, np.int64), sizes, refused=tuple(refused))
    return Chunk(first_row, metadata[: len(counts)], allocator.regions, extent, np.array(allocator.pointers, np.uint64))


def _encode(
    dataset: Any,
    index: Any,
    fields: Mapping[str, Field],
    row: NDArray[np.void],
    allocator: _Allocator,
    place: str,
) -> None:
    sample = _take(dataset, index, place)
    for column, (name, value) in enumerate(_values(sample, fields, place, index)):
        with _naming(f"{place}, field {name!r}", index):
            fields[name].encode(row[f"f{column}"], value, allocator)


def _take(dataset: Any, index: Any, place: str) -> Any:
    with _naming(f"{place}: the dataset raised", index):
        return dataset[index]


@contextmanager
def _naming(place: str, index: Any) -> Iterator[None]:
    """Say which sample an exception is about."""
    try:
        yield
    except Exception as error:
        raise SampleError(f"{place}: {type(error).__name__}: {error}", index) from error


def _values(sample: Any, fields: Mapping[str, Field], place: str, index: Any) -> list[tuple[str, Any]]:
    """Pair the values of a sample with the names of the fields."""
    if isinstance(sample, Mapping):
        missing = [name for name in fields if name not in sample]
        if missing:
            raise SampleError(f"{place}: a mapping without {', '.join(map(repr, missing))}", index)
        return [(name, sample[name]) for name in fields]
    # FFCV ignores what is more than the fields, but reads an array or a string as if it were a tuple.
    if not isinstance(sample, tuple | list) and (not hasattr(sample, "__len__") or len(sample) != len(fields)):
        raise SampleError(
            f"{place}: a {type(sample).__name__}, expected a tuple of {len(fields)} values for "
            f"{', '.join(map(repr, fields))}, or a mapping",
            index,
        )
    if len(sample) < len(fields):
        names = ", ".join(map(repr, fields))
        raise SampleError(
            f"{place}: {len(sample)} values for {len(fields)} fields; expected one each for {names}", index
        )
    return list(zip(fields, sample, strict=False))


def _check_size(size: int, page_size: int, place: str, index: Any) -> None:
    if size <= page_size:
        return
    needed = 1 << (size - 1).bit_length()
    advice = (
        f"Use page_size={needed}."
        if needed < PAGE_SIZE_MAX
        else f"No page can be as large as {PAGE_SIZE_MAX}: split the sample, or store it smaller."
    )
    raise RegionTooLargeError(f"{place}: {size} bytes, but a page has {page_size}. {advice}", index)


def _words(column: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Give a view of each number of 64 bits in a column of metadata."""
    if column.dtype.names is not None:
        for name in column.dtype.names:
            yield from _words(column[name])
    elif column.dtype.kind in "iu" and column.dtype.itemsize == 8:
        yield column
