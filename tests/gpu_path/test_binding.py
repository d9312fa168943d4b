"""What the binding does around nvJPEG's calls: errors, and how long things live."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path

import pytest

from gpubeton.errors import NvjpegError
from tests.gpu_path.gpu_room import HARDWARE, INTERPOLATED, Handle, Library, State, Status
from tests.gpu_path.recording_library import RecordingLibrary, batch

ROOT = Path(__file__).resolve().parent.parent.parent
STREAM = 0x77


@pytest.fixture
def library():
    return RecordingLibrary()


@pytest.fixture
def handle(library):
    return Handle(Library(library, "libnvjpeg.so", (13, 0, 1)), HARDWARE, INTERPOLATED)


# --- errors


def test_a_status_becomes_an_error_with_the_call_and_advice(library, handle):
    library.statuses["nvjpegDecodeBatchedPreAllocate"] = 5
    with pytest.raises(NvjpegError) as caught:
        State(handle).preallocate(56, 4000, 3000)
    assert (caught.value.call, caught.value.status) == ("nvjpegDecodeBatchedPreAllocate", Status.ALLOCATOR_FAILURE)
    message = str(caught.value)
    assert message.startswith("nvjpegDecodeBatchedPreAllocate: status 5 (ALLOCATOR_FAILURE): memory")
    assert "smaller batches" in message
    assert message.endswith("(nvJPEG 13.0.1, libnvjpeg.so)")


def test_an_unknown_status_and_success_that_made_nothing_are_errors_too(library, handle, monkeypatch):
    library.statuses["nvjpegJpegStateCreate"] = 77
    with pytest.raises(NvjpegError, match="77"):
        State(handle)
    monkeypatch.setattr(library, "make", lambda _: None)
    with pytest.raises(NvjpegError, match="nvjpegCreateEx"):
        Handle(Library(library, "libnvjpeg.so", (13, 0, 1)))


@pytest.mark.parametrize(("is_there", "advice"), [(True, "no JPEG engines"), (False, "compute,utility,video")])
def test_hardware_without_access_and_missing_hardware_have_different_errors(library, monkeypatch, is_there, advice):
    def open_library(name):
        assert name == "libnvcuvid.so.1"
        if not is_there:
            raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("gpubeton._gpu.nvjpeg.ctypes.CDLL", open_library)
    library.statuses["nvjpegCreateEx"] = 7
    with pytest.raises(NvjpegError, match=advice) as caught:
        Handle(Library(library, "libnvjpeg.so", (13, 0, 1)))
    assert caught.value.status == Status.ARCH_MISMATCH


@pytest.mark.parametrize(("driver", "advice"), [(None, "no driver answers"), ((12, 4), "is for CUDA 12.4")])
def test_a_missing_driver_and_an_old_one_have_different_errors(library, monkeypatch, driver, advice):
    monkeypatch.setattr("gpubeton._gpu.libraries.driver_version", lambda: driver)
    library.statuses["nvjpegCreateEx"] = 6
    with pytest.raises(NvjpegError, match=advice):
        Handle(Library(library, "libnvjpeg.so", (13, 0, 1)))


# --- lifetimes


def test_closing_twice_destroys_once_and_a_closed_object_is_refused_by_name(library, handle):
    state = State(handle)
    for _ in range(2):
        state.close()
    assert library.names().count("nvjpegJpegStateDestroy") == 1
    with pytest.raises(NvjpegError, match="State"):
        state.initialize(1)
    handle.close()
    with pytest.raises(NvjpegError, match="Handle"):
        State(handle)


def test_the_arrays_of_the_latest_batch_are_kept_until_the_next(handle):
    state, arrays = State(handle), batch()
    state.initialize(3)
    references = [weakref.ref(array) for array in arrays]
    state.decode_batched(*arrays, STREAM)
    del arrays
    assert all(array() is not None for array in references)
    state.decode_batched(*batch(), STREAM)
    assert all(array() is None for array in references)


def test_an_initialize_that_failed_leaves_the_state_uninitialized(library, handle):
    state = State(handle)
    state.initialize(3)
    library.statuses["nvjpegDecodeBatchedInitialize"] = 2
    with pytest.raises(NvjpegError):
        state.initialize(0)
    assert state.batch == 0


def test_a_destruction_that_fails_is_an_error(library, handle):
    library.statuses["nvjpegDestroy"] = 8
    with pytest.raises(NvjpegError, match=r"nvjpegDestroy: status 8 \(INTERNAL_ERROR\)"):
        handle.close()


def test_unreferenced_objects_are_destroyed_and_the_handle_last(library):
    state = State(Handle(Library(library, "libnvjpeg.so", (13, 0, 1))))
    gc.collect()
    assert not any("Destroy" in name for name in library.names())
    del state
    gc.collect()
    assert library.names()[-2:] == ["nvjpegJpegStateDestroy", "nvjpegDestroy"]


def test_a_forked_child_destroys_nothing(library, handle):
    state = State(handle)
    child = os.fork()
    if child == 0:
        before = len(library.calls)
        state.close()
        os._exit(0 if len(library.calls) == before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert state.pointer


def test_objects_alive_at_the_end_of_the_interpreter_are_not_destroyed():
    script = """
        import sys
        from gpubeton._gpu.nvjpeg import Handle, Library, State
        from tests.gpu_path.recording_library import RecordingLibrary, batch

        class Shouting(RecordingLibrary):
            def __getitem__(self, name):
                print(name, flush=True)
                return super().__getitem__(name)

        state = State(Handle(Library(Shouting(), "libnvjpeg.so", (13, 0, 1))))
        forgotten = Handle(Library(Shouting(), "libnvjpeg.so", (13, 0, 1)))
        del forgotten
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.split() == ["nvjpegCreateEx", "nvjpegJpegStateCreate", "nvjpegCreateEx", "nvjpegDestroy"]
