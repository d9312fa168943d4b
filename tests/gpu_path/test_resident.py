"""Images that stay in the memory of the GPU: the same batches, and only the first epoch copies them."""

from __future__ import annotations

import ctypes
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest

from gpubeton._engine.storage import MappedStorage
from gpubeton.dataset import index_images
from gpubeton.errors import BadImageError, DeviceError, OptionError, StorageError
from gpubeton.format.layout import ENTRY_DTYPE
from gpubeton.loader import GpuOptions, Loader
from gpubeton.loader.resident_images import load_resident
from tests.cpu.pictures import jpeg, photo, pillow_jpeg
from tests.gpu_path.gpu_room import JpegReader, probe_jpegs
from tests.gpu_path.image_samples import ELABORATE, RAW, assert_same, epochs, stored
from tests.gpu_path.test_entry_decoder import indexed
from tests.gpu_path.test_gpu_loader import GEOMETRY, VIEWS, crop, normalize
from tests.simulator.device import DEVICE, SimulatedDevice

# Large enough that a piece of a scan is found again, if it is copied.
JPEGS = [stored(jpeg(photo(60 + 3 * i, 90 - 2 * i, i), sampling="4:2:0", quality=70 + i)) for i in range(14)]
RESTARTED = stored(pillow_jpeg(photo(64, 70, 20), optimize=True, restart_marker_blocks=2))
IMAGES = [*JPEGS[:9], *ELABORATE, RAW[5], RESTARTED, *JPEGS[9:]]
DECODED = [*range(9), *range(13, 19)]  # by our decoder

PIPELINE = [crop((20, 24), "bilinear"), *GEOMETRY, normalize(np.float16), *VIEWS]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return indexed(tmp_path_factory.mktemp("resident") / "images.beton", IMAGES)


def loader_of(path, resident=True, *, device="cuda:0", on_progress=None, **arguments):
    """A loader whose images are resident by default."""
    options = GpuOptions(resident=resident, on_progress=on_progress)
    usual = {"num_workers": 1, "drop_last": False, "seed": 3, "decoder": "entries" if device != "cpu" else "auto"}
    arguments = {**usual, "order": "random", "gpu_options": options, **arguments}
    return Loader(path, 5, pipelines={"image": PIPELINE}, device=device, **arguments)


def expected(path, count=1, **arguments):
    return epochs(loader_of(path, device="cpu", **arguments), count)


@pytest.fixture
def copied(monkeypatch):
    """The bytes of every copy to or from a device."""
    seen, copy = [], SimulatedDevice.copy

    def recording(self, target, source, nbytes, stream):
        seen.append(ctypes.string_at(source, nbytes))
        copy(self, target, source, nbytes, stream)

    monkeypatch.setattr(SimulatedDevice, "copy", recording)
    return seen


def crossed(copied):
    """Of which images of our decoder a piece was among the copied bytes: a crop does not need all of them."""
    everything = b"".join(copied)
    pieces = {number: range(IMAGES[number].data.index(b"\xff\xda") + 14, len(IMAGES[number].data) - 40, 40)
              for number in DECODED}  # fmt: skip
    return [image for image in DECODED if any(IMAGES[image].data[at : at + 40] in everything for at in pieces[image])]


def test_after_the_first_epoch_no_image_is_read_or_copied(gpus, path, copied, monkeypatch):
    loader = loader_of(path)
    results = [list(loader)]
    assert crossed(copied) == DECODED
    copied.clear()
    fetch, probed, fetched = MappedStorage.fetch, [], []
    monkeypatch.setattr(JpegReader, "read", None)
    monkeypatch.setattr(
        "gpubeton._engine.engine.probe_jpegs",
        lambda at, size, out: probed.extend(at) or probe_jpegs(at, size, out),
    )
    monkeypatch.setattr(
        MappedStorage, "fetch", lambda value, at, size, *which: fetched.extend(size) or fetch(value, at, size, *which)
    )
    results += [list(loader) for _ in range(2)]
    monkeypatch.undo()
    assert not crossed(copied)
    assert np.count_nonzero(fetched) == 2 * (len(IMAGES) - len(DECODED))
    assert len(probed) == 2 * len(ELABORATE)
    loader.close()
    assert_same([batch for epoch in results for batch in epoch], expected(path, 3))


