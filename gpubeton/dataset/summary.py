"""Summary: fields, sizes and statistics of a ``.beton`` file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import NotesError, OptionError
from gpubeton.fields.codecs import CODECS
from gpubeton.fields.registry import CustomFields, open_single
from gpubeton.format import ImageMode, Index, Notes, read_notes
from gpubeton.format.data_files import split_offsets
from gpubeton.format.entry_points import open_blocks
from gpubeton.format.layout import round_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gpubeton.fields.base import Field, ImageColumn
    from gpubeton.format.entry_points import EntryBlock

_BINS = 12
_MOST_VALUES = 10_000
"""Different whole numbers that are counted separately."""


@dataclass(frozen=True)
class Spread:
    """Statistics of numbers. Made by `summarize`."""

    minimum: float  #: the smallest number
    median: float  #: the middle one
    mean: float  #: their mean
    maximum: float  #: the largest number
    edges: list[float]  #: beginnings of the bins of the histogram, and the end of the last one
    counts: list[int]  #: numbers in each bin


def spread_of(values: NDArray[Any]) -> Spread:
    """Compute the statistics of finite numbers, (N,), at least one."""
    exact = values.astype(np.float64)
    # A quarter of it, so that neither the span nor the sum of two overflows.
    counts, edges = np.histogram(exact / 4, bins=_bins(values, exact) / 4)
    low, high = float(exact.min()), float(exact.max())
    mean = min(max(8 * float((exact / 8 / len(exact)).sum()), low), high)
    return Spread(low, 4 * float(np.median(exact / 4)), mean, high, (4 * edges).tolist(), counts.tolist())


def _bins(values: NDArray[Any], exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """Choose the bins of a histogram: one for each whole number, where there are few."""
    low, high = exact.min(), exact.max()
    if values.dtype.kind in "iu" and high / 4 - low / 4 < _BINS / 4:
        return np.arange(low, high + 2)
    if low == high:
        return np.array([low, high])
    shares = np.linspace(0, 1, _BINS + 1)
    return np.maximum.accumulate(low * (1 - shares) + high * shares)


@dataclass(frozen=True)
class ImageSummary:
    """Statistics of a field of images. Made by `summarize`."""

    stored: dict[str, int]  #: how many images are stored as files of each kind, "jpg" or "png", and as pixels: "raw"
    height: Spread  #: in pixels
    width: Spread  #: in pixels
    most_common: list[tuple[int, int, int]]  #: the commonest sizes: height, width, and number of images
    looked_at: int  #: JPEG files whose markers were read, for `kinds`, `samplings` and `routes`
    kinds: dict[str, int]  #: how many of these files are of each kind: "baseline", "damaged" and so on
    samplings: dict[str, int]  #: how many of them have each chroma sampling
    #: How many of them each part of a machine whose GPU has JPEG engines decodes: "hardware" or "cpu". The CPU decodes
    #: all images of `ImageField`.
    routes: dict[str, int]
    mode: str = ""  #: the kind of image, such as "rgb" or "gray16"; empty if only the field's class knows it
    indexed: int = 0  #: JPEG files with entry points
    entry_points: int = 0  #: the number of all entry points
    entry_bytes: int = 0  #: the bytes that they take


@dataclass(frozen=True)
class FieldSummary:
    """Statistics of a field. Made by `summarize`."""

    name: str  #: its name
    type: str  #: its class
    bytes: Spread | None = None  #: sizes of its regions; None for a field whose values are in the metadata
    values: Spread | None = None  #: statistics of the finite numbers
    not_finite: int = 0  #: count of numbers that are infinite or NaN
    counts: Mapping[int, int] | None = None  #: count of each whole number; empty if there are too many different ones
    image: ImageSummary | None = None  #: statistics of images


@dataclass(frozen=True)
class Summary:
    """Statistics of a file. Made by `summarize`."""

    path: str  #: the file
    bytes: int  #: its size
    samples: int  #: samples in it
    page_size: int  #: bytes of a page
    pages: int  #: how many there are
    page_use: float  #: share of the pages' bytes that regions use
    metadata_bytes: int  #: bytes of the metadata
    fields: list[FieldSummary]  #: its fields
    has_checksums: bool  #: whether there is a checksum of each region
    class_names: list[str] | None  #: names of the classes
    notes: dict[str, Any]  #: the notes of the file
    index_faults: list[str]  #: why entry points in the file or beside it cannot be used


def summarize(
    path: str | os.PathLike[str], custom_fields: CustomFields | None = None, *, look_at: int | None = 20_000
) -> Summary:
    """Summarize a file.

    Reads its index, and the beginning and end of JPEG files; decodes nothing.

    Parameters
    ----------
    path, custom_fields
        As for `verify`.
    look_at : int, optional
        Maximum number of JPEG files of each field whose markers are read, evenly spread over the file; None for all.

    Returns
    -------
    Summary
        Its statistics.

    Examples
    --------
    >>> summarize("train.beton").samples
    300
    """
    if look_at is not None and look_at < 1:
        raise OptionError(f"look_at is {look_at}, expected at least 1")
    index, fields = open_single(path, custom_fields)
    notes = _notes_of(index)
    blocks: dict[str, list[EntryBlock]] = {}
    faults: list[str] = []
    for file in range(len(index.files)):
        opened, faults_of_file = open_blocks(index, file)
        faults += faults_of_file
        for name, block in opened.items():
            blocks.setdefault(name, []).append(block)
    header = index.header
    metadata_bytes = index.num_samples * index.metadata_type.itemsize
    metadata_end = header.metadata_offset + metadata_bytes
    used = index.allocations["size"].sum(dtype=np.uint64)
    ends = index.allocations["ptr"] + index.allocations["size"]
    has_pages = len(ends) and used and not index.files[0].is_container
    last = round_up(int(ends.max()), header.page_size) if has_pages else 0
    pages = max(0, (last - round_up(metadata_end, header.page_size)) // header.page_size)
    return Summary(
        path=os.fspath(path),
        bytes=index.file_size,
        samples=index.num_samples,
        page_size=header.page_size,
        pages=pages,
        page_use=float(used) / (pages * header.page_size) if pages else 0.0,
        metadata_bytes=metadata_bytes,
        fields=[_summarize_field(index, name, field, look_at, blocks.get(name, [])) for name, field in fields.items()],
        has_checksums=notes.checksums is not None or bool(index.checksums.any()),
        class_names=None if notes.class_names is None else list(notes.class_names),
        notes=dict(notes.content),
        index_faults=faults,
    )


def _notes_of(index: Index) -> Notes:
    if index.files[0].is_container:
        names = {"class_names": list(index.class_names)} if index.class_names else {}
        return Notes({"made_by": "gpubeton index", **names})
    try:
        return read_notes(index.files[0].path, index.files[0].identity) or Notes({})
    except NotesError as error:
        return Notes({"damaged": str(error)})


def _summarize_field(
    index: Index, name: str, field: Field, look_at: int | None, blocks: list[EntryBlock]
) -> FieldSummary:
    column, kind = index.column(name), type(field).__name__
    stored = spread_of(index.regions(name).size) if index.has_regions(name) else None
    images = field.images(column)
    if images is not None:
        return FieldSummary(name, kind, stored, image=_summarize_images(index, name, images, look_at, blocks))
    numbers = field.numbers(column)
    if numbers is None:
        return FieldSummary(name, kind, stored)
    if numbers.dtype.kind == "f":
        finite = numbers[np.isfinite(numbers)]
        values = spread_of(finite) if len(finite) else None
        return FieldSummary(name, kind, values=values, not_finite=len(numbers) - len(finite))
    distinct, counts = np.unique(numbers, return_counts=True)
    few = len(distinct) <= _MOST_VALUES
    counted = dict(zip(distinct.tolist(), counts.tolist(), strict=True)) if few else {}
    return FieldSummary(name, kind, values=spread_of(numbers), counts=counted)


def _summarize_images(
    index: Index, name: str, images: ImageColumn, look_at: int | None, blocks: list[EntryBlock]
) -> ImageSummary:
    from gpubeton.loader.gpus import JpegSurvey, survey_jpegs  # it imports Numba

    regions = index.regions(name)
    height, width, mode = images.height, images.width, images.mode
    compressed = np.flatnonzero(mode == ImageMode.JPG)
    if look_at is not None and len(compressed) > look_at:
        compressed = compressed[np.linspace(0, len(compressed) - 1, look_at).astype(np.intp)]
    rows, columns = (side[compressed].astype(np.int32) for side in (height, width))
    survey = JpegSurvey({}, {}, {})
    files, offset = split_offsets(regions.offset[compressed])
    size = regions.size[compressed].astype(np.uint64)
    for number in np.unique(files).tolist() or [0]:
        part = files == number
        with index.files[number].open() as source:
            survey += survey_jpegs(
                source, offset[part], size[part], rows[part], columns[part], gpu_decodes=images.gpu_decodes
            )
    sizes, counts = np.unique(np.stack([height, width], axis=1), axis=0, return_counts=True)
    stored = {codec.suffix: int((mode == codec.mode).sum()) for codec in CODECS.values()}
    commonest = np.argsort(-counts, kind="stable")[:5]
    return ImageSummary(
        stored={**stored, "raw": len(mode) - sum(stored.values())},
        height=spread_of(height),
        width=spread_of(width),
        most_common=[(int(sizes[row, 0]), int(sizes[row, 1]), int(counts[row])) for row in commonest],
        looked_at=len(compressed),
        kinds=survey.kinds,
        samplings=survey.samplings,
        routes=survey.routes,
        mode="" if images.kind is None else images.kind.name,
        indexed=sum(int((block.counts > 0).sum()) for block in blocks),
        entry_points=sum(len(block.entries) for block in blocks),
        entry_bytes=sum(block.nbytes for block in blocks),
    )
