"""Files that are replaced or written to while a loader reads them: never a label of one and pixels of another."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from gpubeton.errors import StorageError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import SimpleRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from tests.small_files import write

LEVELS = range(40)


def write_levels(path, levels):
    """Write a file of samples that are each one level of gray, with it as their label; all such files have one size."""
    fields = {"image": RGBImageField(write_mode="raw"), "label": IntField()}
    return write(path, fields, [(np.full((16, 16, 3), level, np.uint8), level) for level in levels])


def make(path, **arguments):
    pipelines = {"image": [SimpleRGBImageDecoder(), ToTensor()]}
    return Loader(path, 8, **{"num_workers": 1, "pipelines": pipelines, **arguments})


def labels(batches):
    """Labels of all samples, each compared with the pixels."""
    results = []
    for images, batch_labels in batches:
        assert images[:, 0, 0, 0].tolist() == batch_labels[:, 0].tolist()
        results += batch_labels[:, 0].tolist()
    return results


@pytest.fixture(params=[True, False], ids=["mapped", "read"])
def os_cache(request):
    return request.param


@pytest.mark.parametrize("num_epochs", [0, 1])
def test_the_file_that_was_opened_is_read_to_the_end_though_another_takes_over_its_name(tmp_path, os_cache, num_epochs):
    path = write_levels(tmp_path / "levels.beton", LEVELS)
    loader = make(path, os_cache=os_cache)
    for _ in range(num_epochs):
        labels(loader)
    size = path.stat().st_size
    write_levels(path, LEVELS[::-1])
    assert path.stat().st_size == size
    assert labels(loader) == list(LEVELS)
    assert labels(make(path, os_cache=os_cache)) == list(LEVELS[::-1])


def test_files_that_are_read_are_read_in_random_order_and_mapped_ones_as_the_system_likes(
    tmp_path, os_cache, monkeypatch
):
    path = write_levels(tmp_path / "levels.beton", LEVELS)
    advised, advise = [], os.posix_fadvise
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: advised.append(arguments[-1]) or advise(*arguments))
    assert labels(make(path, os_cache=os_cache)) == list(LEVELS)
    assert (os.POSIX_FADV_RANDOM in advised) is not os_cache


def test_a_closed_loader_maps_no_file_and_has_none_open(tmp_path, os_cache):
    path = write_levels(tmp_path / "levels.beton", LEVELS)
    loader = make(path, os_cache=os_cache)
    labels(loader)
    loader.close()
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert str(path) not in map(os.path.realpath, Path("/proc/self/fd").iterdir())


def test_a_file_that_was_written_to_in_place_is_refused_by_the_next_epoch(tmp_path, os_cache):
    path = write_levels(tmp_path / "levels.beton", LEVELS)
    other = write_levels(tmp_path / "other.beton", LEVELS[::-1])
    os.utime(path, ns=(0, 1_500_000_000))
    loader = make(path, os_cache=os_cache)
    labels(loader)
    path.write_bytes(other.read_bytes())
    with pytest.raises(StorageError, match=r"levels\.beton: .* 1\.500"):
        iter(loader)


def test_of_more_files_than_are_kept_open_a_replaced_one_is_right_or_named(tmp_path, os_cache):
    first = write_levels(tmp_path / "0.beton", LEVELS)
    paths = [first, *(shutil.copy(first, tmp_path / f"{number}.beton") for number in range(1, 66))]
    loader = make(paths, os_cache=os_cache)
    labels(loader)
    write_levels(first, LEVELS[::-1])
    if os_cache:
        assert labels(loader) == list(LEVELS) * 66
    else:
        with pytest.raises(StorageError, match=r"0.beton: another file"):
            labels(loader)


def test_the_notes_of_a_replaced_file_are_refused(tmp_path):
    path = write_levels(tmp_path / "levels.beton", LEVELS)
    reader = make(path).reader
    write_levels(path, LEVELS)
    with pytest.raises(StorageError, match=r"levels\.beton: another"):
        _ = reader.checksums


def test_a_filtered_loader_is_not_made_of_a_file_that_was_replaced(tmp_path):
    path = write_levels(tmp_path / "levels.beton", LEVELS)
    loader = make(path)
    replaced = []

    def condition(label):
        if not replaced:
            replaced.append(write_levels(path, LEVELS[::-1]))
        return label < 10

    with pytest.raises(StorageError, match=r"levels\.beton: another"):
        loader.filter("label", condition)


def test_a_state_that_an_earlier_version_saved_is_loaded(tmp_path):
    path = write_levels(tmp_path / "levels.beton", LEVELS)
    saved = {
        "version": 1, "epoch": 3, "batch": 2, "seed": 1, "file": "f98774917d918fb9d8a2e7f2e8d0ad47", "num_samples": 40,
        "indices": "40 samples, 974986b10f3296a2", "order": "gpubeton.traversal_order.sequential.Sequential",
        "batch_size": 8, "drop_last": True, "world_size": 1,
    }  # fmt: skip
    loader = make(path, seed=1)
    loader.load_state_dict(saved)
    assert labels(loader) == list(LEVELS)[16:]
