"""The simulated nvJPEG itself: pixels, order, and refusals."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks.gpu.nvjpeg_parts import Backend
from gpubeton.errors import NvjpegError
from tests.cpu.pictures import decoded
from tests.gpu_path.gpu_room import PROTOTYPES, Handle, load
from tests.simulator.active_device import GARBAGE, device, faults, simulated_device
from tests.simulator.build import build
from tests.simulator.nvjpeg_bench import BATCHED, HEIGHT, LEFT, PITCH, STREAM_ORDERED, TAKEN, WIDTH, bench

__all__ = ["bench", "device", "faults", "simulated_device"]


def test_all_functions_of_the_binding_are_there():
    library = ctypes.CDLL(str(build()))
    assert [name for name in PROTOTYPES if not hasattr(library, name)] == []


def test_the_version_is_the_requested_one(faults):
    faults.version = 12_04_01
    assert load().version == (12, 4, 1)
    assert load().path == str(build())


# --- pixels


@pytest.mark.parametrize("backend", BATCHED)
def test_a_batch_has_the_pixels_of_libjpeg(bench, backend):
    images = list(TAKEN.values())
    job = bench(backend, images)
    job.decode()
    job.stream.synchronize()
    for index, image in enumerate(images):
        np.testing.assert_array_equal(job.pixels(index), decoded(image))
        rows = job.outputs[index].array.reshape(HEIGHT, PITCH)
        assert (rows[:, 3 * WIDTH :] == GARBAGE).all()


@pytest.mark.parametrize("image", [*TAKEN.values(), LEFT["4:1:1"], LEFT["progressive"], LEFT["separate scans"]])
def test_an_image_alone_has_the_pixels_of_libjpeg(bench, image):
    job = bench(Backend.HYBRID, [image])
    job.decode_alone()
    job.stream.synchronize()
    np.testing.assert_array_equal(job.pixels(), decoded(image))


def test_another_decoder_can_be_given(bench, faults):
    faults.decoder = lambda _: np.full((HEIGHT, WIDTH, 3), 7, np.uint8)
    job = bench()
    job.decode()
    assert (job.pixels() == 7).all()


# --- order


def test_the_engines_write_when_they_are_called(bench, faults):
    job = bench()
    with faults.held(job.stream):
        job.decode()
        np.testing.assert_array_equal(job.pixels(), decoded(TAKEN["4:2:0"]))
        event = job.device.make_event()
        event.record(job.stream)
        assert not event.is_done


def test_the_engines_overtake_a_wait_of_their_stream(device, bench, faults):
    """The hazard of Hopper: who still reads the target is not waited for on the device."""
    job, reader = bench(), device.make_stream()
    copy, event = device.allocate_pinned(4), device.make_event()
    with faults.held(reader):
        device.copy(copy.address, job.outputs[0].address, 4, reader)
        event.record(reader)
        job.stream.wait(event)
        job.decode()
    reader.synchronize()
    assert copy.array.tolist() == job.pixels().reshape(-1)[:4].tolist()


def test_the_engines_can_write_at_the_streams_turn(bench, faults):
    faults.early_write = False
    job = bench()
    with faults.held(job.stream):
        job.decode()
        assert job.is_untouched()
    job.stream.synchronize()
    np.testing.assert_array_equal(job.pixels(), decoded(TAKEN["4:2:0"]))


@pytest.mark.parametrize("backend", STREAM_ORDERED)
def test_the_other_backends_are_in_the_order_of_the_stream(bench, faults, backend):
    job = bench(backend)
    with faults.held(job.stream):
        job.decode()
        assert job.is_untouched()
    job.stream.synchronize()
    np.testing.assert_array_equal(job.pixels(), decoded(TAKEN["4:2:0"]))


def test_an_image_alone_is_in_the_order_of_the_stream_on_any_backend(bench, faults):
    job = bench(Backend.HARDWARE)
    with faults.held(job.stream):
        job.decode_alone()
        assert job.is_untouched()
    job.stream.synchronize()
    assert not job.is_untouched()


# --- refusals


@pytest.mark.parametrize(
    ("damage", "status"),
    [
        (lambda data: b"\0\0" + data[2:], 3),
        (lambda data: data[:100], 10),
        (lambda data: data[:2] + b"\0" + data[2:], 4),
        (lambda data: data[:2] + b"\xff\xd9", 3),
    ],
    ids=["no JPEG", "cut in its header", "junk for a marker", "nothing in it"],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_damaged_header_has_the_status_of_nvjpeg(bench, damage, status, alone):
    job = bench(Backend.HYBRID, [damage(TAKEN["4:2:0"])])
    with pytest.raises(NvjpegError) as caught:
        (job.decode_alone if alone else job.decode)()
    assert caught.value.status == status


def test_a_truncated_image_is_an_error_in_a_batch_and_a_gray_success_alone(bench, faults):
    cut = TAKEN["4:2:0"][:-200]
    job = bench(Backend.HYBRID, [cut])
    with pytest.raises(NvjpegError) as caught:
        job.decode()
    assert caught.value.status == 10
    job.decode_alone()
    job.stream.synchronize()
    assert (job.pixels() == 128).all()
    faults.damaged_status = 3
    with pytest.raises(NvjpegError) as caught:
        job.decode_alone()
    assert caught.value.status == 3


def test_without_engines_there_is_no_hardware_handle(faults, device):
    faults.engines = 0
    with pytest.raises(NvjpegError) as caught:
        Handle(load(), Backend.HARDWARE)
    assert caught.value.status == 7
    assert Handle(load(), Backend.HYBRID).hardware_engines() == (0, 0)


def test_engines_and_cores_have_the_requested_numbers(faults, device):
    faults.engines, faults.cores = 3, 5
    assert Handle(load(), Backend.HARDWARE).hardware_engines() == (3, 5)
