"""The steady state: objects are reused, and nothing is allocated while batches follow each other."""

from __future__ import annotations

import re

import numpy as np
import pytest

from gpubeton._engine import engine as engine_module
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import ColorJitter, NormalizeImage, ToTensor
from tests.cpu.pictures import jpeg, photo, pillow_jpeg
from tests.gpu_path.gpu_room import ALIGNMENT, State
from tests.gpu_path.image_samples import IMAGE_SAMPLES, gpu_loader, raw, stored, write_images
from tests.simulator.device import SimulatedDevice, SimulatedMemory

PIPELINE = [
    RandomResizedCropRGBImageDecoder((12, 10)),
    NormalizeImage((120, 110, 100), (60, 50, 40), np.float16),
    ToTensor(),
]
SIDE = 64
INITIALIZE, CREATE, OPEN = "nvjpegDecodeBatchedInitialize", "nvjpegJpegStateCreate", "nvjpegCreateEx"
STEP = 1 << 20


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """96 JPEGs of one size."""
    images = [stored(jpeg(photo(SIDE, SIDE, number))) for number in range(96)]
    return write_images(tmp_path_factory.mktemp("photos") / "photos.beton", images)


@pytest.fixture(scope="module")
def sample_file(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("samples") / "samples.beton", IMAGE_SAMPLES * 2)


@pytest.fixture
def created(monkeypatch):
    """The created objects: names, and bytes of memory."""
    calls = []
    for name in ("allocate", "allocate_pinned", "make_stream"):
        original = getattr(SimulatedDevice, name)

        def noting(device, *arguments, _name=name, _original=original, **keywords):
            calls.append((_name, *arguments))
            return _original(device, *arguments, **keywords)

        monkeypatch.setattr(SimulatedDevice, name, noting)
    return calls


@pytest.mark.parametrize("os_cache", [True, False])
@pytest.mark.parametrize("file", ["photos", "sample_file"])
def test_after_the_first_batches_nothing_is_allocated(gpus, faults, created, request, file, os_cache):
    faults.slow_down(500)
    loader = gpu_loader(request.getfixturevalue(file), PIPELINE, os_cache=os_cache, order="random")
    list(loader)
    for _ in range(3):
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        states = faults.count(CREATE)
        created.clear()
        list(batches)
        assert created == []
        assert faults.count(CREATE) == states
        assert faults.notes("grow") == []
    loader.close()


def test_an_epoch_allocates_sends_and_frees_no_constants(gpus, faults, created, photos, monkeypatch):
    """Freeing memory waits for the whole device, training included."""
    freed, free = [], SimulatedMemory.free
    monkeypatch.setattr(SimulatedMemory, "free", lambda memory: (freed.append(memory), free(memory)))
    loader = gpu_loader(photos, PIPELINE)
    list(loader)
    created.clear()
    handles = faults.count(OPEN)
    list(loader)
    assert (created, freed) == ([], [])
    assert faults.count(OPEN) == handles
    loader.close()


def test_loaders_use_the_streams_of_those_before_them(gpus, photos):
    """Torch keeps memory for every stream."""
    for _ in range(4):
        loader = gpu_loader(photos, PIPELINE)
        list(loader)
        loader.close()
    assert len(gpus[0].streams) == 5
    assert len(gpus[0].idle) == 5
    two = [gpu_loader(photos, PIPELINE) for _ in range(2)]
    for loader in two:
        list(loader)
    assert len(gpus[0].streams) == 10
    for loader in two:
        loader.close()


def test_the_engines_memory_ahead_is_for_the_largest_jpeg(gpus, faults, tmp_path):
    sizes = [(60, 20), (30, 50), (10, 90)]
    images = [stored(jpeg(photo(*size))) for size in sizes]
    images.append(raw(photo(300, 300)))
    path = write_images(tmp_path / "sizes.beton", images)
    asked, preallocate = [], State.preallocate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(State, "preallocate", lambda value, *size: (asked.append(size[1:]), preallocate(value, *size)))
        list(loader := gpu_loader(path, PIPELINE))
    loader.close()
    assert asked == [(50, 30)] * 2


