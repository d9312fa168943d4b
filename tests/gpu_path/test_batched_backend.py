from __future__ import annotations

import gc
from contextlib import ExitStack

import numpy as np
import pytest

from benchmarks.gpu.nvjpeg_parts import Backend
from gpubeton.errors import DeviceError, NvjpegError
from gpubeton.loader import GpuOptions
from tests.at_once import run_at_once
from tests.cpu.pictures import jpeg, noise, photo, pillow_jpeg
from tests.gpu_path.decode_requests import DecodeRequests
from tests.gpu_path.gpu_room import BatchedBackend, DecodeRoute, Handle, State, load, open_nvjpeg_backends
from tests.simulator.active_device import device
from tests.simulator.device import SimulatedDevice

__all__ = ["device"]

SMALL = [jpeg(photo(20 + number, 30, number)) for number in range(6)]
OTHERS = [jpeg(noise(17, 9 + number), sampling="4:4:4") for number in range(6)]
INITIALIZE, PREALLOCATE = "nvjpegDecodeBatchedInitialize", "nvjpegDecodeBatchedPreAllocate"


@pytest.fixture
def requests(device):
    return DecodeRequests(device)


@pytest.fixture
def make(device, faults):
    """Makes backends; closes them at the end."""
    results = []

    def make(largest=(1, 1), num_states=2):
        results.append(BatchedBackend(device, Handle(load(), Backend.HARDWARE), 8, largest, num_states))
        return results[-1]

    yield make
    for backend in results:
        backend.settle()
        backend.close()
    assert (faults.live("state"), faults.live("handle")) == (0, 0)


@pytest.mark.parametrize("is_early", [True, False])
def test_a_request_is_decoded_when_its_event_is_done(make, requests, faults, is_early):
    faults.early_write = is_early
    faults.slow_down(2000)
    backend = make()
    submitted = [requests.make(images) for images in (SMALL, OTHERS[:2], SMALL)]
    results = [backend.begin(request) for request in submitted]
    for request, (event, failed) in zip(submitted, results, strict=True):
        event.synchronize()
        assert failed == {}
        assert requests.state_of(request) == ["decoded"] * len(request.size)


def test_objects_of_a_loader_are_destroyed_on_its_gpu(faults):
    """The last reference may go in a thread where another one is current."""
    second = SimulatedDevice(1)
    with second.active():
        backend = open_nvjpeg_backends(second, load(), GpuOptions(), (1, 1)).backends[DecodeRoute.HARDWARE]
        requests = DecodeRequests(second)
        request = requests.make(SMALL)
        probes = np.zeros((2, len(SMALL)), np.int32)
        backend.takes(request, *probes)
        backend.begin(request)[0].synchronize()
    assert (faults.live("handle"), faults.live("state")) == (1, 2)
    del backend
    gc.collect()
    assert (faults.live("handle"), faults.live("state")) == (0, 0)
    assert faults.take_misuses() == []


def test_requests_go_to_states_in_turn_and_do_not_wait_for_each_other(make, requests, faults):
    backend = make(num_states=3)
    backend.begin(requests.make(SMALL))[0].synchronize()
    faults.forget_notes()
    with ExitStack() as held:
        for entry in backend._entries:
            held.enter_context(faults.held(entry.stream))
        for _ in range(3):
            backend.begin(requests.make(SMALL))
    calls = faults.notes("call", "nvjpegDecodeBatched")
    assert len({call.stream for call in calls}) == len({call.owner for call in calls}) == 3


def test_states_are_initialized_once_while_the_number_of_images_stays(make, requests, faults):
    faults.slow_down(2000, least=1000)
    backend = make(num_states=3)
    for number in range(12):
        backend.begin(requests.make(SMALL if number % 2 else OTHERS))
    assert faults.count(INITIALIZE) <= 3  # fewer if the states are faster than this thread
    assert not [call for call in faults.notes("call", INITIALIZE) if call.was_busy]


def test_a_state_is_initialized_again_for_another_number_and_never_while_it_works(make, requests, faults):
    faults.slow_down(2000)
    backend = make(num_states=2)
    for number in range(10):
        backend.begin(requests.make(SMALL[: 1 + number % 5]))
    calls = faults.notes("call", INITIALIZE)
    assert len(calls) >= 8
    assert not any(call.was_busy for call in calls)


