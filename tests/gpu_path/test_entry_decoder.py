"""Our own decoder on the simulated GPU: with entry points or restart markers, the CPU loader's batches to the bit."""

from __future__ import annotations

import threading
from functools import partial
from types import MethodType

import numpy as np
import pytest

from gpubeton._gpu import entry_decoder
from gpubeton._plan.jpeg_windows import BEGIN, EVERY, NUM_ENTRIES, STOP, WINDOW_COLUMNS, CropWindows
from gpubeton.dataset import index_images
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.format import open_dataset
from gpubeton.format.entry_points import EntryPoints, read_beside
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import ColorJitter, Cutout, RandomAffine, RandomContrast, RandomHorizontalFlip
from tests.cpu.pictures import SAMPLINGS, jpeg, noise, photo, pillow_jpeg
from tests.gpu_path.gpu_room import EntryDecoder, JpegHeaders, JpegReader
from tests.gpu_path.image_samples import (
    BASELINE,
    IMAGE_SAMPLES,
    Samples,
    StoredField,
    assert_same,
    epochs,
    gpu_loader,
    stored,
)
from tests.gpu_path.test_gpu_loader import GEOMETRY, PIPELINES, VIEWS, crop, normalize
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
def sample_file(tmp_path_factory):
    return indexed(tmp_path_factory.mktemp("samples") / "samples.beton", IMAGE_SAMPLES)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    return indexed(tmp_path_factory.mktemp("mixed") / "mixed.beton", MIXED)


@pytest.fixture
def launches(monkeypatch):
    """The number of images in each launch of the decoder."""
    counts, launch = [], entry_decoder.launch_jpegs

    def noting(*others, count, **named):
        counts.append(count)
        launch(*others, count=count, **named)

    monkeypatch.setattr(entry_decoder, "launch_jpegs", noting)
    return counts


@pytest.mark.parametrize("name", PIPELINES)
def test_every_kind_of_image_is_the_cpus_to_the_bit(gpus, sample_file, launches, name):
    batches = epochs(loader_of(sample_file, PIPELINES[name], decoder="entries"), 2)
    assert sum(launches) == 2 * len(BASELINE)
    assert_same(batches, epochs(loader_of(sample_file, PIPELINES[name], device="cpu"), 2))


@pytest.mark.parametrize("name", COLORS)
@pytest.mark.parametrize("changes", [{}, {"os_cache": False}, {"batch_size": 5, "order": "random"}])
def test_colors_are_the_cpus_to_the_bit(gpus, sample_file, launches, name, changes):
    batches = epochs(loader_of(sample_file, COLORS[name], decoder="entries", **changes), 2)
    assert sum(launches) == 2 * len(BASELINE)
    assert_same(batches, epochs(loader_of(sample_file, COLORS[name], device="cpu", **changes), 2))


def test_batches_of_this_decoder_alone_need_no_canary(gpus, mixed, launches):
    batches = epochs(loader_of(mixed, PIPELINES["half"], decoder="entries"), 2)
    assert sum(launches) == 2 * len(MIXED)
    assert_same(batches, epochs(loader_of(mixed, PIPELINES["half"], device="cpu"), 2))


def test_if_no_route_is_allowed_the_cpu_decodes(gpus, mixed, launches):
    batches = epochs(loader_of(mixed, PIPELINES["half"], decoder="entries", routes=()))
    assert not launches
    assert_same(batches, epochs(loader_of(mixed, PIPELINES["half"], device="cpu")))


@pytest.mark.parametrize("decoder", ["entries", "nvjpeg"])
def test_only_batches_with_images_of_the_engines_wait_on_the_host(gpus, mixed, monkeypatch, decoder):
    waiting, synchronize = set(), SimulatedEvent.synchronize

    def noting(event):
        waiting.add(threading.current_thread().name)
        synchronize(event)

    monkeypatch.setattr(SimulatedEvent, "synchronize", noting)
    epochs(loader_of(mixed, PIPELINES["half"], decoder=decoder))
    assert ("gpubeton-feeder" in waiting) == (decoder == "nvjpeg")