def test_a_batch_makes_few_calls_and_none_for_a_single_image(gpus, faults, photos):
    loader = gpu_loader(photos, PIPELINE, batch_size=96)
    list(loader)
    faults.forget_notes()
    list(loader)
    calls = [note.name for note in faults.notes("call")]
    loader.close()
    assert calls.count("nvjpegDecodeBatched") == 2  # of 56 images at most
    assert set(calls) <= {"nvjpegDecodeBatched", INITIALIZE}


def test_memory_of_a_slot_is_that_of_the_largest_batch_and_an_eighth(gpus, photos):
    loader = gpu_loader(photos, PIPELINE, batch_size=32)
    list(loader)
    (resources,) = loader.gpu._free
    pixels = 32 * SIDE * 3 * SIDE
    compressed = max(sum(len(jpeg(photo(SIDE, SIDE, n))) + 16 for n in range(i, i + 32)) for i in (0, 32, 64))
    for slot in resources.slots:
        assert pixels <= slot.arena.nbytes <= (pixels + 2 * ALIGNMENT) * 9 / 8 + STEP
        assert compressed <= slot.staging.nbytes <= (compressed + ALIGNMENT) * 9 / 8 + STEP
        assert slot.resampled.nbytes <= STEP
    loader.close()


@pytest.mark.parametrize(("batches_ahead", "slots"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_no_more_slots_than_batches_in_work(gpus, photos, batches_ahead, slots):
    loader = gpu_loader(photos, PIPELINE, batches_ahead=batches_ahead)
    list(loader)
    assert len(loader.gpu._free[0].slots) == slots
    loader.close()


@pytest.mark.parametrize("file", ["photos", "sample_file"])
def test_bytes_in_pinned_memory_are_not_copied_once_more(gpus, request, monkeypatch, file):
    """They were read right to where the decoders, and the kernel that gathers crops, find them."""
    copied = []
    for name in ("pack_regions", "pack_crops"):
        original = getattr(engine_module, name)

        def noting(*arguments, _name=name, _original=original):
            copied.append(_name)
            _original(*arguments)

        monkeypatch.setattr(engine_module, name, noting)
    path = request.getfixturevalue(file)
    for os_cache, names in (
        (False, set()),
        (True, {"pack_regions"} | ({"pack_crops"} if file == "sample_file" else set())),
    ):
        loader = gpu_loader(path, PIPELINE, os_cache=os_cache)
        list(loader)
        loader.close()
        assert set(copied) == names


LARGE, SMALL = raw(photo(700, 600)), stored(pillow_jpeg(photo(20, 20), "CMYK"))
CASES = {
    "two views of raw images": ([LARGE] * 16, [CenterCropRGBImageDecoder((9, 9), 1.0), ToTensor()], True),
    "enlarged on the CPU": ([SMALL] * 16, [CenterCropRGBImageDecoder((300, 400), 1.0), ToTensor()], False),
    "other colors": ([LARGE] * 16, [CenterCropRGBImageDecoder((400, 900), 0.5), ColorJitter(0.4), ToTensor()], False),
    "many taps": ([LARGE] * 16, [CenterCropRGBImageDecoder((4, 600), 1.0, "bicubic"), ToTensor()], True),
}


@pytest.mark.parametrize("name", CASES)
def test_images_under_way_take_no_more_of_the_gpu_than_explain_prints(gpus, tmp_path, capsys, name):
    images, pipeline, has_views = CASES[name]
    path = write_images(tmp_path / "images.beton", images)
    more = {"view": PipelineSpec("image", transforms=pipeline)} if has_views else {}
    loader = gpu_loader(path, pipeline, raw="bytes", more=more)
    loader.explain()
    printed = re.search(r"images under way: at most (\d+) MiB", capsys.readouterr().out)
    for _ in loader:
        pass
    (resources,) = loader.gpu._free
    nbytes = sum(buffer.nbytes for slot in resources.slots for buffer in (slot.arena, slot.taps, slot.resampled))
    assert 0.2 * int(printed[1]) * STEP < nbytes <= int(printed[1]) * STEP
    loader.close()