def test_images_that_are_not_resident_are_copied(gpus, path, copied):
    """What the test above counts."""
    loader = loader_of(path, resident=False)
    for _ in range(2):
        copied.clear()
        batches = list(loader)
        assert crossed(copied) == DECODED
    loader.close()
    assert_same(batches, expected(path, 2)[-len(batches) :])


def test_closing_frees_the_memory_and_loaders_of_one_file_share_it(gpus, path, faults):
    before = faults.live_memory(DEVICE)
    first, second, seen = loader_of(path), loader_of(path, on_progress=lambda *now: seen.append(now)), []
    iterator = iter(first)
    next(iterator)
    content = first.gpu.resident["image"]
    assert content.bytes_.nbytes == sum(len(IMAGES[number].data) for number in (*range(12), *range(13, 19)))
    batches = list(second)
    assert second.gpu.resident["image"] is content
    assert not seen
    del content
    first.close()
    assert second.gpu.resident
    assert_same(batches + list(second), expected(path, 2))
    second.close()
    assert faults.live_memory(DEVICE) == before
    del iterator


def test_only_the_samples_of_the_loader_are_copied(gpus, path, copied):
    seen = []
    loader = loader_of(path, indices=[3, 0, 14, 3, 9], on_progress=lambda *now: seen.append(now))
    batches = list(loader)
    assert crossed(copied) == [0, 3, 14]
    assert seen[-1] == (4, 4)
    loader.indices = [5, 3]
    batches += list(loader)
    assert loader.gpu.resident["image"].holds(np.arange(7)).tolist() == [number in (3, 5) for number in range(7)]
    copied.clear()
    batches += list(loader)
    assert not crossed(copied)
    loader.close()
    cpu = loader_of(path, device="cpu", indices=[3, 0, 14, 3, 9])
    expected = list(cpu)
    cpu.indices = [5, 3]
    assert_same(batches, expected + list(cpu) + list(cpu))


@pytest.mark.parametrize("piece", [1, 3000, 20_000])
def test_many_pieces(gpus, path, faults, piece):
    faults.slow_down(2000)
    loader = loader_of(path, "auto")
    jpegs, files = loader._resources.resident._jpegs["image"], loader._resources._mapped
    device, done = loader.gpu.device, []
    resident = load_resident(device, files, piece, jpegs, done.append, piece_nbytes=piece)
    assert done[-1] == len(jpegs.samples)
    for number in DECODED:
        data = IMAGES[number].data
        assert ctypes.string_at(int(resident.address[number]), len(data)) == data
    points = ctypes.string_at(resident.entries.address, resident.entries.nbytes)
    starts = np.frombuffer(points, ENTRY_DTYPE)["bit"]
    assert np.array_equal(starts, resident.starts.view("<u4").reshape(-1))
    loader.gpu.resident = {"image": resident}
    assert_same(epochs(loader), expected(path))


def test_resident_header_data_equal_the_headers(gpus, path):
    loader = loader_of(path)
    iter(loader).close()
    resident, files, reader = loader.gpu.resident["image"], loader._resources._mapped, JpegReader()
    (source,) = [source for source in loader.plan().sources if source.name == "image"]
    for plan in loader.plan():
        job = plan.images["image"]
        rows = np.flatnonzero(resident.holds(job.samples))
        samples, regions = job.samples[rows], source.regions[0]
        sides, points = (job.height[rows], job.width[rows]), source.entry_points.of(samples)[:3]
        address = files.address(regions.offset[samples])
        expected = reader.read(address, regions.size[samples], *sides, *points, job.draws[rows])
        result = resident.headers.read(samples, job.draws[rows], reader)
        assert np.array_equal(result.rows, expected.rows)
        assert np.array_equal(result.quantization, expected.quantization)
        assert np.array_equal(result.tables[result.table_of], expected.tables[expected.table_of])
    loader.close()


