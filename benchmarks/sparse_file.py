"""Write large .beton files quickly: with holes as images, or with few images repeated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpubeton.fields.jpeg import read_frame
from gpubeton.format.layout import (
    ALLOCATION_DTYPE,
    DESCRIPTOR_DTYPE,
    HEADER_DTYPE,
    IMAGE_DTYPE,
    PAGE_SIZE_DEFAULT,
    VERSION,
    FieldType,
    ImageMode,
    metadata_dtype,
    round_up,
)

__all__ = ["write_jpeg_beton", "write_sparse_beton"]

_ROW = metadata_dtype([IMAGE_DTYPE, "<i8"])
_METADATA_OFFSET = HEADER_DTYPE.itemsize + 2 * DESCRIPTOR_DTYPE.itemsize


def write_sparse_beton(path: Path, samples: int, region_bytes: int, *, raw_side: int = 0, chunk: int = 0) -> None:
    """Write a file whose images are holes, which read as zeros.

    With `raw_side`, images are raw pixels of this side, else invalid JPEG. With `chunk`, chunks of this many rows of
    the allocation table are shuffled, as several workers would write them.
    """
    slots = PAGE_SIZE_DEFAULT // region_bytes
    page, slot = np.divmod(np.arange(samples, dtype=np.int64), slots)
    rows = np.zeros(samples, _ROW)
    rows["f0"]["mode"] = ImageMode.RAW if raw_side else ImageMode.JPG
    rows["f0"]["width"], rows["f0"]["height"] = (raw_side, raw_side) if raw_side else (500, 375)
    sizes = np.full(samples, region_bytes, np.int64)
    order = np.arange(samples)
    if chunk:
        chunks = np.random.default_rng(0).permutation(-(-samples // chunk))
        order = (chunks[:, None] * chunk + np.arange(chunk)).reshape(-1)
        order = order[order < samples]
    _write_frame(path, rows, page, slot * region_bytes, sizes, order)


def write_jpeg_beton(path: Path, samples: int, contents: Sequence[bytes]) -> None:
    """Write a file that repeats the JPEG images in `contents`, as many as fit into a page."""
    sizes_of_page = np.array([len(content) for content in contents], np.int64)
    starts_of_page = np.cumsum(sizes_of_page) - sizes_of_page
    fitting = int(np.searchsorted(starts_of_page + sizes_of_page, PAGE_SIZE_DEFAULT, side="right"))
    page, slot = np.divmod(np.arange(samples, dtype=np.int64), fitting)
    rows = np.zeros(samples, _ROW)
    rows["f0"]["mode"] = ImageMode.JPG
    frames = [read_frame(content) for content in contents[:fitting]]
    rows["f0"]["width"] = np.array([frame.width for frame in frames if frame])[slot]
    rows["f0"]["height"] = np.array([frame.height for frame in frames if frame])[slot]
    first_page = _write_frame(path, rows, page, starts_of_page[slot], sizes_of_page[slot], np.arange(samples))
    content = b"".join(contents[:fitting])
    with path.open("r+b") as file:
        for number in range(int(page[-1]) + 1):
            file.seek(first_page + number * PAGE_SIZE_DEFAULT)
            file.write(content)


def _write_frame(
    path: Path,
    rows: NDArray[np.void],
    page: NDArray[np.int64],
    start: NDArray[np.int64],
    size: NDArray[np.int64],
    order: NDArray[np.int64],
) -> int:
    """Write everything except the images; return the offset of the first page."""
    descriptors = np.zeros(2, DESCRIPTOR_DTYPE)
    for descriptor, name, kind in zip(
        descriptors, (b"image", b"label"), (FieldType.RGB_IMAGE, FieldType.INT), strict=True
    ):
        descriptor["type_id"] = kind
        descriptor["name"][: len(name)] = np.frombuffer(name, np.uint8)
    first_page = round_up(_METADATA_OFFSET + rows.nbytes, PAGE_SIZE_DEFAULT)
    rows["f0"]["data_ptr"] = first_page + page * PAGE_SIZE_DEFAULT + start
    rows["f1"] = np.arange(len(rows)) % 1000
    table = np.zeros(len(rows), ALLOCATION_DTYPE)
    table["sample_id"], table["ptr"], table["size"] = np.arange(len(rows)), rows["f0"]["data_ptr"], size
    table_offset = first_page + (int(page[-1]) + 1) * PAGE_SIZE_DEFAULT
    with path.open("wb") as file:
        file.write(np.array([(VERSION, 2, PAGE_SIZE_DEFAULT, len(rows), table_offset)], HEADER_DTYPE).tobytes())
        file.write(descriptors.tobytes())
        file.write(rows.tobytes())
        file.seek(table_offset)
        file.write(table[order].tobytes())
    return first_page
