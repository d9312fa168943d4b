"""What the binding gives to nvJPEG, and what it refuses to give."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, c_int, c_size_t, c_void_p

import numpy as np
import pytest

from gpubeton.errors import NvjpegError, OptionError
from gpubeton.gpu.nvjpeg import (
    IMAGE,
    Backend,
    ChromaSubsampling,
    DeviceAllocator,
    ExifOrientation,
    Flags,
    Handle,
    OutputFormat,
    PinnedAllocator,
    ScaleFactor,
    StreamAllocator,
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


def test_allocators_decide_which_function_makes_the_handle(library):
    allocate = DeviceAllocator.Allocate(lambda *_: 0)
    free = DeviceAllocator.Free(lambda _: 0)
    first = DeviceAllocator(allocate, free)
    handle = Handle(Calls(library, "nvJPEG"), Backend.DEFAULT, device_allocator=first)
    assert library.arguments("nvjpegCreateEx")[1:3] == (ctypes.addressof(first), None)
    second = StreamAllocator(context=5)
    other = Handle(Calls(library, "nvJPEG"), Backend.DEFAULT, pinned_allocator=second)
    assert library.arguments("nvjpegCreateExV2")[1:3] == (None, ctypes.addressof(second))
    assert not handle.is_closed
    assert not other.is_closed
    with pytest.raises(TypeError, match="these are mixed"):
        Handle(Calls(library, "nvJPEG"), Backend.DEFAULT, device_allocator=first, pinned_allocator=second)


def test_allocators_live_as_long_as_what_uses_them(library):
    allocator = StreamAllocator()
    handle = Handle(Calls(library, "nvJPEG"), Backend.DEFAULT, device_allocator=allocator)
    kept = weakref.ref(allocator)
    del allocator
    assert kept() is not None
    handle.close()
    assert kept() is None


def test_allocators_have_the_fields_of_c():
    pointer = ctypes.sizeof(c_void_p)
    assert ctypes.sizeof(DeviceAllocator) == ctypes.sizeof(PinnedAllocator) == 2 * pointer
    assert ctypes.sizeof(StreamAllocator) == 3 * pointer
    assert DeviceAllocator.Allocate._argtypes_ == (POINTER(c_void_p), c_size_t)
    assert StreamAllocator.Free._argtypes_ == (c_void_p, c_void_p, c_size_t, c_void_p)
    assert PinnedAllocator.Allocate._restype_ is c_int


def test_buffers_know_their_kind_and_their_allocator(library, handle):
    allocator = StreamAllocator()
    pinned, device = handle.make_pinned_buffer(allocator), handle.make_device_buffer()
    pinned.resize(1 << 20, STREAM)
    device.resize(1 << 21, STREAM)
    assert library.arguments("nvjpegBufferPinnedCreateV2")[:2] == (handle.pointer, ctypes.addressof(allocator))
    assert library.arguments("nvjpegBufferDeviceCreate")[:2] == (handle.pointer, None)
    assert library.arguments("nvjpegBufferPinnedResize") == (pinned.pointer, 1 << 20, STREAM)
    assert library.arguments("nvjpegBufferDeviceResize") == (device.pointer, 1 << 21, STREAM)
    device.close()
    assert library.names()[-1] == "nvjpegBufferDeviceDestroy"


def test_wishes_for_an_image_are_passed_on(library, handle):
    params = handle.make_params()
    params.set_output_format(OutputFormat.RGBI)
    params.set_region(1, 2, 30, 40)
    assert library.arguments("nvjpegDecodeParamsSetROI") == (params.pointer, 1, 2, 30, 40)
    params.set_whole_image()
    assert library.arguments("nvjpegDecodeParamsSetROI") == (params.pointer, 0, 0, -1, -1)
    params.set_allow_cmyk(True)
    params.set_scale(ScaleFactor.QUARTER)
    params.set_orientation(ExifOrientation.ROTATE_90)
    last = {name.removeprefix("nvjpegDecodeParamsSet"): arguments for name, arguments in library.calls[-5:]}
    assert last["AllowCMYK"] == (params.pointer, 1)
    assert last["ScaleFactor"] == (params.pointer, 2)
    assert last["ExifOrientation"] == (params.pointer, 6)
    assert library.arguments("nvjpegDecodeParamsSetOutputFormat") == (params.pointer, 5)


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


def test_a_batch_with_wishes_points_to_one_of_them_per_image(library, handle, state):
    first, second = handle.make_params(), handle.make_params()
    state.decode_batched_ex(*batch(), [first, second, first], STREAM)
    pointers = library.arguments("nvjpegDecodeBatchedEx")[5]
    found = np.ctypeslib.as_array(ctypes.cast(pointers, POINTER(c_size_t)), (3,))
    assert found.tolist() == [first.pointer, second.pointer, first.pointer]
    kept = weakref.ref(second)
    del first, second
    assert kept() is not None


@pytest.mark.parametrize("number", [2, 4])
def test_a_batch_with_too_few_or_too_many_wishes_is_refused(library, handle, state, number):
    with pytest.raises(OptionError, match=r"params: .*shape \(3,\)"):
        state.decode_batched_ex(*batch(), [handle.make_params()] * number, STREAM)
    assert "nvjpegDecodeBatchedEx" not in library.names()


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


def test_a_state_is_initialised_for_interleaved_rgb(library, handle, state):
    assert library.arguments("nvjpegDecodeBatchedInitialize") == (handle.pointer, state.pointer, 3, 1, 5)
    state.preallocate(3, 640, 480)
    assert library.arguments("nvjpegDecodeBatchedPreAllocate") == (handle.pointer, state.pointer, 3, 640, 480, 0, 5)
    state.preallocate(3, 640, 480, subsampling=ChromaSubsampling.CSS_420)
    assert library.arguments("nvjpegDecodeBatchedPreAllocate") == (handle.pointer, state.pointer, 3, 640, 480, 2, 5)


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
    first_alone, first_two = np.array([[1, 0, 0], [1, 1, 0]], np.uint64)
    yield "no address", (addresses * first_alone, sizes, targets), r"image 1 of the batch has no bytes \(address 0"
    yield "no size", (addresses, sizes * first_two, targets), r"image 2 of the batch has no bytes .*size 0\)"


@pytest.mark.parametrize(
    ("arrays", "message"), [pytest.param(*rest, id=name.replace(" ", "-")) for name, *rest in wrong_arrays()]
)
def test_arrays_that_nvjpeg_would_misread_are_refused(library, state, arrays, message):
    with pytest.raises(OptionError, match=message):
        state.decode_batched(*arrays, STREAM)
    assert "nvjpegDecodeBatched" not in library.names()
    assert state.batch == 3


# --- one image


def test_one_image_is_decoded_by_its_address(library, handle):
    state = handle.make_state()
    (target,) = batch(1)[2:]
    state.decode(0x5000, 321, target, STREAM)
    expected = (handle.pointer, state.pointer, 0x5000, 321, 5, target.ctypes.data, STREAM)
    assert library.arguments("nvjpegDecode") == expected
    with pytest.raises(OptionError, match=r"target: .* of shape \(2,\)"):
        state.decode(0x5000, 321, np.zeros(2, IMAGE), STREAM)


def test_an_image_goes_through_a_decoder_step_by_step(library, handle):
    decoder, jpeg, params = handle.make_decoder(Backend.GPU_HYBRID), handle.make_stream(), handle.make_params()
    state, (target,) = decoder.make_state(), batch(1)[2:]
    pinned, device = handle.make_pinned_buffer(), handle.make_device_buffer()
    state.attach_pinned(pinned)
    state.attach_device(device)
    jpeg.parse(0x5000, 321, keep_bytes=True)
    before = len(library.calls)
    state.decode_host(jpeg, params)
    state.transfer_to_device(jpeg, STREAM)
    state.decode_device(target, STREAM)
    state.decode(jpeg, target, params, STREAM)
    three = (handle.pointer, decoder.pointer, state.pointer)
    assert library.arguments("nvjpegStateAttachPinnedBuffer") == (state.pointer, pinned.pointer)
    assert library.arguments("nvjpegStateAttachDeviceBuffer") == (state.pointer, device.pointer)
    assert library.arguments("nvjpegJpegStreamParse") == (handle.pointer, 0x5000, 321, 0, 1, jpeg.pointer)
    assert library.calls[before:] == [
        ("nvjpegDecodeJpegHost", (*three, params.pointer, jpeg.pointer)),
        ("nvjpegDecodeJpegTransferToDevice", (*three, jpeg.pointer, STREAM)),
        ("nvjpegDecodeJpegDevice", (*three, target.ctypes.data, STREAM)),
        ("nvjpegDecodeJpeg", (*three, jpeg.pointer, target.ctypes.data, params.pointer, STREAM)),
    ]
