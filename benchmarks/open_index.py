"""Time how long it takes to open a .beton file of the size of ImageNet.

The file is sparse: header, metadata and allocation table are real, the images are holes.

    python -m benchmarks.open_index
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.results import RESULTS, save
from benchmarks.table import draw_tables
from gpubeton.format.index import Index
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
from gpubeton.loader import Loader, OrderOption

__all__ = ["write_sparse_beton"]


def main(
    samples: Annotated[int, typer.Option(min=1, help="Number of samples.")] = 1_300_000,
    image_bytes: Annotated[int, typer.Option(min=1, help="Bytes of each image.")] = 110_000,
    repeats: Annotated[int, typer.Option(min=1, help="How often each way is timed.")] = 7,
    folder: Annotated[Path | None, typer.Option(help="Where the file goes; by default a temporary folder.")] = None,
    results: Annotated[Path, typer.Option(help="Where the result goes.")] = RESULTS,
) -> None:
    """Time how long it takes to open a .beton file of the size of ImageNet."""
    console = Console()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        in_order, mixed = Path(place) / "in-order.beton", Path(place) / "mixed.beton"
        with console.status(f"Writing two sparse files of {samples:,} samples"):
            write_sparse_beton(in_order, samples, image_bytes)
            write_sparse_beton(mixed, samples, image_bytes, chunk=100)
        ways: dict[str, Callable[[], object]] = {
            "index, one worker wrote it": lambda: Index.open(in_order),
            "index, several workers wrote it": lambda: Index.open(mixed),
            "loader, several workers wrote it": lambda: _open_loader(mixed),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                seconds[name].append(time.perf_counter() - start)
                console.print(f"{name}: {seconds[name][-1]:.3f} s")
        file_bytes = in_order.stat().st_size
    path = save("open_index", {"samples": samples, "file_bytes": file_bytes, "seconds": seconds}, results)
    console.print(f"Written: {path}")
    if results == RESULTS:
        draw_tables()


def write_sparse_beton(
    path: Path,
    samples: int,
    region_bytes: int,
    *,
    raw_side: int = 0,
    chunk: int = 0,
    page_size: int = PAGE_SIZE_DEFAULT,
) -> None:
    """Write a file whose images are holes, which read as zeros.

    Parameters
    ----------
    path : Path
        The file.
    samples : int
        Number of samples, each with an ``image`` and a ``label``.
    region_bytes : int
        Bytes of each image; with `raw_side`, three times its square.
    raw_side : int
        Height and width of raw-stored images; 0 for images that say that they are JPEG and are not.
    chunk : int
        If not 0, chunks of as many rows of the allocation table are shuffled, as several workers leave them.
    page_size : int
        Bytes of a page.
    """
    row_type = metadata_dtype([IMAGE_DTYPE, "<i8"])
    descriptors = np.zeros(2, DESCRIPTOR_DTYPE)
    for descriptor, name, kind in zip(
        descriptors, (b"image", b"label"), (FieldType.RGB_IMAGE, FieldType.INT), strict=True
    ):
        descriptor["type_id"] = kind
        descriptor["name"][: len(name)] = np.frombuffer(name, np.uint8)
    metadata_offset = HEADER_DTYPE.itemsize + descriptors.nbytes
    first_page = round_up(metadata_offset + samples * row_type.itemsize, page_size)
    page, slot = np.divmod(np.arange(samples, dtype=np.uint64), page_size // region_bytes)
    pointers = np.uint64(first_page) + page * np.uint64(page_size) + slot * np.uint64(region_bytes)
    table_offset = round_up(int(pointers[-1]) + region_bytes, page_size)
    rows = np.zeros(samples, row_type)
    rows["f0"]["mode"] = ImageMode.RAW if raw_side else ImageMode.JPG
    rows["f0"]["width"], rows["f0"]["height"] = (raw_side, raw_side) if raw_side else (500, 375)
    rows["f0"]["data_ptr"] = pointers
    rows["f1"] = np.arange(samples) % 1000
    table = np.zeros(samples, ALLOCATION_DTYPE)
    table["sample_id"], table["ptr"], table["size"] = np.arange(samples), pointers, region_bytes
    if chunk:
        order = np.random.default_rng(0).permutation(-(-samples // chunk))
        places = (order[:, None] * chunk + np.arange(chunk)).reshape(-1)
        table = table[places[places < samples]]
    with path.open("wb") as file:
        file.write(np.array([(VERSION, 2, page_size, samples, table_offset)], HEADER_DTYPE).tobytes())
        file.write(descriptors.tobytes())
        file.write(rows.tobytes())
        file.seek(table_offset)
        file.write(table.tobytes())


def _open_loader(path: Path) -> None:
    Loader(path, batch_size=256, order=OrderOption.RANDOM, seed=0, pipelines={"image": None}).close()


if __name__ == "__main__":
    typer.run(main)
