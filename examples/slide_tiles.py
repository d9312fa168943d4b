"""Read the JPEG tiles of pathology slides where they lie: a tiled TIFF needs an index, and no conversion.

    python -m examples.slide_tiles SLIDE.tif... --index tiles.index

A tile is a sample, with the number of its slide and its place. Slides whose tiles share JPEG tables (tag 347, as
Aperio's) have no whole JPEG at any place: they are refused.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from gpubeton import Loader
from gpubeton.dataset import IndexedSource, write_index

_WIDTH, _COMPRESSION, _TILE_WIDTH, _TILE_LENGTH, _OFFSETS, _COUNTS, _TABLES = 256, 259, 322, 323, 324, 325, 347
_JPEG = 7
#: Letter of `struct` for TIFF's types of whole numbers.
_TYPES = {1: "B", 3: "H", 4: "I", 16: "Q"}


def read_tags(file: BinaryIO) -> dict[int, tuple[int, ...]]:
    """Read the whole numbers of the first page of a TIFF, classic or BigTIFF, by their tags."""
    order = {b"II": "<", b"MM": ">"}[file.read(2)]

    def read(form: str, count: int = 1) -> tuple[int, ...]:
        form = f"{order}{count}{form}"
        return struct.unpack(form, file.read(struct.calcsize(form)))

    (version,) = read("H")
    if version == 43:  # BigTIFF
        read("H", 2)
    word, number = ("Q", "Q") if version == 43 else ("I", "H")
    file.seek(read(word)[0])
    tags: dict[int, tuple[int, ...]] = {}
    for _ in range(read(number)[0]):
        tag, kind = read("H", 2)
        (count,) = read(word)
        entry = file.tell()
        form = _TYPES.get(kind, "B")
        if count * struct.calcsize(form) > struct.calcsize(word):
            file.seek(read(word)[0])
        tags[tag] = read(form, count) if kind in _TYPES else ()
        file.seek(entry + struct.calcsize(word))
    return tags


def list_tiles(slides: Sequence[Path]) -> Iterator[tuple[Path, int, int, dict[str, int]]]:
    """List the tiles of slides: file, offset, size, and the slide's number with the tile's place."""
    for number, slide in enumerate(slides):
        with slide.open("rb") as file:
            tags = read_tags(file)
        if tags.get(_COMPRESSION) != (_JPEG,) or _OFFSETS not in tags or _TABLES in tags:
            raise SystemExit(f"{slide}: expected tiles that are whole JPEG files, without tables that they share")
        across = -(-tags[_WIDTH][0] // tags[_TILE_WIDTH][0])
        for tile, place in enumerate(zip(tags[_OFFSETS], tags[_COUNTS], strict=True)):
            yield slide, *place, {"slide": number, "row": tile // across, "column": tile % across}


def index_tiles(slides: Sequence[Path], index: Path) -> IndexedSource:
    """Write the index of the tiles of slides."""
    return write_index(index, list_tiles(slides), overwrite=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Index slides, and load a batch of their tiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slides", type=Path, nargs="+")
    parser.add_argument("--index", type=Path, default=Path("tiles.index"))
    options = parser.parse_args(arguments)
    done = index_tiles(options.slides, options.index)
    loader = Loader(options.index, min(64, done.samples), order="random", containers=done.outside)
    images, _, rows, columns = next(iter(loader))
    print(
        f"{done.samples} tiles; a batch of {tuple(images.shape)}, the first from row {int(rows[0])}, {int(columns[0])}"
    )


if __name__ == "__main__":
    main()
