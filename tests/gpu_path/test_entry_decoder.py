"""Our own decoder on the simulated GPU: with entry points or restart markers, the CPU loader's batches to the bit."""

from __future__ import annotations

import threading
from functools import partial
from types import MethodType

import numpy as np
import pytest

from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.gpu import entry_decoder, gpu_executor, gpu_resources
from gpubeton.gpu.entry_decoder import EntryDecoder
from gpubeton.indexing import index_images
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import ColorJitter, Cutout, RandomContrast, RandomHorizontalFlip
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.gpu_path.test_gpu_loader import GEOMETRY, PIPELINES, VIEWS, crop, normalize
from tests.gpu_path.zoo import BASELINE, ZOO, Samples, StoredField, assert_same, epochs, gpu_loader, stored
from tests.simulator.device import SimulatedEvent
from tests.small_files import write

COLORS = {
    "jitter": [crop((20, 24)), ColorJitter(0.4, 0.4, 0.4, 0.1), *GEOMETRY, normalize(np.float16), *VIEWS],
    "contrasts": [crop((9, 31), "antialias"), *GEOMETRY, RandomContrast(0.5, 1.0), RandomContrast(0.5, 1.0), *VIEWS],
}
MIXED = [
    *(stored(jpeg(photo(70 + 5 * i, 150 - 9 * i, i), sampling=SAMPLINGS[i % 5])) for i in range(15)),
    *(stored(pillow_jpeg(photo(60 + i, 77, i), optimize=True)) for i in range(3)),
    *(stored(pillow_jpeg(noise(60 + i, 77, i), restart_marker_blocks=2 + i)) for i in range(3)),
]


def indexed(path, images):
    """A file with stored images and their entry points; its field is a usual one, as others have no entry points."""
    field = RGBImageField()
    field.encode = MethodType(StoredField.encode, field)
    write(path, {"image": field, "number": IntField()}, Samples(images))
    index_images(path)
    return path


def loader_of(path, image, **arguments):
    return gpu_loader(path, image, custom_fields={}, **arguments)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    return indexed(tmp_path_factory.mktemp("zoo") / "zoo.beton", ZOO)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    return indexed(tmp_path_factory.mktemp("mixed") / "mixed.beton", MIXED)


@pytest.fixture
def made(monkeypatch):
    """The number of images in each launch of the decoder."""
    counts, launch = [], entry_decoder.launch_jpegs

    def noting(*others, count, **named):
        counts.append(count)
        launch(*others, count=count, **named)

    monkeypatch.setattr(entry_decoder, "launch_jpegs", noting)
    return counts


@pytest.mark.parametrize("name", PIPELINES)
def test_every_kind_of_image_is_the_cpus_to_the_bit(gpus, zoo, made, name):
    found = epochs(loader_of(zoo, PIPELINES[name], decoder="own"), 2)
    assert sum(made) == 2 * len(BASELINE)
    assert_same(found, epochs(loader_of(zoo, PIPELINES[name], device="cpu"), 2))


@pytest.mark.parametrize("name", COLORS)
@pytest.mark.parametrize("changes", [{}, {"os_cache": False}, {"batch_size": 5, "order": "random"}])
def test_colors_are_the_cpus_to_the_bit(gpus, zoo, made, name, changes):
    found = epochs(loader_of(zoo, COLORS[name], decoder="own", **changes), 2)
    assert sum(made) == 2 * len(BASELINE)
    assert_same(found, epochs(loader_of(zoo, COLORS[name], device="cpu", **changes), 2))


def test_batches_of_this_decoder_alone_need_no_canary(gpus, mixed, made):
    found = epochs(loader_of(mixed, PIPELINES["half"], decoder="own"), 2)
    assert sum(made) == 2 * len(MIXED)
    assert_same(found, epochs(loader_of(mixed, PIPELINES["half"], device="cpu"), 2))


def test_if_no_lane_is_allowed_the_cpu_decodes(gpus, mixed, made):
    found = epochs(loader_of(mixed, PIPELINES["half"], decoder="own", lanes=()))
    assert not made
    assert_same(found, epochs(loader_of(mixed, PIPELINES["half"], device="cpu")))


