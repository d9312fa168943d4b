from __future__ import annotations

import numpy as np

from benchmarks.harness.photos import PhotoSet, list_photos, write_photos
from benchmarks.sparse_file import write_jpeg_beton, write_sparse_beton
from gpubeton.format.dataset import open_dataset


def test_a_sparse_file_is_valid_for_any_order_of_its_table(tmp_path):
    write_sparse_beton(tmp_path / "a.beton", 2500, 100_000)
    write_sparse_beton(tmp_path / "b.beton", 2500, 100_000, chunk=100)
    in_order, mixed = open_dataset(tmp_path / "a.beton"), open_dataset(tmp_path / "b.beton")
    assert in_order.num_samples == 2500
    assert np.array_equal(in_order.metadata, mixed.metadata)
    assert (tmp_path / "a.beton").read_bytes()[-24 * 2500 :] != (tmp_path / "b.beton").read_bytes()[-24 * 2500 :]
    assert (tmp_path / "a.beton").stat().st_blocks * 512 < 1 << 20


def test_the_images_of_a_jpeg_file_are_the_given_ones_again_and_again(tmp_path):
    write_photos(tmp_path / "photos", PhotoSet(5))
    contents = [path.read_bytes() for path, _ in list_photos(tmp_path / "photos")]
    path = tmp_path / "large.beton"
    write_jpeg_beton(path, 13, contents)
    stored = path.read_bytes()
    regions = open_dataset(path).regions("image")
    for number, (offset, size) in enumerate(zip(regions.offset.tolist(), regions.size.tolist(), strict=True)):
        assert stored[offset : offset + size] == contents[number % 5]
