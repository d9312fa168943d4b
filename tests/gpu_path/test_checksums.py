"""Values whose bytes differ from their checksum: each is reported, for every storage and every decoder."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch

from gpubeton.dataset import index_images, index_shards
from gpubeton.errors import BadImageError
from gpubeton.fields import BytesField, IntField, JSONField, NDArrayField, RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.format import open_dataset
from gpubeton.loader import GpuOptions, Loader
from gpubeton.transforms import ToTensor
from gpubeton.writer import DatasetWriter
from tests.cpu.pictures import jpeg, photo

COUNT = 30
FIELDS = {"image": RGBImageField("jpg"), "label": IntField()}


def write(path, fields, samples, **options):
    DatasetWriter(path, fields, 1 << 21, 1, progress=False, **options).from_indexed_dataset(samples)
    return path


def images():
    """JPEGs of more than 9 KiB."""
    return [(jpeg(photo(200, 220, number), 92), number) for number in range(COUNT)]


def change(content, sample, start, size):
    """Damage some bytes of a region: zeros, a stretch repeated after itself, or two stretches swapped."""
    kind, length = divmod(sample // 2 % 6, 2)
    length = (512, 4096)[length]
    first = start + int(np.random.default_rng(sample).integers(700, size - 2 * length))
    first_part, second_part = content[first : first + length], content[first + length : first + 2 * length]
    if kind == 0:
        content[first : first + length] = bytes(length)
    elif kind == 1:
        content[first + length : first + 2 * length] = first_part
    else:
        content[first : first + 2 * length] = second_part + first_part


def damage(path, samples):
    """Damage the images of some samples; as a failed copy, it leaves all sizes."""
    content, regions = bytearray(path.read_bytes()), open_dataset(path).regions("image")
    for sample in samples:
        change(content, sample, int(regions.offset[sample]), int(regions.size[sample]))
    path.write_bytes(content)


@pytest.fixture(scope="module", params=["notes", "index", "folder"])
def files(request, tmp_path_factory):
    """The same images without and with damage; their checksums are in the file, beside it, or in that of a folder."""
    folder = tmp_path_factory.mktemp(request.param)
    notes = {"notes": {}, "index": True} if request.param != "index" else {}
    paths = []
    for name in ("good", "bad"):
        (folder / name).mkdir()
        paths.append(write(folder / name / "a.beton", FIELDS, images(), **notes))
        if request.param == "index":
            index_images(paths[-1], num_workers=1)
    damage(paths[1], range(0, COUNT, 2))
    if request.param == "folder":
        for path in paths:
            index_shards(path.parent)
    return [path.parent if request.param == "folder" else path for path in paths]


BAD, GOOD = list(range(0, COUNT, 2)), list(range(1, COUNT, 2))
CROP = [RandomResizedCropRGBImageDecoder((16, 16), scale=(0.01, 0.05)), ToTensor()]


def place(storage, path, fault_server, tmp_path):
    """Where the file is read, and how."""
    if storage in ("mapped", "read"):
        return path, {"os_cache": storage == "mapped"}
    folder = path if path.is_dir() else path.parent
    for part in folder.iterdir():
        fault_server.objects[part.name] = part.read_bytes()
    cache = {"cache_dir": tmp_path / "cache", "cache_limit": "1 GB"} if storage == "cached" else {}
    return [fault_server.url("a.beton")] if path.is_file() else fault_server.url(""), cache


EXECUTORS = {
    "cpu": {"device": "cpu"},
    "entries": {"device": "cuda:0", "decoder": "entries", "gpu_options": GpuOptions(resident=False)},
    "engines": {"device": "cuda:0", "gpu_options": GpuOptions(routes=("hardware",), resident=False)},
    "resident": {"device": "cuda:0", "decoder": "entries", "gpu_options": GpuOptions(resident="auto")},
}


def loader_of(path, **options):
    usual = {"num_workers": 1, "order": "random", "seed": 1, "drop_last": False, "pipelines": {"image": CROP}}
    return Loader(path, 6, **{**usual, **options})


def by_label(loader, epochs=1):
    """The images of each label, of all batches of some epochs."""
    results = {}
    for _ in range(epochs):
        for crops, labels in loader:
            for crop, label in zip(crops, labels[:, 0].tolist(), strict=True):
                results.setdefault(label, []).append(crop.clone())
    return results


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("storage", ["mapped", "read", "remote", "cached"])
def test_each_damaged_image_is_found_in_random_crops(gpus, files, fault_server, tmp_path, storage, executor, on_error):
    good, bad = files
    if good.is_dir() and executor != "cpu":
        pytest.skip("only the index comes from elsewhere")
    expected = by_label(loader_of(good, device="cpu"))
    path, options = place(storage, bad, fault_server, tmp_path)
    with loader_of(path, on_error=on_error, **options, **EXECUTORS[executor]) as loader:
        if on_error == "raise":
            with pytest.raises(
                BadImageError, match=r"a\.beton: .*sample \d+: image: its \d+ bytes .* expected"
            ) as error:
                list(loader)
            assert set(error.value.samples) <= set(BAD)
            assert "gpubeton index FILE --overwrite" in str(error.value)
            return
        result = by_label(loader)
        assert sorted(sample for _, sample, _ in loader.bad_samples) == BAD
        assert sorted(result) == GOOD
        for label in GOOD if executor != "engines" else ():
            assert any(torch.equal(crop, expected[label][0]) for crop in result[label])
        if on_error == "skip":
            again = by_label(loader)
            assert sorted(again) == GOOD
            assert len(loader.bad_samples) == 2 * len(BAD)


@pytest.mark.parametrize("executor", ["cpu", "entries", "engines", "resident"])
def test_compared_values_are_not_compared_again(gpus, tmp_path, executor):
    path = write(tmp_path / "a.beton", FIELDS, images(), notes={})
    size = int(open_dataset(path).regions("image").size.sum())
    with loader_of(path, **EXECUTORS[executor]) as first, loader_of(path, **EXECUTORS[executor]) as two:
        epochs = [first, first, two] if executor != "resident" else [first]
        compared = [(list(loader), loader.stats().verified_bytes)[1] for loader in epochs]
        assert compared == [size, 0, 0] if executor != "resident" else compared[0] < size
    content = bytearray(path.read_bytes())
    content[int(open_dataset(path).regions("image").offset[7]) + 5000] ^= 1
    path.write_bytes(content)
    with loader_of(path, on_error="skip", **EXECUTORS[executor]) as changed:
        list(changed)
        assert [sample for _, sample, _ in changed.bad_samples] == [7]


def test_bytes_that_come_again_are_compared_again(fault_server, tmp_path):
    path = write(tmp_path / "a.beton", FIELDS, images(), notes={})
    fault_server.objects["a.beton"] = path.read_bytes()
    size = int(open_dataset(path).regions("image").size.sum())
    with loader_of(fault_server.url("a.beton"), device="cpu") as loader:
        assert [(list(loader), loader.stats().verified_bytes)[1] for _ in range(2)] == [size, size]


def test_without_checksums_nothing_is_compared(files):
    with loader_of(files[1], device="cpu", checksums=False, on_error="skip") as loader:
        list(loader)
        assert loader.stats().verified_bytes == 0
        assert not any("CRC-32" in reason for _, _, reason in loader.bad_samples)


def flip_cached(folder, path, sample):
    """Flip bits of an image in the pages of a cache."""
    regions = open_dataset(path).regions("image")
    (data,) = Path(folder).glob("objects/*/data")
    content = bytearray(data.read_bytes())
    content[int(regions.offset[sample]) + 5000] ^= 255
    with data.open("r+b") as file:
        file.write(content)


def test_a_damaged_page_of_the_cache_is_fetched_again(fault_server, tmp_path):
    path = write(tmp_path / "a.beton", FIELDS, images(), notes={})
    fault_server.objects["a.beton"] = path.read_bytes()
    options = {"device": "cpu", "cache_dir": tmp_path / "cache", "cache_limit": "1 GB"}
    expected = by_label(loader_of(path, device="cpu"), 2)
    for _ in range(2):  # while it is filled, and when it is mapped
        with loader_of(fault_server.url("a.beton"), **options) as loader:
            list(loader)
        flip_cached(tmp_path / "cache", path, 9)
        with loader_of(fault_server.url("a.beton"), **options) as loader:
            result = by_label(loader, 2)
            assert loader.bad_samples == []
        assert all(torch.equal(*pair) for label in result for pair in zip(result[label], expected[label], strict=True))
    data = next((tmp_path / "cache").glob("objects/*/data")).read_bytes()
    assert data == path.read_bytes()


@pytest.mark.parametrize("field", ["text", "info", "vector"])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("os_cache", [True, False])
def test_values_of_all_fields_are_compared(tmp_path, field, beside, os_cache):
    fields = {"label": IntField(), "text": BytesField(), "info": JSONField(), "vector": NDArrayField(np.int32, (40,))}
    samples = [
        (number, np.full(50, number, np.uint8), {"number": "x" * number}, np.full(40, number, np.int32))
        for number in range(8)
    ]
    path = write(tmp_path / "a.beton", fields, samples, **({} if beside else {"notes": {}}))
    if beside:
        index_images(path)
    content, regions = bytearray(path.read_bytes()), open_dataset(path).regions(field)
    content[int(regions.offset[5]) + int(regions.size[5]) // 2] ^= 1
    path.write_bytes(content)
    options = {"num_workers": 1, "os_cache": os_cache, "drop_last": False}
    with (
        Loader(path, 4, **options) as loader,
        pytest.raises(BadImageError, match=rf"a\.beton: batch 1 .*sample 5: {field}: its \d+ bytes .* expected"),
    ):
        list(loader)
    for on_error, expected in (("skip", [0, 1, 2, 3, 4, 6, 7]), ("replace", [0, 1, 2, 3, 4, 6, 6, 7])):
        with Loader(path, 4, on_error=on_error, **options) as loader:
            assert [label for labels, *_ in loader for label in labels[:, 0].tolist()] == expected
    with Loader(path, 4, pipelines={field: None}, **options) as loader:
        assert sum(len(labels) for labels, *_ in loader) == 8


def count_in_child(loader, results):
    list(loader)
    results.put(loader.stats().verified_bytes)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_compares_the_remaining_values(tmp_path):
    path = write(tmp_path / "a.beton", FIELDS, images(), notes={})
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    for compared in (False, True):
        loader = loader_of(path, device="cpu")
        if compared:
            list(loader)
        process = context.Process(target=count_in_child, args=(loader, results))
        process.start()
        process.join()
        assert (results.get() == 0) == compared


def test_an_index_of_an_earlier_version_of_a_file_with_checksums_is_not_used(tmp_path):
    path = write(tmp_path / "a.beton", FIELDS, images(), notes={}, index=False)
    index_images(path)
    before = open_dataset(path).allocations
    other = [(jpeg(photo(200, 220, number), 92), number) for number in range(COUNT)]
    sizes = [len(images) for images, _ in other]
    beside = path.with_name("a.beton.index").read_bytes()
    # The same sizes and headers, and other bits in the scan.
    other[3] = (other[3][0][:6000] + bytes([other[3][0][6000] ^ 1]) + other[3][0][6001:], 3)
    write(path, FIELDS, other, notes={}, index=False)
    path.with_name("a.beton.index").write_bytes(beside)
    assert [len(images) for images, _ in other] == sizes
    assert np.array_equal(before, open_dataset(path).allocations)
    with pytest.warns(UserWarning, match="another state"):
        loader_of(path, device="cpu").close()


def test_damaged_checksums_are_reported(tmp_path):
    path = write(tmp_path / "a.beton", FIELDS, images())
    index_images(path)
    beside = path.with_name("a.beton.index")
    content = bytearray(beside.read_bytes())
    content[5] ^= 1
    beside.write_bytes(content)
    with pytest.warns(UserWarning, match=r"a\.beton\.index.*not compared with checksums"):
        loader_of(path, device="cpu").close()
    index_images(path, overwrite=True)
    with loader_of(path, device="cpu") as loader:
        list(loader)
        assert loader.stats().verified_bytes > 0
