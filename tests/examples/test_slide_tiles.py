from __future__ import annotations

import io
import struct

import numpy as np
import pytest
from PIL import Image

from examples.slide_tiles import index_tiles, main
from gpubeton import Loader
from tests.small_files import picture

SIDE = 32


def write_slide(path, tiles, across, *, is_big, has_tables=False):
    """Write a tiled TIFF whose tiles are JPEG files."""
    word, size = ("Q", 8) if is_big else ("I", 4)
    kind = 16 if is_big else 4
    head = struct.pack("<2sHHHQ", b"II", 43, 8, 0, 0) if is_big else struct.pack("<2sHI", b"II", 42, 0)
    body, offsets = bytearray(head), []
    for tile in tiles:
        offsets.append(len(body))
        body += tile
    arrays = {324: offsets, 325: [len(tile) for tile in tiles]}
    places = {}
    for tag, numbers in arrays.items():
        places[tag] = len(body)
        body += struct.pack(f"<{len(numbers)}{word}", *numbers)
    start = len(body)
    tags = {256: across * SIDE, 257: len(tiles) // across * SIDE, 259: 7, 322: SIDE, 323: SIDE, **arrays}
    if has_tables:
        tags[347] = 7
    body += struct.pack("<Q" if is_big else "<H", len(tags))
    for tag, value in tags.items():
        count, entry = (len(value), places[tag]) if isinstance(value, list) else (1, value)
        body += struct.pack(f"<HH{word}{word}", tag, kind, count, entry)
    body += bytes(size)
    struct.pack_into(f"<{word}", body, size, start)
    path.write_bytes(body)


def tile(number):
    buffer = io.BytesIO()
    Image.fromarray(picture(number, SIDE, SIDE)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.mark.parametrize("is_big", [False, True])
def test_tiles_are_samples_with_their_places(tmp_path, is_big):
    slides = [tmp_path / "a.tif", tmp_path / "b.tif"]
    tiles = [tile(number) for number in range(12)]
    write_slide(slides[0], tiles[:6], 3, is_big=is_big)
    write_slide(slides[1], tiles[6:], 2, is_big=is_big)
    done = index_tiles(slides, tmp_path / "tiles.index")
    assert (done.samples, done.containers, done.indexed, done.outside) == (12, 2, 12, [])
    images, slide, row, column = next(iter(Loader(tmp_path / "tiles.index", 12, num_workers=1)))
    assert slide[:, 0].tolist() == [0] * 6 + [1] * 6
    assert row[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 2, 2]
    assert column[:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, 1]
    for number, content in enumerate(tiles):
        with Image.open(io.BytesIO(content)) as image:
            assert np.abs(np.asarray(image).astype(int) - images[number].numpy()).max() <= 2


def test_the_example_runs_and_refuses_shared_tables(tmp_path, capsys):
    write_slide(tmp_path / "a.tif", [tile(number) for number in range(4)], 2, is_big=False)
    main([str(tmp_path / "a.tif"), "--index", str(tmp_path / "tiles.index")])
    assert "4 tiles; a batch of (4, 32, 32, 3)" in capsys.readouterr().out
    write_slide(tmp_path / "b.tif", [tile(1)], 1, is_big=False, has_tables=True)
    with pytest.raises(SystemExit, match="tables that they share"):
        main([str(tmp_path / "b.tif")])