def test_a_number_that_comes_back_finds_the_state_that_knows_it(make, requests, faults):
    backend = make(num_states=3)
    for number in range(12):
        backend.begin(requests.make(SMALL[:2] if number % 2 else SMALL))[0].synchronize()
    assert faults.count(INITIALIZE) == 2


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("culprits", [{2}, {0}, {5}, {1, 4}, {0, 1, 2}, set(range(6))], ids=str)
def test_of_a_request_that_is_refused_the_culprits_alone_have_failed(make, requests, faults, is_early, culprits):
    faults.early_write = is_early
    progressive = pillow_jpeg(photo(9, 9), progressive=True)
    request = requests.make([progressive if number in culprits else image for number, image in enumerate(SMALL)])
    event, failed = make().begin(request)
    assert set(failed) == culprits
    assert all("nvjpegDecodeBatched" in reason and "JPEG_NOT_SUPPORTED" in reason for reason in failed.values())
    assert (event is None) == (len(culprits) == 6)
    if event is not None:
        event.synchronize()
    states = requests.state_of(request)
    assert {number for number in range(6) if states[number] != "decoded"} == culprits


def test_when_a_request_has_failed_nothing_of_it_is_under_way(make, requests, faults, device):
    """Images before the culprit may be: they are decoded again to the same places."""
    faults.slow_down(20_000, least=20_000)
    make(num_states=1).begin(requests.make([pillow_jpeg(photo(9, 9), progressive=True)] * 2))
    (stream,) = {call.stream for call in faults.notes("call", "nvjpegDecodeBatched")}
    (chosen,) = [candidate for candidate in device.streams if candidate.number == stream]
    assert chosen.is_idle


def test_a_backend_works_on_after_a_request_that_failed(make, requests, faults):
    faults.slow_down(1000)
    backend = make()
    bad = requests.make([*SMALL[:5], pillow_jpeg(photo(9, 9), progressive=True)])
    good = []
    for _ in range(5):
        good.append(requests.make(SMALL))
        assert backend.begin(good[-1])[1] == {}
        assert set(backend.begin(bad)[1]) == {5}
    backend.settle()
    assert all(requests.state_of(request) == ["decoded"] * 6 for request in good)


@pytest.mark.parametrize("status", [1, 6, 8])
@pytest.mark.parametrize("function", [INITIALIZE, "nvjpegDecodeBatched"])
def test_a_call_that_fails_once_costs_no_image(make, requests, faults, function, status):
    backend = make(num_states=1)
    faults.fail_call(function, status, after=1, times=1)
    assert backend.begin(requests.make(SMALL))[1] == {}
    # Another number, so that the state has to be initialized.
    request = requests.make(SMALL[:3])
    event, failed = backend.begin(request)
    event.synchronize()
    assert (failed, requests.state_of(request)) == ({}, ["decoded"] * 3)


OUT_OF_MEMORY = 5


@pytest.mark.parametrize("function", [INITIALIZE, "nvjpegDecodeBatched"])
def test_memory_that_torch_keeps_is_freed_if_nvjpeg_has_too_little(make, requests, faults, device, function):
    faults.fail_call(function, OUT_OF_MEMORY, times=1)
    request = requests.make(SMALL)
    event, failed = make().begin(request)
    event.synchronize()
    assert (failed, requests.state_of(request), device.caches_emptied) == ({}, ["decoded"] * 6, 1)


def test_out_of_memory_is_no_fault_of_the_images(make, requests, faults):
    faults.fail_call("nvjpegDecodeBatched", OUT_OF_MEMORY)
    with pytest.raises(NvjpegError, match=r"ALLOCATOR_FAILURE.*ran out"):
        make().begin(requests.make(SMALL))
    assert faults.count("nvjpegDecodeBatched") == 2


def test_states_and_memory_come_with_the_first_request(make, requests, faults):
    backend = make(largest=(40, 30))
    assert (faults.live("state"), faults.count(PREALLOCATE)) == (0, 0)
    backend.begin(requests.make(SMALL))
    assert (faults.live("state"), faults.count(PREALLOCATE)) == (2, 2)


@pytest.mark.parametrize("function", ["nvjpegJpegStateCreate", PREALLOCATE])
def test_a_state_for_which_memory_was_missing_is_tried_once_more(make, requests, faults, device, function):
    faults.fail_call(function, OUT_OF_MEMORY, times=1)
    assert make().begin(requests.make(SMALL))[1] == {}
    assert device.caches_emptied == 1


def test_an_error_of_the_gpu_is_no_refusal(make, requests, faults, device):
    """It is not the images' fault, and would come again with each of them."""
    backend = make(num_states=1)
    faults.fail_call("nvjpegDecodeBatched", 6)  # nvJPEG's status for an earlier error of other code
    faults.fail_device()
    with pytest.raises(DeviceError) as caught:
        backend.begin(requests.make(SMALL))
    assert not isinstance(caught.value, NvjpegError)
    faults.fail_device(status=0)


