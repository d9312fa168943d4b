"""What the binding gives to nvJPEG, and what it refuses to give."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from gpubeton.errors import NvjpegError, OptionError
from gpubeton.gpu.nvjpeg import (
    Backend,
    Flags,
    Handle,
)
from gpubeton.gpu.nvjpeg.checked_calls import Calls
from tests.gpu_path.recording_library import RecordingLibrary, batch

STREAM = 0x77


@pytest.fixture
def library():
    return RecordingLibrary()


@pytest.fixture
def handle(library):
    return Handle(Calls(library, "nvJPEG 13.0.1"), Backend.HARDWARE, Flags.UPSAMPLING_WITH_INTERPOLATION)


@pytest.fixture
def state(handle):
    state = handle.make_state()
    state.initialise(3)
    return state


# --- making


def test_a_handle_is_made_with_its_backend_and_flags(library, handle):
    assert handle.backend is Backend.HARDWARE
    assert library.arguments("nvjpegCreateEx")[:4] == (3, None, None, 32)


# --- batches


def test_a_batch_is_given_by_the_addresses_of_its_arrays(library, handle, state):
    addresses, sizes, targets = batch()
    state.decode_batched(addresses, sizes, targets, STREAM)
    expected = (handle.pointer, state.pointer, addresses.ctypes.data, sizes.ctypes.data, targets.ctypes.data, STREAM)
    assert library.arguments("nvjpegDecodeBatched") == expected


def test_the_arrays_of_the_latest_batch_are_kept(state):
    arrays = batch()
    kept = [weakref.ref(array) for array in arrays]
    state.decode_batched(*arrays, STREAM)
    del arrays
    assert all(array() is not None for array in kept)
    state.decode_batched(*batch(), STREAM)
    assert all(array() is None for array in kept)


def test_a_batch_before_the_state_is_initialised_is_refused_since_nvjpeg_would_crash(library, handle):
    with pytest.raises(NvjpegError, match="initialise") as caught:
        handle.make_state().decode_batched(*batch(), STREAM)
    assert (caught.value.call, caught.value.status) == ("nvjpegDecodeBatched", -1)
    assert "nvjpegDecodeBatched" not in library.names()


def test_a_batch_that_failed_has_to_be_followed_by_initialise(library, state):
    library.statuses["nvjpegDecodeBatched"] = 3
    with pytest.raises(NvjpegError, match="BAD_JPEG"):
        state.decode_batched(*batch(), STREAM)
    library.statuses.clear()
    assert state.batch == 0
    with pytest.raises(NvjpegError, match="initialise"):
        state.decode_batched(*batch(), STREAM)
    state.initialise(3)
    state.decode_batched(*batch(), STREAM)


def test_an_initialise_that_failed_leaves_the_state_uninitialised(library, state):
    library.statuses["nvjpegDecodeBatchedInitialize"] = 2
    with pytest.raises(NvjpegError):
        state.initialise(0)
    assert state.batch == 0


def wrong_arrays():
    addresses, sizes, targets = batch(3)
    strided = np.zeros(6, np.uint64)[::2]
    unaligned = np.zeros(25, np.uint8)[1:].view(np.uint64)
    yield "addresses", (addresses[:2], sizes, targets), r"addresses: uint64 of shape \(2,\); expected .*shape \(3,\)"
    yield "sizes", (addresses, sizes.astype(np.int64), targets), "sizes: int64 of shape"
    yield "targets", (addresses, sizes, targets["channel"]), "targets: uint64 of shape"
    yield "a list", (addresses.tolist(), sizes, targets), "addresses: list; expected an ndarray"
    yield "strides", (addresses, strided, targets), "sizes: its entries do not lie one after the other"
    yield "alignment", (unaligned, sizes, targets), "addresses: its entries do not lie"


@pytest.mark.parametrize(
    ("arrays", "message"), [pytest.param(*rest, id=name.replace(" ", "-")) for name, *rest in wrong_arrays()]
)
def test_arrays_that_nvjpeg_would_misread_are_refused(library, state, arrays, message):
    with pytest.raises(OptionError, match=message):
        state.decode_batched(*arrays, STREAM)
    assert "nvjpegDecodeBatched" not in library.names()
    assert state.batch == 3


# --- one image
