from __future__ import annotations

import io
import multiprocessing
import sys
import tarfile
from functools import partial

import numpy as np
import pytest

from gpubeton.errors import NoSamplesError, OptionError, SampleError, WorkerDiedError, WriteError
from gpubeton.fields import BytesField, IntField, JSONField, RGBImageField
from gpubeton.fields.jpeg import decode_rgb
from gpubeton.fields.registry import open_index
from gpubeton.loader import Loader
from gpubeton.writer import DatasetWriter
from tests.cpu.pictures import jpeg, photo

webdataset = pytest.importorskip("webdataset", reason="pip install 'gpubeton[webdataset]'")
pytestmark = [
    # webdataset leaves it to the garbage collector to close shards.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

COUNTS = (7, 0, 5, 11, 1)


def content(number):
    return jpeg(photo(20 + number, 30, number))


def write_shards(folder, counts=COUNTS):
    """Tar files with an image, a class and a description for each sample; classes count on over all of them."""
    paths, number = [], 0
    for shard, count in enumerate(counts):
        paths.append(folder / f"shard-{shard:03}.tar")
        with tarfile.open(paths[-1], "w") as tar:
            for _ in range(count):
                parts = {"jpg": content(number), "cls": str(number).encode(), "json": b'{"number": %d}' % number}
                for suffix, data in parts.items():
                    member = tarfile.TarInfo(f"sample{number:05}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
                number += 1
    return paths


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards"))


def stored(dataset):
    """Files as they are."""
    return dataset.to_tuple("jpg", "cls")


def writer(path, num_workers=1, *, fields=None, **options):
    fields = fields or {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    return DatasetWriter(path, fields, num_workers=num_workers, progress=False, **options)


def stored_images(path):
    index, _ = open_index(path)
    data, regions = path.read_bytes(), index.regions("image")
    bounds = zip(regions.offset.tolist(), regions.size.tolist(), strict=True)
    return [data[start : start + size] for start, size in bounds], index.column("label").tolist()


@pytest.mark.parametrize("num_workers", [1, 2, 9])
@pytest.mark.parametrize("chunksize", [3, 100])
def test_samples_come_in_the_order_of_the_shards_however_many_read_them(tmp_path, shards, num_workers, chunksize):
    path, before = tmp_path / "found.beton", set(multiprocessing.active_children())
    writer(path, num_workers).from_webdataset(shards, stored, chunksize=chunksize)
    images, labels = stored_images(path)
    assert labels == list(range(24))
    assert images == [content(number) for number in range(24)]  # taken over as they are
    assert not set(multiprocessing.active_children()) - before


def test_a_file_from_shards_is_that_of_the_same_samples_in_a_list(tmp_path, shards):
    found, expected = tmp_path / "found.beton", tmp_path / "expected.beton"
    writer(found).from_webdataset(shards, stored, chunksize=4)
    writer(expected).from_indexed_dataset([(content(number), number) for number in range(24)])
    assert found.read_bytes() == expected.read_bytes()


def test_pixels_mappings_and_values_of_any_field_are_written(tmp_path, shards):
    path = tmp_path / "found.beton"
    fields = {"info": JSONField(), "key": BytesField(), "image": RGBImageField(write_mode="raw")}

    def described(dataset):
        return dataset.decode("rgb8").map(
            lambda sample: {"image": sample["jpg"], "info": sample["json"], "key": sample["__key__"].encode()}
        )

    writer(path, 2, fields=fields).from_webdataset(map(str, shards), described)
    ((infos, keys),) = Loader(path, 24, num_workers=1, pipelines={"image": None})
    assert JSONField.unpack(infos) == [{"number": number} for number in range(24)]
    assert bytes(keys[7].tolist()) == b"sample00007"
    index, _ = open_index(path)
    assert index.column("image")["height"].tolist() == list(range(20, 44))
    raw, region = path.read_bytes(), index.regions("image")
    start, size = int(region.offset[7]), int(region.size[7])
    assert np.array_equal(np.frombuffer(raw[start : start + size], np.uint8).reshape(27, 30, 3), decode_rgb(content(7)))


def test_a_pipeline_may_leave_samples_out_and_a_pattern_with_braces_means_all_its_shards(tmp_path, shards):
    path = tmp_path / "found.beton"
    writer(path, 2).from_webdataset(shards, lambda dataset: stored(dataset).select(lambda sample: int(sample[1]) % 2))
    assert stored_images(path)[1] == list(range(1, 24, 2))
    writer(path).from_webdataset(str(shards[0]).replace("000.tar", "{000..002}.tar"), stored)
    assert stored_images(path)[1] == list(range(12))


def test_ranks_and_workers_of_a_training_script_do_not_divide_shards_here(tmp_path, shards, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    path = tmp_path / "found.beton"
    writer(path, 2).from_webdataset(shards, stored)
    assert stored_images(path)[1] == list(range(24))


@pytest.mark.campaign
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_processes_may_be_started_in_other_ways(tmp_path, shards, start_method):
    path = tmp_path / "found.beton"
    writer(path, 2, start_method=start_method).from_webdataset(shards, stored)
    assert stored_images(path)[1] == list(range(24))


def fail_at(wanted, sample):
    if int(sample[1]) == wanted:
        raise ValueError("no such thing")
    return sample


@pytest.mark.parametrize("num_workers", [1, 2])
def test_an_error_of_the_pipeline_names_the_shard_and_the_older_file_stays(tmp_path, shards, num_workers):
    path = tmp_path / "found.beton"
    path.write_bytes(b"older")
    with pytest.raises(WriteError, match=r"shard-003\.tar, sample 2 .*ValueError"):
        writer(path, num_workers).from_webdataset(shards, lambda dataset: stored(dataset).map(partial(fail_at, 14)))
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]


def spoil(wanted, sample):
    return (b"no image", sample[1]) if int(sample[1]) in wanted else sample


@pytest.mark.parametrize("num_workers", [1, 2])
def test_samples_that_cannot_be_encoded_may_be_left_out_and_are_named(tmp_path, shards, num_workers):
    made = writer(tmp_path / "found.beton", num_workers, notes={})
    made.from_webdataset(shards, lambda dataset: stored(dataset).map(partial(spoil, (3, 14))), on_error="skip")
    assert [name for name, _ in made.skipped] == [
        f"{shards[0]}, sample 3 of the shard",
        f"{shards[3]}, sample 2 of the shard",
    ]
    assert stored_images(made.fname)[1] == [number for number in range(sum(COUNTS)) if number not in (3, 14)]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_shard_that_cannot_be_read_further_is_an_error_although_samples_may_be_left_out(
    tmp_path, shards, num_workers
):
    pipeline = Inconstant(tmp_path, 0, OSError("gone"))
    with pytest.raises(SampleError, match=r"shard-003\.tar, sample 4 of the shard: OSError: gone"):
        writer(tmp_path / "found.beton", num_workers).from_webdataset(shards, pipeline, on_error="skip")
    with pytest.raises(OptionError, match="on_error"):
        writer(tmp_path / "found.beton").from_webdataset(shards, stored, on_error="replace")


class Inconstant:
    """A pipeline that gives another number of samples when it is asked again; it notes how often it was in a file."""

    def __init__(self, folder, change, error=None):
        self.folder, self.change, self.error = folder, change, error

    def __call__(self, dataset):
        samples = list(stored(dataset))
        if len(samples) != 11:
            return samples
        noted = self.folder / "asked"
        if not noted.exists():
            noted.touch()
            return samples
        if self.error is not None:
            return self._failing(samples)
        return samples[: self.change] if self.change < 0 else [*samples, *samples[: self.change]]

    def _failing(self, samples):
        yield from samples[:4]
        raise self.error


@pytest.mark.parametrize("num_workers", [1, 2])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (-2, None, "shard-003.tar, sample 9 of the shard: 11 samples were counted, and now there are only 9"),
        (2, None, "shard-003.tar, sample 11 of the shard: there is one more sample than the 11 that were counted"),
        (0, OSError("gone"), "shard-003.tar, sample 4 of the shard: OSError: gone"),
    ],
)
def test_another_number_of_samples_than_counted_is_an_error(tmp_path, shards, num_workers, change, error, message):
    path = tmp_path / "found.beton"
    with pytest.raises(SampleError, match=message):
        writer(path, num_workers).from_webdataset(shards, Inconstant(tmp_path, change, error))
    assert not path.exists()


def die(_sample):
    sys.exit("out of memory, for example")


def test_the_death_of_a_process_is_reported(tmp_path, shards):
    with pytest.raises(WorkerDiedError, match="between two samples"):
        writer(tmp_path / "found.beton", 2).from_webdataset(shards, lambda dataset: stored(dataset).map(die))


def test_without_samples_there_is_no_file(tmp_path, shards):
    path = tmp_path / "found.beton"
    with pytest.raises(NoSamplesError, match="0 shards"):
        writer(path).from_webdataset([], stored)
    with pytest.raises(NoSamplesError, match="0 samples in 1 shards"):
        writer(path).from_webdataset(shards[1:2], stored)
    with pytest.raises(OptionError, match="chunksize is 0"):
        writer(path).from_webdataset(shards, stored, chunksize=0)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "webdataset", None)
    with pytest.raises(WriteError, match=r"webdataset.* pip install .*\[webdataset\]"):
        writer(tmp_path / "found.beton").from_webdataset(["a.tar"], stored)


def test_a_process_reads_each_of_its_shards_twice_and_no_further(tmp_path, shards):
    path = tmp_path / "found.beton"
    seen = []

    def noting(dataset):
        return stored(dataset).map(lambda sample: (seen.append(int(sample[1])), sample)[1])

    writer(path).from_webdataset(shards, noting, chunksize=2)
    assert seen == [*range(24), *range(24)]