def test_an_error_of_our_own_is_no_refusal(make, requests, monkeypatch):
    """Otherwise it would never be found: the CPU would make the images, and all would look well."""
    backend = make(num_states=1)

    def failing(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(State, "decode_batched", failing)
    with pytest.raises(ZeroDivisionError):
        backend.begin(requests.make(SMALL))


def asked_ahead(make, requests, monkeypatch, largest, fails=False):
    """The sizes for which memory is allocated ahead."""
    asked = []

    def preallocate(_state, *size):
        asked.append(size)
        if fails and size[1:] != (1, 1):
            raise NvjpegError("planted", PREALLOCATE, OUT_OF_MEMORY)

    monkeypatch.setattr(State, "preallocate", preallocate)
    make(largest=largest, num_states=1).begin(requests.make(SMALL))
    return asked


def test_width_and_height_are_nvjpegs_in_this_order(make, requests, monkeypatch):
    assert asked_ahead(make, requests, monkeypatch, (40, 30)) == [(8, 30, 40)]


def test_memory_ahead_is_limited_and_can_be_done_without(make, requests, monkeypatch):
    assert asked_ahead(make, requests, monkeypatch, (16_000, 300)) == [(8, 300, 4096)]
    assert asked_ahead(make, requests, monkeypatch, (300, 16_000), fails=True) == [(8, 4096, 300), (8, 1, 1)]


def test_memory_for_the_largest_images_is_allocated_ahead_for_every_state(make, faults, requests):
    backend = make(largest=(40, 30), num_states=3)
    for _ in range(4):
        backend.begin(requests.make([jpeg(noise(40, 30))] * 8))
    calls = faults.notes("call", PREALLOCATE)
    assert [call.images for call in calls] == [8] * 3
    assert len({call.owner for call in calls}) == 3
    assert faults.notes("grow") == []
    backend.begin(requests.make([jpeg(noise(41, 30))]))[0].synchronize()
    assert len(faults.notes("grow")) == 1, "the journal sees it where it happens"


# --- what nvJPEG is asked


def asked_kinds(faults):
    return faults.count("nvjpegDecodeBatchedSupported")


def taken(backend, request, tables, sampling=2):
    count = len(request.address)
    return backend.takes(request, np.full(count, tables, np.int32), np.full(count, sampling, np.int32)).tolist()


def test_nvjpeg_is_asked_about_each_kind_of_image_once(make, requests, faults):
    backend, request = make(), requests.make(SMALL)
    kinds = 0
    for tables, sampling in ((1, 2), (2, 2), (1, 0)):
        for _ in range(2):
            assert taken(backend, request, tables, sampling) == [True] * 6
        kinds += 1
        assert asked_kinds(faults) == kinds
    taken(backend, requests.make([jpeg(noise(70, 30))]), 1)
    assert asked_kinds(faults) == kinds + 1, "of another size"


def test_an_image_that_nvjpeg_would_refuse_is_not_taken(make, requests):
    backend, request = make(), requests.make([SMALL[0], pillow_jpeg(photo(150, 9), progressive=True), SMALL[1]])
    assert taken(backend, request, 1) == [True, False, True]


def test_a_header_that_nvjpeg_cannot_read_is_not_taken(make, requests, faults):
    faults.fail_call("nvjpegJpegStreamParseHeader", 3)
    assert taken(make(), requests.make(SMALL[:2]), 1) == [False] * 2


def test_threads_may_use_a_backend_together(make, requests, faults, device):
    """The feeder, and the thread that repairs images of the batch before."""
    faults.slow_down(500)
    backend = make(num_states=2)
    pending = [requests.make(SMALL[: 1 + number % 3]) for number in range(24)]
    failed = []

    def work(mine):
        with device.active():
            for request in mine:
                event, refused = backend.begin(request)
                event.synchronize()
                failed.extend(refused)

    run_at_once(work, [pending[number::3] for number in range(3)])
    assert failed == []
    assert all(requests.state_of(request) == ["decoded"] * len(request.size) for request in pending)


def test_settling_waits_for_all_requests(make, requests, faults):
    faults.early_write = False
    faults.slow_down(20_000, least=20_000)
    backend = make(num_states=3)
    pending = [requests.make(SMALL) for _ in range(3)]
    for request in pending:
        backend.begin(request)
    backend.settle()
    assert [requests.state_of(request) for request in pending] == [["decoded"] * 6] * 3