def test_headers_with_entry_points_are_read_once(gpus, launches, tmp_path, monkeypatch):
    path = indexed(tmp_path / "images.beton", MIXED[:18])
    loader = loader_of(path, PIPELINES["half"], decoder="entries", order="random")
    batches = list(loader)
    with monkeypatch.context() as patches:
        patches.setattr(JpegReader, "read", None)
        patches.setattr("gpubeton._engine.engine.probe_jpegs", None)
        batches += [batch for _ in range(2) for batch in loader]
    loader.indices = [17, 3, 3, 0]
    batches += list(loader)
    loader.close()
    assert sum(launches) == 3 * 18 + 4
    cpu = loader_of(path, PIPELINES["half"], device="cpu", order="random")
    expected = [batch for _ in range(3) for batch in cpu]
    cpu.indices = [17, 3, 3, 0]
    assert_same(batches, expected + list(cpu))


@pytest.fixture
def parsed(monkeypatch):
    """The number of images of each call that reads headers."""
    counts, read = [], JpegReader.read

    def noting(reader, address, *others):
        counts.append(len(address))
        return read(reader, address, *others)

    monkeypatch.setattr(JpegReader, "read", noting)
    return counts


def test_images_with_known_headers_and_others_share_a_batch(gpus, mixed, launches, parsed):
    loader = loader_of(mixed, PIPELINES["half"], decoder="entries", indices=np.arange(0, 21, 2))
    batches = list(loader)
    loader.indices = np.arange(21)
    parsed.clear()
    batches += list(loader)
    loader.close()
    assert sum(launches) == 11 + 21
    restarted = 2  # of those that were seen; they have no entry points in a file
    assert sum(parsed) == 10 + restarted
    cpu = loader_of(mixed, PIPELINES["half"], device="cpu", indices=np.arange(0, 21, 2))
    expected = list(cpu)
    cpu.indices = np.arange(21)
    assert_same(batches, expected + list(cpu))


def place_of_entries(path):
    """The block of the entry points beside a file, and where its entries begin."""
    block = read_beside(open_dataset(path))["image"]
    return block, index_of(path).read_bytes().index(block.entries.tobytes())


def index_of(path):
    return path.with_name(f"{path.name}.index")


@pytest.mark.parametrize("batch_size", [1, 7])
def test_images_whose_entry_points_do_not_fit_are_asked_about_each_time(gpus, launches, parsed, tmp_path, batch_size):
    """They share batches with images whose headers are known, or have one without any header that is of use."""
    path = indexed(tmp_path / "images.beton", MIXED[:18])
    block, begin = place_of_entries(path)
    content = bytearray(index_of(path).read_bytes())
    for number in (2, 9):
        content[begin + block.entries.itemsize * int(block.first[number]) + 4] ^= 1
    index_of(path).write_bytes(content)
    batches = epochs(loader_of(path, PIPELINES["half"], decoder="entries", batch_size=batch_size), 3)
    assert sum(launches) == 3 * 16
    assert sum(parsed) == 18 + 2 * 2
    assert_same(batches, epochs(loader_of(path, PIPELINES["half"], device="cpu", batch_size=batch_size), 3))


def test_entry_points_that_change_after_their_seals_were_checked_are_not_used(gpus, launches, tmp_path):
    """All of them by as much, so that each interval still ends with the values of the next."""
    path = indexed(tmp_path / "images.beton", MIXED[:18])
    loader = loader_of(path, PIPELINES["half"], decoder="entries")
    batches = list(loader)
    block, begin = place_of_entries(path)
    entries = block.entries.copy()
    entries["dc"][:, 0] += 64
    with index_of(path).open("r+b") as file:
        file.seek(begin)
        file.write(entries.tobytes())
    batches += list(loader)
    loader.close()
    assert sum(launches) == 18
    assert_same(batches, epochs(loader_of(path, PIPELINES["half"], device="cpu"), 2))


