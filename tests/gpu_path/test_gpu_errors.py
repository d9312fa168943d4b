"""Errors of the GPU itself: they reach the loop, nothing hangs, and what can go on afterwards does."""

from __future__ import annotations

import gc
import traceback

import numpy as np
import pytest

from gpubeton._engine import engine as engine_module
from gpubeton.errors import DeviceError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.transforms import NormalizeImage, ToDevice, ToTensor
from tests.cpu.pictures import jpeg, photo
from tests.gpu_path.gpu_room import BatchedBackend
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, stored, twin, write_images
from tests.simulator.device import TENSOR, SimulatedDevice, SimulatedEvent, SimulatedStream
from tests.waiting import wait_until

CROP = RandomResizedCropRGBImageDecoder((12, 10))
PIPELINE = [CROP, NormalizeImage((120, 110, 100), (60, 50, 40), np.float16), ToTensor()]
IMAGES = [*IMAGE_SAMPLES[:24], *IMAGE_SAMPLES[:24]]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "images.beton", IMAGES)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    path = write_images(tmp_path_factory.mktemp("decoded") / "decoded.beton", twin(IMAGES))
    return epochs(gpu_loader(path, PIPELINE, device="cpu"), 2)


def formatted(caught):
    return "".join(traceback.format_exception(caught.value))


# --- memory


def test_too_little_memory_raises_an_error_that_names_it_and_passes(gpus, faults, path, expected, own_threads):
    loader = gpu_loader(path, PIPELINE)
    faults.leave_memory(100_000)
    with pytest.raises(DeviceError, match=r"\d{5,6}"):
        list(loader)
    assert own_threads() == []
    faults.leave_memory(1 << 30)
    loader.set_epoch(0)
    assert_same(list(loader), expected[:6])
    loader.close()


@pytest.mark.parametrize("batches_ahead", [1, 3])
def test_memory_that_lasts_for_small_images_alone_fails_with_the_batch_named(
    gpus, faults, tmp_path, batches_ahead, own_threads
):
    images = [stored(jpeg(photo(20, 20, number))) for number in range(32)]
    images += [stored(jpeg(photo(700, 700, number))) for number in range(8)]
    path = write_images(tmp_path / "growing.beton", images)
    loader = gpu_loader(path, [CenterCropRGBImageDecoder((8, 8), 1), ToTensor()], batches_ahead=batches_ahead)
    received = []
    faults.leave_memory(14 << 20)
    with pytest.raises(DeviceError, match="bytes were asked for") as caught:
        received.extend(loader)
    assert "batch 4 of epoch 0" in formatted(caught)
    assert own_threads() == []
    faults.leave_memory(1 << 30)
    loader.set_epoch(0)
    assert len(list(loader)) == 5
    loader.close()


# --- an error that stays


def use(loader, faults, gpus, stream):
    """Receive a batch, then have the GPU fail in one of its streams."""
    batches = iter(loader)
    next(batches)
    faults.fail_stream(gpus[0].stream(stream))
    return list(batches)


STREAMS = ["send", "augment", "batch_ops", "engines 0", "engines 1"]


def test_every_stream_is_listed_here(gpus, faults, path):
    epochs(gpu_loader(path, PIPELINE))
    assert [stream.name for stream in gpus[0].streams] == STREAMS


@pytest.mark.parametrize("stream", STREAMS)
def test_an_error_in_any_stream_reaches_the_loop_and_everything_ends(gpus, faults, path, stream, own_threads):
    faults.slow_down(300)
    loader = gpu_loader(path, PIPELINE, batches_ahead=1)
    with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
        use(loader, faults, gpus, stream)
    assert own_threads() == []
    with pytest.raises(DeviceError):
        list(loader)
    loader.close()
    assert own_threads() == []
    faults.fail_device(status=0)


def test_the_error_of_the_loop_names_its_batch(gpus, faults, path):
    loader = gpu_loader(path, PIPELINE, batches_ahead=1)
    with pytest.raises(DeviceError) as caught:
        use(loader, faults, gpus, "augment")
    assert "of epoch 0, samples" in formatted(caught)
    loader.close()
    faults.fail_device(status=0)


def test_closing_after_a_break_on_a_stuck_gpu_neither_hangs_nor_raises(gpus, faults, path, own_threads):
    loader = gpu_loader(path, PIPELINE)
    for _ in loader:
        faults.fail_device()
        break
    loader.close()
    assert own_threads() == []
    faults.fail_device(status=0)


def test_an_error_between_two_epochs_is_raised_when_the_next_begins(gpus, faults, path):
    loader = gpu_loader(path, PIPELINE)
    list(loader)
    faults.fail_device()
    with pytest.raises(DeviceError):
        list(loader)
    loader.close()
    faults.fail_device(status=0)


