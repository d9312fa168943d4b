"""`Device` without a GPU: its calls of CuPy and torch, with their arguments and in their order."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpubeton._gpu import libraries
from gpubeton._gpu.cuda import Device, Event, Memory, PinnedMemory, Stream, open_device
from gpubeton.errors import DeviceError
from tests.simulator.device import SimulatedDevice, SimulatedEvent, SimulatedMemory, SimulatedStream
from tests.simulator.recorded_cuda import CudaRuntimeError, DriverError, RecordedCuda, cuda_device, record

__all__ = ["cuda_device", "record"]

OUT_OF_MEMORY = 2


def members(kind):
    return {name for name in vars(kind) if not name.startswith("_")} - {"explained"}


@pytest.mark.parametrize(
    ("real", "simulated"),
    [
        (Device, SimulatedDevice),
        (Stream, SimulatedStream),
        (Event, SimulatedEvent),
        (Memory, SimulatedMemory),
        (PinnedMemory, SimulatedMemory),
    ],
)
def test_the_simulated_device_has_the_methods_of_the_real_one(real, simulated):
    for name in members(real):
        method, other = getattr(real, name), getattr(simulated, name)
        if callable(method):
            assert list(inspect.signature(method).parameters) == list(inspect.signature(other).parameters), name


# --- opening


def test_a_gpu_is_opened_once_for_all_its_names(record):
    record.current["torch"] = 1
    names = ["cuda:1", torch.device("cuda", 1), 1, "cuda"]
    assert len({id(open_device(name)) for name in names}) == 1
    opened = open_device("cuda:0")
    assert (opened.number, opened.name, opened.architecture) == (0, "GPU 0", "sm_90")
    assert open_device("cuda:1").architecture == "sm_91"


def test_a_forked_child_does_not_get_its_parents_gpu(record, monkeypatch):
    opened = open_device(0)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert open_device(0) is not opened


@pytest.mark.parametrize("name", ["cpu", "meta"])
def test_a_device_other_than_a_gpu_is_refused(name):
    with pytest.raises(DeviceError, match=f"'{name}' is no GPU"):
        open_device(name)


def refuse_with(patches, reason):
    def refuse():
        raise RuntimeError(reason)

    patches.setattr(torch.cuda, "current_device", refuse)


NO_START = "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lambda patches, _: patches.setattr(torch.version, "cuda", None), r"cuda:0.*torch"),
        (
            lambda patches, _: refuse_with(patches, NO_START),
            r"Error 802: system.*CUDA 13\.0.*--gpus all.*nvidia-fabricmanager",
        ),
        (
            lambda patches, _: refuse_with(patches, "Cannot re-initialize CUDA in forked subprocess"),
            "Cannot re-initialize",
        ),
        (lambda patches, _: patches.setitem(sys.modules, "cupy", None), r"CuPy.*pip install .*\[cuda13\]'"),
        (
            lambda _, record: record.fail.update(getDeviceCount=[CudaRuntimeError(35)]),
            "cuda:0: counting the GPUs: status 35",
        ),
    ],
)
def test_a_missing_part_and_the_reason_why_torch_has_no_gpu_are_named(record, monkeypatch, plant, message):
    plant(monkeypatch, record)
    with pytest.raises(DeviceError, match=message):
        open_device("cuda:0")


def test_a_number_that_no_gpu_has_is_refused(record, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    with pytest.raises(DeviceError, match=r"cuda:2.* 2 GPUs.*\(3,4\)"):
        open_device(2)


def test_the_module_can_be_imported_without_cupy():
    program = "import sys; sys.modules['cupy'] = None; import gpubeton._gpu.cuda"
    subprocess.run([sys.executable, "-c", program], check=True)


# --- threads


def test_the_device_is_torchs_current_one_and_through_it_cupys(cuda_device, record):
    with cuda_device.active():
        assert record.current["torch"] == 1
    assert record.calls == [("torch device", 1), ("torch device", 0)]


def test_the_device_is_cupys_current_one_even_if_torchs_does_not_reach_it(cuda_device, record):
    record.is_one_runtime = False
    inside = []

    def fail():
        inside.append(dict(record.current))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), cuda_device.active():
        fail()
    assert inside == [{"cupy": 1, "torch": 1}]
    assert record.current == {"cupy": 0, "torch": 0}


# --- streams and events


def test_streams_wait_for_no_default_stream_and_are_urgent(cuda_device, record):
    stream = cuda_device.make_stream("send")
    assert stream.name == "send"
    assert record.named("Stream") == [("Stream", False, True, False, -5)]
    assert record.named("ExternalStream") == [("ExternalStream", stream.handle, torch.device("cuda", 1))]


def test_streams_that_were_given_back_are_used_again_for_the_same_work(cuda_device, record):
    """Torch keeps memory for each stream: for those of every loader that there was, or twice if they change roles."""
    handles = set()
    for names in ("abc", "cba", "bac"):
        streams = [cuda_device.make_stream(name) for name in names]
        handles |= {(stream.name, stream.handle) for stream in streams}
        cuda_device.recycle(streams)
    assert {name for name, _ in handles} == set("abc")
    assert len(handles) == len(record.named("Stream")) == 3


# --- graphs that another thread captures


@pytest.fixture
def modes(monkeypatch):
    """The capture mode of the calling thread, as the driver keeps it: 0 global, 2 relaxed."""
    thread_state = threading.local()

    def exchange(pointer):
        pointer._obj.value, thread_state.mode = getattr(thread_state, "mode", 0), pointer._obj.value
        return 0

    driver = SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange)
    monkeypatch.setattr(libraries.ctypes, "CDLL", lambda name: {"libcuda.so.1": driver}[name])
    libraries.capture_mode_exchange.cache_clear()
    yield thread_state
    libraries.capture_mode_exchange.cache_clear()


def test_calls_do_not_disturb_a_capture_of_another_thread(cuda_device, record, modes):
    noted, note = [], record.note

    def noting(name, *arguments):
        noted.append((name, getattr(modes, "mode", 0)))
        note(name, *arguments)

    record.note = noting
    with cuda_device.active():
        event = cuda_device.make_event()
        with cuda_device.active():
            memory = cuda_device.allocate(100)
        assert event.is_done
        pinned = cuda_device.allocate_pinned(100)
    memory.free()
    del pinned
    gc.collect()
    unsafe = {"Event", "malloc", "eventQuery", "hostAlloc", "free", "freeHost"}
    assert {name for name, mode in noted if mode == 2} >= unsafe
    assert not [name for name, mode in noted if mode != 2 and name in unsafe]
    assert modes.mode == 0


def test_without_a_driver_there_is_nothing_to_relax(cuda_device, monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(libraries.ctypes, "CDLL", missing)
    libraries.capture_mode_exchange.cache_clear()
    with cuda_device.active():
        cuda_device.make_event()
    libraries.capture_mode_exchange.cache_clear()


# --- events


def test_events_let_the_thread_sleep_and_take_no_time(cuda_device, record):
    stream, event = cuda_device.make_stream(), cuda_device.make_event()
    record.calls.clear()
    event.record(stream)
    stream.wait(event)
    event.synchronize()
    pointer = event.cupy.ptr
    assert record.calls == [
        ("record", pointer, stream.handle),
        ("wait_event", stream.handle, pointer),
        ("synchronize", pointer),
    ]
    cuda_device.make_event()
    assert record.named("Event") == [("Event", True, True, False)]


def test_synchronizing_a_stream_waits_for_an_event_after_its_work(cuda_device, record):
    stream = cuda_device.make_stream()
    record.calls.clear()
    stream.synchronize()
    (name, pointer, recorded_in), waited = record.calls
    assert (name, recorded_in) == ("record", stream.handle)
    assert waited == ("synchronize", pointer)


def test_an_event_that_failed_is_not_taken_for_one_that_is_not_done_yet(cuda_device, record):
    event = cuda_device.make_event()
    for status, is_done in [(0, True), (600, False)]:
        record.event_status = status
        assert event.is_done is is_done
    record.event_status = 700
    with pytest.raises(DeviceError, match=r"cuda:1: asking whether an event is done: status 700.*compute-sanitizer"):
        _ = event.is_done


@pytest.mark.parametrize("error", [CudaRuntimeError(700), DriverError(700)])
def test_an_error_of_earlier_work_is_raised_by_the_next_wait(cuda_device, record, error):
    stream, event = cuda_device.make_stream(), cuda_device.make_event()
    record.fail["synchronize"] = [error, error]
    with pytest.raises(DeviceError, match="cuda:1: waiting for an event"):
        event.synchronize()
    with pytest.raises(DeviceError, match="earlier work"):
        stream.synchronize()


# --- memory


def test_memory_is_cudas_own_and_freed_once_also_when_it_is_unreferenced(cuda_device, record):
    memory = cuda_device.allocate(1000)
    address = memory.address
    assert memory.nbytes == 1000
    memory.free()
    memory.free()
    del memory
    gc.collect()
    assert record.named("malloc", "free") == [("malloc", 1000), ("free", address)]
    record.calls.clear()
    address = cuda_device.allocate(0).address
    assert record.calls == [("malloc", 1), ("torch device", 1), ("free", address), ("torch device", 0)]


def test_an_error_while_freeing_is_raised_except_in_a_finalizer(cuda_device, record):
    record.fail["free"] = [CudaRuntimeError(700), CudaRuntimeError(700)]
    with pytest.raises(DeviceError, match="cuda:1: freeing memory: status 700"):
        cuda_device.allocate(10).free()
    cuda_device.allocate(10)
    assert record.fail["free"] == []


def test_at_the_end_of_the_process_memory_is_left_to_the_driver(cuda_device):
    assert not cuda_device.allocate(1)._finalizer.atexit
    assert not cuda_device.allocate_pinned(1)._finalizer.atexit


def test_a_failed_allocation_is_repeated_after_torchs_cache_is_emptied(cuda_device, record):
    record.fail["malloc"] = [CudaRuntimeError(OUT_OF_MEMORY)]
    cuda_device.allocate(1000).free()
    assert [call[0] for call in record.named("malloc", "empty_cache", "free")] == [
        "malloc", "empty_cache", "malloc", "free",
    ]  # fmt: skip


def test_too_little_memory_is_reported_in_bytes_and_another_error_is_no_lack_of_memory(cuda_device, record):
    record.fail["malloc"] = [CudaRuntimeError(OUT_OF_MEMORY)] * 2
    with pytest.raises(
        DeviceError,
        match=r"cuda:1 \(GPU 1\).*9999.*4096.*1073741824.*701.*resident=False",
    ):
        cuda_device.allocate(9999)
    record.fail["hostAlloc"] = [CudaRuntimeError(OUT_OF_MEMORY)]
    with pytest.raises(DeviceError, match=r"100 bytes.*ulimit -l"):
        cuda_device.allocate_pinned(100)
    record.calls.clear()
    record.fail["malloc"] = [CudaRuntimeError(700)]
    with pytest.raises(DeviceError, match="allocating 9999 bytes: status 700"):
        cuda_device.allocate(9999)
    assert record.named("empty_cache") == []


def test_pinned_memory_is_an_array_that_keeps_it(cuda_device, record):
    memory = cuda_device.allocate_pinned(100)
    address, array = memory.address, memory.array
    assert record.calls == [("hostAlloc", 100, 1)]
    assert array.shape == (100,)
    assert array.dtype == np.uint8
    array[7] = 3
    assert record.host_memory[address][7] == 3
    del memory
    gc.collect()
    assert record.named("freeHost") == []
    del array
    gc.collect()
    assert record.named("freeHost") == [("freeHost", address)]


def test_a_copy_finds_out_the_direction_by_itself(cuda_device, record):
    stream = cuda_device.make_stream()
    record.calls.clear()
    cuda_device.copy(11, 22, 33, stream)
    cuda_device.copy(11, 22, 0, stream)
    assert record.calls == [("memcpyAsync", 11, 22, 33, 4, stream.handle)]


# --- CuPy itself


def test_cupy_has_everything_that_is_used():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: pip install 'gpubeton[cuda13]'")
    other_cuda, runtime = RecordedCuda().cupy().cuda, cupy.cuda.runtime
    assert [name for name in vars(other_cuda.runtime) if not hasattr(runtime, name)] == []
    assert (runtime.hostAllocPortable, runtime.memcpyDefault) == (1, 4)
    assert runtime.CUDARuntimeError(700).status == 700
    assert issubclass(cupy.cuda.driver.CUDADriverError, RuntimeError)
    assert issubclass(cupy.cuda.compiler.CompileException, Exception)
    taken = inspect.signature(cupy.cuda.compiler.compile_using_nvrtc).parameters
    assert set(inspect.signature(other_cuda.compiler.compile_using_nvrtc).parameters) <= set(taken)
    assert callable(cupy.cuda.nvrtc.getVersion)
    module = cupy.cuda.function.Module()
    assert callable(module.load)
    assert callable(module.get_function)
    for kind in ("Stream", "Event"):
        taken = inspect.signature(getattr(cupy.cuda, kind).__init__).parameters
        assert list(inspect.signature(getattr(other_cuda, kind).__init__).parameters) == list(taken)
    for kind, methods in {"Stream": ["wait_event"], "Event": ["record", "synchronize"]}.items():
        assert [name for name in methods if not hasattr(getattr(cupy.cuda, kind), name)] == []


@pytest.mark.parametrize("status", [3, 35, 100, 101, 802, 803, 804, 999])
def test_cuda_that_does_not_start_is_not_blamed_on_earlier_work(record, monkeypatch, status):
    monkeypatch.setattr("gpubeton._gpu.libraries.driver_version", lambda: (12, 4))
    record.fail["getDeviceCount"] = [CudaRuntimeError(status)]
    with pytest.raises(DeviceError, match=r"counting the GPUs: status \d+\. CUDA cannot be used") as caught:
        open_device(0)
    assert "the driver is for CUDA 12.4" in str(caught.value)
    assert "[cuda12]" in str(caught.value)
    assert "earlier work" not in str(caught.value)


def test_a_users_allocator_without_a_cache_does_not_hide_the_lack_of_memory(cuda_device, record, monkeypatch):
    def refuse():
        raise RuntimeError("PluggableAllocator does not yet support emptyCache")

    monkeypatch.setattr(torch.cuda, "empty_cache", refuse)
    record.fail["malloc"] = [CudaRuntimeError(OUT_OF_MEMORY), CudaRuntimeError(OUT_OF_MEMORY)]
    with pytest.raises(DeviceError, match="100 bytes were asked for"):
        cuda_device.allocate(100)
