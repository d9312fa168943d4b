"""The faults that can be planted in the simulated nvJPEG, and its journal."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.nvjpeg_parts import Backend
from gpubeton.errors import NvjpegError
from tests.cpu.pictures import decoded, jpeg, noise
from tests.gpu_path.gpu_room import Handle, State, load
from tests.simulator.active_device import device, faults, simulated_device
from tests.simulator.faults import hash_of
from tests.simulator.nvjpeg_bench import HEIGHT, TAKEN, WIDTH, bench

__all__ = ["bench", "device", "faults", "simulated_device"]


@pytest.mark.parametrize("status", [3, 4, 6])
def test_a_status_can_be_planted_for_an_image_of_a_batch(bench, faults, status):
    images = [TAKEN["4:2:0"], TAKEN["4:4:4"]]
    faults.fail_image(status, images[1], batched=True)
    job = bench(images=images)
    with pytest.raises(NvjpegError) as caught:
        job.decode()
    assert caught.value.status == status
    job.decode_alone(1)
    job.stream.synchronize()
    np.testing.assert_array_equal(job.pixels(1), decoded(images[1]))


def test_after_a_batch_that_failed_the_state_has_to_be_initialized_again(bench, faults):
    faults.fail_image(6, times=1)
    job = bench()
    with pytest.raises(NvjpegError):
        job.decode()
    assert job.status_of_batch() == 1
    assert "before nvjpegDecodeBatchedInitialize" in faults.take_misuses()[0]
    job.stream.synchronize()
    job.decode()


@pytest.mark.parametrize("which", [{"data": TAKEN["4:4:4"]}, {"index": 1}, {"every": 2}])
def test_an_image_can_be_left_out_of_a_batch_that_succeeds(bench, faults, which):
    images = [TAKEN["4:2:0"], TAKEN["4:4:4"], TAKEN["gray"]]
    faults.skip_image(**which)
    job = bench(images=images)
    job.decode()
    job.stream.synchronize()
    assert [job.is_untouched(index) for index in range(3)] == [False, True, False]
    assert [(note.owner, note.status) for note in faults.notes("image")] == [
        (hash_of(images[0]), 1),
        (hash_of(images[1]), 0),
        (hash_of(images[2]), 1),
    ]


def test_a_fault_can_be_of_one_backend_and_of_so_many_times(bench, faults):
    faults.skip_image(backend=Backend.HARDWARE, times=1)
    for backend, is_untouched in [(Backend.GPU_HYBRID, False), (Backend.HARDWARE, True), (Backend.HARDWARE, False)]:
        job = bench(backend)
        job.decode()
        job.stream.synchronize()
        assert job.is_untouched() == is_untouched


def test_an_image_can_be_larger_than_its_header_but_stays_in_its_memory(bench, faults):
    faults.enlarge_image(more_height=2, more_width=3)
    small = jpeg(noise(HEIGHT - 1, WIDTH))
    job = bench(images=[small])
    job.decode()
    larger = job.pixels(height=HEIGHT, width=WIDTH + 3)
    np.testing.assert_array_equal(larger[: HEIGHT - 1, :WIDTH], decoded(small))
    np.testing.assert_array_equal(larger[HEIGHT - 1, :WIDTH], decoded(small)[-1])
    np.testing.assert_array_equal(larger[:-1, WIDTH + 2], decoded(small)[:, -1])


def test_a_call_can_be_made_to_fail(device, faults):
    faults.fail_call("nvjpegJpegStateCreate", 5, after=1, times=1)
    handle = Handle(load(), Backend.HYBRID)
    State(handle)
    with pytest.raises(NvjpegError) as caught:
        State(handle)
    assert caught.value.status == 5
    State(handle)
    assert faults.count("nvjpegJpegStateCreate") == 3


def test_with_pixels_off_a_batch_returns_at_once(bench, faults):
    job = bench()
    faults.pixels = False
    job.decode()
    job.decode_alone()
    assert job.is_untouched()
    assert faults.count("nvjpegDecodeBatched") == 1


def test_memory_of_the_engines_grows_with_larger_images_alone(bench, faults):
    job = bench()
    job.state.preallocate(1, WIDTH, HEIGHT - 1)
    job.decode()
    job.stream.synchronize()
    job.decode()
    assert len(faults.notes("grow")) == 1
