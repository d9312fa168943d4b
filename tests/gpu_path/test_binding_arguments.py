"""The arguments that the binding passes to nvJPEG, and those that it refuses."""

from __future__ import annotations

import weakref

import pytest

from gpubeton.errors import NvjpegError
from tests.gpu_path.gpu_room import HARDWARE, INTERPOLATED, Handle, Library, State
from tests.gpu_path.recording_library import RecordingLibrary, batch

STREAM = 0x77


@pytest.fixture
def library():
    return RecordingLibrary()


@pytest.fixture
def handle(library):
    return Handle(Library(library, "libnvjpeg.so", (13, 0, 1)), HARDWARE, INTERPOLATED)


@pytest.fixture
def state(handle):
    state = State(handle)
    state.initialize(3)
    return state


# --- making


def test_a_handle_is_made_with_its_backend_and_flags(library, handle):
    assert library.arguments("nvjpegCreateEx")[:4] == (3, None, None, 32)


# --- batches


def test_a_batch_is_given_by_the_addresses_of_its_arrays(library, handle, state):
    addresses, sizes, targets = batch()
    state.decode_batched(addresses, sizes, targets, STREAM)
    expected = (handle.pointer, state.pointer, addresses.ctypes.data, sizes.ctypes.data, targets.ctypes.data, STREAM)
    assert library.arguments("nvjpegDecodeBatched") == expected


def test_the_arrays_of_the_latest_batch_are_kept(state):
    arrays = batch()
    references = [weakref.ref(array) for array in arrays]
    state.decode_batched(*arrays, STREAM)
    del arrays
    assert all(array() is not None for array in references)
    state.decode_batched(*batch(), STREAM)
    assert all(array() is None for array in references)


def test_a_batch_before_the_state_is_initialized_is_refused_since_nvjpeg_would_crash(library, handle):
    with pytest.raises(NvjpegError, match="initialize") as caught:
        State(handle).decode_batched(*batch(), STREAM)
    assert (caught.value.call, caught.value.status) == ("nvjpegDecodeBatched", -1)
    assert "nvjpegDecodeBatched" not in library.names()


def test_a_batch_that_failed_has_to_be_followed_by_initialize(library, state):
    library.statuses["nvjpegDecodeBatched"] = 3
    with pytest.raises(NvjpegError, match="BAD_JPEG"):
        state.decode_batched(*batch(), STREAM)
    library.statuses.clear()
    assert state.batch == 0
    with pytest.raises(NvjpegError, match="initialize"):
        state.decode_batched(*batch(), STREAM)
    state.initialize(3)
    state.decode_batched(*batch(), STREAM)


def test_an_initialize_that_failed_leaves_the_state_uninitialized(library, state):
    library.statuses["nvjpegDecodeBatchedInitialize"] = 2
    with pytest.raises(NvjpegError):
        state.initialize(0)
    assert state.batch == 0


def test_more_images_than_the_state_is_initialized_for_are_refused_since_nvjpeg_would_crash(library, state):
    with pytest.raises(NvjpegError, match="4 images for a state that is initialized for 3"):
        state.decode_batched(*batch(4), STREAM)
    assert "nvjpegDecodeBatched" not in library.names()
    assert state.batch == 3