def test_headers_are_not_kept_if_bytes_may_be_others_each_time(gpus, mixed, launches, parsed, monkeypatch):
    monkeypatch.setattr(EntryPoints, "comes_late", True)
    batches = epochs(loader_of(mixed, PIPELINES["half"], decoder="entries"), 2)
    assert sum(launches) == sum(parsed) == 2 * len(MIXED)
    assert_same(batches, epochs(loader_of(mixed, PIPELINES["half"], device="cpu"), 2))


def test_headers_are_forgotten_if_too_many_have_different_tables(gpus, mixed, launches, parsed, monkeypatch):
    monkeypatch.setattr(entry_decoder, "_MOST_TABLES", 1)
    batches = epochs(loader_of(mixed, PIPELINES["half"], decoder="entries"), 3)
    assert sum(launches) == sum(parsed) == 3 * len(MIXED)
    assert_same(batches, epochs(loader_of(mixed, PIPELINES["half"], device="cpu"), 3))


def test_headers_of_images_whose_entry_points_were_left_out_are_not_used():
    headers, samples = JpegHeaders(), np.array([0, 3], np.uint64)
    rows = np.ones((2, WINDOW_COLUMNS), np.int32)
    rows[:, NUM_ENTRIES] = 7, 9
    parts = CropWindows(rows, np.zeros((2, 3, 64), np.uint8), np.zeros((1, 4, 272), np.uint8), np.zeros(2, np.int32))
    headers.add(samples, parts)
    assert headers.holds(np.array([0, 1, 3, 99], np.uint64)).tolist() == [True, False, True, False]
    assert headers.holds(samples, np.array([7, 9], np.int32)).all()
    assert headers.holds(samples, np.array([7, 0], np.int32)).tolist() == [True, False]
    rows[0, EVERY] = 0
    headers.add(samples, parts)
    assert headers.holds(samples).tolist() == [False, True]


def test_images_of_which_no_byte_is_needed_are_left_to_the_cpu(gpus, mixed, launches, monkeypatch):
    """As if entry points changed while they are read."""
    list_known = JpegReader.list_known

    def listing(size, first_entry, entries, parts):
        intervals = list_known(size, first_entry, entries, parts)
        parts.rows[:, STOP] = parts.rows[:, BEGIN]
        return intervals

    monkeypatch.setattr(JpegReader, "list_known", staticmethod(listing))
    for os_cache in (True, False):
        batches = epochs(loader_of(mixed, PIPELINES["half"], decoder="entries", os_cache=os_cache))
        assert_same(batches, epochs(loader_of(mixed, PIPELINES["half"], device="cpu")))
    assert sum(launches) == 2 * len(MIXED)


@pytest.mark.parametrize("os_cache", [True, False])
def test_only_bytes_that_crops_need_are_copied(gpus, mixed, launches, monkeypatch, os_cache):
    sent, send = [], EntryDecoder.send

    def noting(decoder, images, *others):
        sent.append(images.nbytes)
        send(decoder, images, *others)

    monkeypatch.setattr(EntryDecoder, "send", noting)
    image = [RandomResizedCropRGBImageDecoder((20, 24), scale=(0.01, 0.05)), *VIEWS]
    batches = epochs(loader_of(mixed, image, decoder="entries", os_cache=os_cache), 2)
    assert sum(launches) == 2 * len(MIXED)
    assert 0 < sum(sent) < sum(len(image.data) for image in MIXED)
    assert_same(batches, epochs(loader_of(mixed, image, device="cpu", os_cache=os_cache), 2))


def test_two_outputs_of_one_field_have_different_crops(gpus, mixed, launches):
    image = [crop((20, 24)), ColorJitter(0.2), Cutout(3), *VIEWS]
    second = [ColorJitter(0.4), RandomHorizontalFlip(), *VIEWS]
    more = {"other": PipelineSpec("image", crop((31, 9)), second)}
    batches = epochs(loader_of(mixed, image, decoder="entries", more=more), 2)
    assert sum(launches) == 4 * len(MIXED)
    assert_same(batches, epochs(loader_of(mixed, image, device="cpu", more=more), 2))


