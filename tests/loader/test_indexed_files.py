"""Loaders of files with entry points: their reads, and how they treat entry points that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton.dataset import index_images
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.format.dataset import open_dataset
from gpubeton.format.entry_points import open_entry_points
from gpubeton.loader import Loader
from gpubeton.writer import DatasetWriter
from tests.small_files import picture

COUNT = 24
PIPELINES = {"image": [RandomResizedCropRGBImageDecoder((32, 24), scale=(0.05, 0.3))]}


@pytest.fixture
def beton(tmp_path):
    path = tmp_path / "photos.beton"
    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    samples = [(picture(number, 150 + number, 260 - number), number) for number in range(COUNT)]
    DatasetWriter(path, fields, progress=False).from_indexed_dataset(samples)
    return path


def loader_of(path, **options):
    return Loader(path, 7, num_workers=2, seed=3, drop_last=False, pipelines=PIPELINES, device="cpu", **options)


def epoch_of(loader):
    return np.concatenate([batch[0] for batch in loader])


def test_bytes_that_no_crop_needs_may_be_damaged(beton):
    """Entry points are really used: without them the damage above and beside the crops is noticed."""
    index_images(beton)
    expected = epoch_of(loader_of(beton))
    index = open_dataset(beton)
    result, _, _ = open_entry_points(index)
    regions, content = index.regions("image"), bytearray(beton.read_bytes())
    draws = np.concatenate([plan.images["image"].draws for plan in loader_of(beton).plan()])
    damaged = 0
    for number in range(COUNT):
        bits = result["image"].entries["bit"][
            int(result["image"].first[number]) : int(result["image"].first[number + 1])
        ]
        if draws[number, 0] > 40:
            # The end of the first interval; words that the seal covers lie at sixteenths of the scan.
            content[int(regions.offset[number]) + int(bits[1]) // 8 - 2] ^= 0xFF
            damaged += 1
    assert damaged > 5
    beton.write_bytes(content)
    assert np.array_equal(epoch_of(loader_of(beton, checksums=False)), expected)