# --- an error that passes


class PlantedError(Exception):
    pass


def failing_at(monkeypatch, owner, name, number, applies=lambda *_arguments: True):
    """Have a function raise when it is called for the so-manieth time with such arguments."""
    original, calls = getattr(owner, name), []

    def planted(*arguments, **keywords):
        if applies(*arguments):
            calls.append(name)
            if len(calls) == number:
                raise PlantedError(f"planted in {name}")
        return original(*arguments, **keywords)

    monkeypatch.setattr(owner, name, planted)
    return calls


@pytest.mark.parametrize("number", [1, 4, 6])
@pytest.mark.parametrize("kernel", ["canary", "taps", "resample"])
def test_an_error_of_a_launch_reaches_the_loop_and_the_next_epoch_is_whole(
    gpus, path, expected, monkeypatch, kernel, number, own_threads
):
    failing_at(monkeypatch, SimulatedDevice, "launch", number, lambda _device, name, *_rest: name == kernel)
    loader = gpu_loader(path, PIPELINE)
    received = []
    with pytest.raises(PlantedError, match="planted in launch") as caught:
        received.extend(loader)
    assert "of epoch 0, samples" in formatted(caught)
    assert own_threads() == []
    assert_same(received, expected[: len(received)])
    assert len(received) < number
    loader.set_epoch(0)
    assert_same([*loader, *loader], expected)
    loader.close()


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (BatchedBackend, "begin"),
        (SimulatedDevice, "copy"),
        (SimulatedDevice, "empty"),
        (SimulatedDevice, "hand_over"),
    ],
)
def test_an_error_at_any_stage_reaches_the_loop_and_the_next_epoch_is_whole(
    gpus, path, expected, monkeypatch, owner, name, number, own_threads
):
    loader = gpu_loader(path, PIPELINE)
    failing_at(monkeypatch, owner, name, number)
    with pytest.raises(PlantedError, match=f"planted in {name}"):
        list(loader)
    if name == "hand_over":  # in the loop's own thread; the line goes on
        loader.close()
        return
    assert own_threads() == []
    loader.set_epoch(0)
    assert_same([*loader, *loader], expected)
    loader.close()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (SimulatedDevice, "launch"),
        (SimulatedDevice, "empty"),
        (SimulatedEvent, "synchronize"),
        (SimulatedStream, "synchronize"),
        (ToDevice, "apply"),
    ],
)
def test_memory_is_free_as_soon_as_the_error_is_handled(gpus, faults, path, monkeypatch, owner, name):
    """Without a garbage collection, which may come hours later in a training that makes no garbage."""
    loader = gpu_loader(path, PIPELINE)
    list(loader)
    gc.collect()

    def memory():
        wait_until(lambda: all(stream.is_idle for stream in gpus[0].streams))  # tensors are freed in their order
        return faults.live_memory(TENSOR)

    before, allocations, _batch = memory(), faults.allocations(), None
    failing_at(monkeypatch, owner, name, 1 if owner is SimulatedStream else 4)
    gc.disable()
    try:
        try:
            for _batch in loader:
                pass
        except PlantedError:
            assert faults.allocations() > allocations
        del _batch
        assert memory() == before
    finally:
        gc.enable()
    loader.close()


@pytest.mark.parametrize("name", ["probe_jpegs", "pack_regions", "pack_crops"])
def test_an_error_of_the_cpus_part_reaches_the_loop(gpus, path, expected, monkeypatch, name, own_threads):
    failing_at(monkeypatch, engine_module, name, 3)
    loader = gpu_loader(path, PIPELINE)
    with pytest.raises(PlantedError, match=f"planted in {name}"):
        list(loader)
    assert own_threads() == []
    loader.set_epoch(0)
    assert_same([*loader, *loader], expected)
    loader.close()


def test_an_error_in_the_tail_leaves_the_gpu_usable(gpus, path, expected, monkeypatch):
    loader = gpu_loader(path, PIPELINE)
    failing_at(monkeypatch, ToDevice, "apply", 3)
    with pytest.raises(PlantedError):
        list(loader)
    loader.set_epoch(0)
    assert_same([*loader, *loader], expected)
    loader.close()


def test_a_repair_that_raises_reaches_the_loop(gpus, faults, path, expected, monkeypatch):
    faults.skip_image(IMAGES[0].data, times=1)
    failing_at(monkeypatch, SimulatedStream, "synchronize", 1)
    loader = gpu_loader(path, PIPELINE)
    with pytest.raises(PlantedError):
        list(loader)
    loader.set_epoch(0)
    assert_same([*loader, *loader], expected)
    loader.close()