def test_a_batch_is_made_in_bands_that_fit_into_the_memory(gpus, mixed, launches, monkeypatch):
    monkeypatch.setattr("gpubeton._gpu.gpu_resources.EntryDecoder", partial(EntryDecoder, budget=200_000))
    batches = epochs(loader_of(mixed, PIPELINES["half"], decoder="entries", batch_size=21))
    assert sum(launches) == len(MIXED)
    assert len(launches) > 3
    assert_same(batches, epochs(loader_of(mixed, PIPELINES["half"], device="cpu", batch_size=21)))


def test_images_with_a_larger_window_than_the_memory_may_have_go_to_the_cpu(gpus, mixed, launches, monkeypatch):
    monkeypatch.setattr("gpubeton._gpu.gpu_resources.EntryDecoder", partial(EntryDecoder, largest_window=40_000))
    batches = epochs(loader_of(mixed, PIPELINES["half"], decoder="entries"))
    assert 0 < sum(launches) < len(MIXED)
    assert_same(batches, epochs(loader_of(mixed, PIPELINES["half"], device="cpu")))


def test_with_engines_only_images_without_entry_points_go_there(gpus, mixed, launches, faults):
    batches = epochs(loader_of(mixed, PIPELINES["half"], routes=("hardware", "entries")))
    assert sum(launches) == len(MIXED)
    assert_same(batches, epochs(loader_of(mixed, PIPELINES["half"], device="cpu")))


def test_damaged_data_go_to_the_cpu_which_has_the_verdict(gpus, launches, tmp_path):
    """The CPU's pixels or its error, with the same policy for bad images."""
    path = indexed(tmp_path / "damaged.beton", MIXED)
    content = bytearray(path.read_bytes())
    for number in (2, 7, 16, 19):
        data = MIXED[number].data
        place = content.index(data) + len(data) * 2 // 3
        content[place : place + 40] = b"\x5a" * 40
    path.write_bytes(content)
    whole = [CenterCropRGBImageDecoder((20, 24), 1), *VIEWS]
    for policy in ("skip", "replace"):
        batches = epochs(loader_of(path, whole, decoder="entries", on_error=policy), 2)
        assert_same(batches, epochs(loader_of(path, whole, device="cpu", on_error=policy), 2))
    assert launches


def test_batches_that_need_more_memory_than_those_before_wait_for_them(gpus, faults, launches, tmp_path):
    images = [
        stored(pillow_jpeg(photo(side, side, number), restart_marker_blocks=20))
        for number, side in enumerate([40] * 4 + [700] * 4)
    ]
    path, pipeline = indexed(tmp_path / "growing.beton", images), [CenterCropRGBImageDecoder((20, 24), 1), *VIEWS]
    loader = loader_of(path, pipeline, decoder="entries", batch_size=4, batches_ahead=2)
    batches = iter(loader)
    faults.slow_down(20_000, least=20_000)
    results = list(batches)
    loader.close()
    assert launches == [4, 4]
    assert_same(results, epochs(loader_of(path, pipeline, device="cpu", batch_size=4)))


def test_steps_are_not_repeated_on_its_images_when_those_of_the_engines_are(
    gpus, launches, faults, monkeypatch, tmp_path
):
    """The nearest pixel of a gray image: the same from the engines and from the CPU."""
    images = [stored(jpeg(photo(40 * side, 50 * side, side), sampling="gray")) for side in (1, 3, 1, 3, 1)]
    path = indexed(tmp_path / "gray.beton", images)
    monkeypatch.setattr("gpubeton._gpu.gpu_resources.EntryDecoder", partial(EntryDecoder, largest_window=8_000))
    image = [crop((12, 14), "nearest"), ColorJitter(0.5), RandomAffine(30, shear=10), normalize(np.float16), *VIEWS]
    expected = list(loader_of(path, image, device="cpu", batch_size=5))
    loader = loader_of(path, image, routes=("hardware", "entries"), batch_size=5)
    for number in (1, 3):
        faults.skip_image(images[number].data)
    assert_same(list(loader), expected)
    assert sum(launches) == 3