@pytest.mark.parametrize("decoder", ["own", "nvjpeg"])
def test_only_batches_with_images_of_the_engines_wait_on_the_host(gpus, mixed, monkeypatch, decoder):
    waiting, synchronize = set(), SimulatedEvent.synchronize

    def noting(event):
        waiting.add(threading.current_thread().name)
        synchronize(event)

    monkeypatch.setattr(SimulatedEvent, "synchronize", noting)
    epochs(loader_of(mixed, PIPELINES["half"], decoder=decoder))
    assert ("gpubeton-feeder" in waiting) == (decoder == "nvjpeg")


def test_images_are_not_looked_up_while_none_was_refused(gpus, mixed, made, monkeypatch):
    monkeypatch.setattr(gpu_executor, "_identity", None)
    epochs(loader_of(mixed, PIPELINES["half"], decoder="own"))
    assert sum(made) == len(MIXED)


def test_two_outputs_of_one_field_have_crops_of_their_own(gpus, mixed, made):
    image = [crop((20, 24)), ColorJitter(0.2), Cutout(3), *VIEWS]
    second = [ColorJitter(0.4), RandomHorizontalFlip(), *VIEWS]
    more = {"other": PipelineSpec("image", crop((31, 9)), second)}
    found = epochs(loader_of(mixed, image, decoder="own", more=more), 2)
    assert sum(made) == 4 * len(MIXED)
    assert_same(found, epochs(loader_of(mixed, image, device="cpu", more=more), 2))


def test_a_batch_is_made_in_bands_that_fit_into_the_memory(gpus, mixed, made, monkeypatch):
    monkeypatch.setattr(gpu_resources, "EntryDecoder", partial(EntryDecoder, budget=200_000))
    found = epochs(loader_of(mixed, PIPELINES["half"], decoder="own", batch_size=21))
    assert sum(made) == len(MIXED)
    assert len(made) > 3
    assert_same(found, epochs(loader_of(mixed, PIPELINES["half"], device="cpu", batch_size=21)))


def test_images_with_a_larger_window_than_the_memory_may_have_go_to_the_cpu(gpus, mixed, made, monkeypatch):
    monkeypatch.setattr(gpu_resources, "EntryDecoder", partial(EntryDecoder, largest_window=40_000))
    found = epochs(loader_of(mixed, PIPELINES["half"], decoder="own"))
    assert 0 < sum(made) < len(MIXED)
    assert_same(found, epochs(loader_of(mixed, PIPELINES["half"], device="cpu")))


def test_with_engines_only_images_without_entry_points_go_there(gpus, mixed, made, faults):
    found = epochs(loader_of(mixed, PIPELINES["half"], lanes=("hardware", "own")))
    assert sum(made) == len(MIXED)
    assert_same(found, epochs(loader_of(mixed, PIPELINES["half"], device="cpu")))


def test_damaged_data_go_to_the_cpu_which_has_the_verdict(gpus, made, tmp_path):
    """Whatever the CPU makes of them, with the same policy for bad images."""
    path = indexed(tmp_path / "damaged.beton", MIXED)
    content = bytearray(path.read_bytes())
    for number in (2, 7, 16, 19):
        data = MIXED[number].data
        place = content.index(data) + len(data) * 2 // 3
        content[place : place + 40] = b"\x5a" * 40
    path.write_bytes(content)
    whole = [CenterCropRGBImageDecoder((20, 24), 1), *VIEWS]
    for policy in ("skip", "replace"):
        found = epochs(loader_of(path, whole, decoder="own", on_error=policy), 2)
        assert_same(found, epochs(loader_of(path, whole, device="cpu", on_error=policy), 2))
    assert made


def test_batches_that_need_more_memory_than_those_before_wait_for_them(gpus, faults, made, tmp_path):
    images = [
        stored(pillow_jpeg(photo(side, side, number), restart_marker_blocks=20))
        for number, side in enumerate([40] * 4 + [700] * 4)
    ]
    path, pipeline = indexed(tmp_path / "growing.beton", images), [CenterCropRGBImageDecoder((20, 24), 1), *VIEWS]
    loader = loader_of(path, pipeline, decoder="own", batch_size=4, batches_ahead=2)
    batches = iter(loader)
    faults.slow_down(20_000, least=20_000)
    found = list(batches)
    loader.close()
    assert made == [4, 4]
    assert_same(found, epochs(loader_of(path, pipeline, device="cpu", batch_size=4)))
