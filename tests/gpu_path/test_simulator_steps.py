"""The simulated nvJPEG step by step, with wishes, and what it makes and takes."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from PIL import Image

from gpubeton.errors import NvjpegError
from gpubeton.gpu.nvjpeg import (
    Backend,
    ChromaSubsampling,
    DeviceAllocator,
    ExifOrientation,
    ScaleFactor,
    load,
)
from tests.cpu.pictures import decoded, jpeg, noise, pillow_jpeg
from tests.simulator.active_device import GARBAGE, device, faults, simulated_device
from tests.simulator.nvjpeg_bench import HEIGHT, PHOTO, TAKEN, WIDTH, bench

__all__ = ["bench", "device", "faults", "simulated_device"]


def test_a_region_a_scale_and_an_orientation_are_the_engines_wishes(bench):
    image = TAKEN["4:4:4"]
    made = bench(images=[image])
    whole = decoded(image)
    params = made.handle.make_params()
    made.state.initialise(1)

    def result(height, width):
        made.outputs[0].array[:] = GARBAGE
        made.state.decode_batched_ex(made.addresses, made.sizes, made.targets, [params], made.stream.handle)
        made.stream.synchronize()
        return made.pixels(height=height, width=width)

    params.set_region(5, 3, 20, 10)
    np.testing.assert_array_equal(result(10, 20), whole[3:13, 5:25])
    params.set_whole_image()
    params.set_scale(ScaleFactor.HALF)
    means = whole.reshape(HEIGHT // 2, 2, WIDTH // 2, 2, 3).sum(axis=(1, 3), dtype=int)
    np.testing.assert_array_equal(result(HEIGHT // 2, WIDTH // 2), (means + 2) // 4)


@pytest.mark.parametrize("orientation", list(ExifOrientation)[1:])
def test_images_are_turned_upright_as_pillow_does(bench, orientation):
    turned = noise(36, HEIGHT, seed=1)
    image = jpeg(turned, sampling="4:4:4")
    operation = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }.get(orientation)
    upright = Image.fromarray(decoded(image))
    expected = np.asarray(upright if operation is None else upright.transpose(operation))
    made = bench(images=[image])
    params = made.handle.make_params()
    params.set_orientation(orientation)
    made.state.initialise(1)
    made.state.decode_batched_ex(made.addresses, made.sizes, made.targets, [params], made.stream.handle)
    np.testing.assert_array_equal(made.pixels(height=expected.shape[0], width=expected.shape[1]), expected)


def test_wishes_of_a_batch_are_the_engines_alone(bench):
    made = bench(Backend.GPU_HYBRID)
    made.state.initialise(1)
    params = made.handle.make_params()
    with pytest.raises(NvjpegError) as caught:
        made.state.decode_batched_ex(made.addresses, made.sizes, made.targets, [params], made.stream.handle)
    assert caught.value.status == 9


def test_step_by_step_the_host_reads_the_bytes_and_the_stream_writes(bench, faults):
    made = bench(Backend.HYBRID)
    decoder = made.handle.make_decoder(Backend.HYBRID)
    state, parsed, params = decoder.make_state(), made.handle.make_stream(), made.handle.make_params()
    state.attach_pinned(made.handle.make_pinned_buffer())
    state.attach_device(made.handle.make_device_buffer())
    parsed.parse(int(made.addresses[0]), int(made.sizes[0]))
    with faults.held(made.stream):
        state.decode_host(parsed, params)
        made.inputs[0].array[:] = 0
        state.transfer_to_device(parsed, made.stream.handle)
        state.decode_device(made.targets, made.stream.handle)
        assert made.is_untouched()
    made.stream.synchronize()
    np.testing.assert_array_equal(made.pixels(), decoded(TAKEN["4:2:0"]))


def test_a_state_without_buffers_cannot_decode_step_by_step(bench, faults):
    made = bench(Backend.HYBRID)
    state = made.handle.make_decoder(Backend.HYBRID).make_state()
    parsed, params = made.handle.make_stream(), made.handle.make_params()
    parsed.parse(int(made.addresses[0]), int(made.sizes[0]))
    with pytest.raises(NvjpegError):
        state.decode_host(parsed, params)
    assert "no pinned buffer" in faults.take_misuses()[0]


def test_the_header_is_read_as_pillow_reads_it(bench):
    made = bench()
    exif = Image.Exif()
    exif[0x0112] = 6
    image = pillow_jpeg(PHOTO, exif=exif.tobytes(), subsampling=2, restart_marker_blocks=2)
    place = np.frombuffer(image, np.uint8)
    parsed = made.handle.make_stream()
    parsed.parse_header(place.ctypes.data, len(image))
    assert parsed.dimensions == (HEIGHT, WIDTH)
    assert parsed.number_of_components == 3
    assert parsed.component_dimensions(1) == (HEIGHT // 2, WIDTH // 2)
    assert parsed.subsampling == ChromaSubsampling.CSS_420
    assert parsed.orientation == ExifOrientation.ROTATE_90
    assert parsed.precision == 8
    info = made.handle.image_info(place.ctypes.data, len(image))
    assert (info.heights, info.widths) == ((HEIGHT, HEIGHT // 2, HEIGHT // 2), (WIDTH, WIDTH // 2, WIDTH // 2))


def test_memory_comes_from_the_allocator_that_is_given(device):
    taken = []

    def allocate(address, nbytes):
        memory = device.allocate(nbytes)
        taken.append(memory)
        address[0] = memory.address
        return 0

    def free(address):
        (memory,) = [memory for memory in taken if memory.address == address]
        memory.free()
        return 0

    allocator = DeviceAllocator(DeviceAllocator.Allocate(allocate), DeviceAllocator.Free(free))
    handle = load().create(Backend.HARDWARE, device_allocator=allocator)
    state = handle.make_state()
    state.preallocate(4, 10, 20)
    assert [memory.nbytes for memory in taken] == [4 * 10 * 20 * 3]
    handle.close()


def test_nothing_is_left_when_a_handle_is_closed(bench, faults):
    kinds = ("handle", "state", "jpeg stream", "parameters", "decoder", "buffer")
    gc.collect()  # what other tests left
    before = [faults.live(kind) for kind in kinds]
    made = bench()
    made.handle.make_stream()
    made.handle.make_params()
    made.decode()
    made.stream.synchronize()
    assert faults.live("state") > before[1]
    made.handle.close()
    assert [faults.live(kind) for kind in kinds] == before