def test_several_files(gpus, path, tmp_path, copied):
    other = indexed(tmp_path / "other.beton", IMAGES[:7])
    loader = loader_of([path, other])
    batches = list(loader)
    copied.clear()
    batches += list(loader)
    loader.close()
    assert not crossed(copied)
    assert_same(batches, expected([path, other], 2))


def test_too_little_memory(gpus, path, faults):
    needed = sum(len(image.data) for image in IMAGES)
    faults.leave_memory(12 * needed)
    loader = loader_of(path, "auto")
    assert "resident  no: the images and their entry points need" in explained(loader)
    loader.close()
    faults.leave_memory(needed // 2)
    with pytest.raises(DeviceError, match=r"need \d+ bytes, and may take (\d+) of the \1 that are free on Sim"):
        loader_of(path)


def test_memory_that_has_gone_when_the_first_epoch_begins(gpus, path, faults):
    loaders = loader_of(path, "auto"), loader_of(path)
    assert "stay in the GPU's memory from the first epoch on (resident='auto')" in explained(loaders[0])
    faults.leave_memory(1000)
    with pytest.raises(DeviceError, match="resident=True"):
        iter(loaders[1])
    with pytest.warns(UserWarning, match="do not stay in the GPU's memory"):
        loaders[0]._resources.resident.load()
    faults.leave_memory(1 << 28)
    loaders[1].close()
    assert_same(epochs(loaders[0]), expected(path))


def explained(loader):
    with redirect_stdout(StringIO()) as result:
        loader.explain()
    return result.getvalue()


@pytest.mark.parametrize("policy", ["raise", "skip", "replace"])
def test_damaged_images(gpus, tmp_path, policy):
    """A damaged image is found by the kernel, then by the CPU, which reads the file's bytes."""
    result = indexed(tmp_path / "images.beton", IMAGES)
    content = bytearray(result.read_bytes())
    at = content.index(IMAGES[4].data) + len(IMAGES[4].data)
    content[at - 60 : at - 10] = bytes(50)  # not what the seal covers
    result.write_bytes(content)
    loader = loader_of(result, on_error=policy, order="sequential", checksums=False)
    if policy == "raise":
        with pytest.raises(BadImageError, match="sample 4"):
            list(loader)
        loader.close()
        return
    results = [batch for _ in range(2) for batch in loader]
    assert loader.gpu.resident["image"].holds(np.array([4]))
    loader.close()
    assert_same(results, expected(result, 2, on_error=policy, order="sequential", checksums=False))


def test_an_image_damaged_in_the_memory_of_the_gpu_is_made_from_the_file(gpus, path):
    loader = loader_of(path)
    batches = list(loader)
    resident = loader.gpu.resident["image"]
    for number in (0, 13):
        ctypes.memset(int(resident.address[number]) + 640, 0, 50)
    batches += list(loader)
    assert loader.gpu._free[0].refused == {("image", 0), ("image", 13)}
    loader.close()
    assert_same(batches, expected(path, 2))


def test_a_file_that_was_replaced(gpus, path, tmp_path):
    result = tmp_path / "images.beton"
    result.write_bytes(path.read_bytes())
    index_images(result)
    loader = loader_of(result)
    list(loader)
    with result.open("r+b") as file:
        file.truncate(result.stat().st_size - 1)
    with pytest.raises(StorageError):
        iter(loader)
    loader.close()


def test_without_entry_points_nothing_is_kept(gpus, tmp_path):
    plain = indexed(tmp_path / "plain.beton", JPEGS)
    plain.with_name("plain.beton.index").unlink()
    loader = loader_of(plain, "auto")
    assert "resident  no: no image has entry points" in explained(loader)
    loader.close()
    with pytest.raises(DeviceError, match="gpubeton index"):
        loader_of(plain)


def test_resident_images_without_their_requirements_are_refused(gpus, path):
    with pytest.raises(OptionError, match="resident is 'yes'"):
        GpuOptions(resident="yes")
    for arguments in ({"os_cache": False}, {"decoder": "nvjpeg"}):
        with pytest.raises(DeviceError, match="resident=True"):
            loader_of(path, **arguments)
