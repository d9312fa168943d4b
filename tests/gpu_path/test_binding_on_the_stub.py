"""The binding with a library behind it that has nvJPEG's binary interface and decodes: the simulator's."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from gpubeton.errors import NvjpegError, OptionError
from gpubeton.gpu.nvjpeg import (
    Backend,
    ChromaSubsampling,
    ExifOrientation,
    Flags,
    JpegEncoding,
    ScaleFactor,
    Status,
    StreamAllocator,
    load,
)
from tests.cpu.pictures import decoded, jpeg
from tests.simulator.active_device import device, faults, simulated_device
from tests.simulator.nvjpeg_bench import BATCHED, HEIGHT, LEFT, PHOTO, TAKEN, WIDTH, bench

__all__ = ["bench", "device", "faults", "simulated_device"]

ROOT = Path(__file__).resolve().parent.parent.parent
REFUSALS = [status for status in Status if status is not Status.SUCCESS]


def parsed(handle, image):
    """A JPEG stream, and the memory that has to stay."""
    memory = np.frombuffer(image, np.uint8)
    stream = handle.make_stream()
    stream.parse(memory.ctypes.data, len(image))
    return stream, memory


# --- batches


@pytest.mark.parametrize("backend", BATCHED)
def test_several_states_have_batches_under_way_at_once(bench, faults, backend):
    faults.slow_down(3000, seed=5)
    images = list(TAKEN.values())
    benches = [bench(backend, images[shift:] + images[:shift]) for shift in range(3)]
    for made in benches:
        made.state.preallocate(len(images), WIDTH, HEIGHT)
        made.decode()
    for shift, made in enumerate(benches):
        made.stream.synchronize()
        for index in range(len(images)):
            np.testing.assert_array_equal(made.pixels(index), decoded(images[(index + shift) % len(images)]))


def test_a_state_takes_batch_after_batch_once_it_is_initialised(bench, faults):
    made = bench(Backend.GPU_HYBRID, [TAKEN["4:2:0"], TAKEN["gray"]])
    made.decode()
    for _ in range(3):
        made.stream.synchronize()
        made.state.decode_batched(made.addresses, made.sizes, made.targets, made.stream.handle)
    made.stream.synchronize()
    np.testing.assert_array_equal(made.pixels(1), decoded(TAKEN["gray"]))
    assert faults.count("nvjpegDecodeBatched") == 4
    assert faults.count("nvjpegDecodeBatchedInitialize") == 1


@pytest.mark.parametrize("status", REFUSALS)
def test_the_status_of_one_image_is_that_of_its_batch(bench, faults, status):
    images = [TAKEN["4:2:0"], TAKEN["4:4:4"], TAKEN["gray"]]
    made = bench(images=images)
    faults.fail_image(status, index=1)
    with pytest.raises(NvjpegError, match=rf"nvjpegDecodeBatched: status {status.value} \({status.name}\)") as caught:
        made.decode()
    assert (caught.value.call, caught.value.status) == ("nvjpegDecodeBatched", status)
    assert made.state.batch == 0


@pytest.mark.parametrize("status", REFUSALS)
def test_the_status_of_an_image_alone_is_its_own(bench, faults, status):
    made = bench(Backend.GPU_HYBRID, [TAKEN["4:2:0"], TAKEN["4:4:4"]])
    faults.fail_image(status, TAKEN["4:4:4"])
    made.decode_alone(0)
    with pytest.raises(NvjpegError, match=rf"nvjpegDecode: status {status.value} \({status.name}\)"):
        made.decode_alone(1)
    made.stream.synchronize()
    np.testing.assert_array_equal(made.pixels(0), decoded(TAKEN["4:2:0"]))


def test_after_a_bad_image_the_others_are_decoded_one_by_one_and_the_state_goes_on(bench, faults):
    junk = TAKEN["4:2:0"][:200] + bytes(500)
    images = [TAKEN["4:2:0"], junk, TAKEN["4:4:4"], TAKEN["gray"]]
    made = bench(images=images)
    with pytest.raises(NvjpegError):
        made.decode()
    made.stream.synchronize()
    good = [0, 2, 3]
    with pytest.raises(NvjpegError, match="nvjpegDecode: "):
        made.decode_alone(1)
    for index in good:
        made.decode_alone(index)
    made.stream.synchronize()
    for index in good:
        np.testing.assert_array_equal(made.pixels(index), decoded(images[index]))
        made.outputs[index].array[:] = 0
    made.state.initialise(len(good))
    made.state.decode_batched(made.addresses[good], made.sizes[good], made.targets[good], made.stream.handle)
    made.stream.synchronize()
    for index in good:
        np.testing.assert_array_equal(made.pixels(index), decoded(images[index]))


def test_what_would_crash_nvjpeg_does_not_reach_it(bench, faults):
    faults.crash = True  # the process would end
    made = bench(images=[TAKEN["4:2:0"], TAKEN["4:4:4"]])
    arrays = made.addresses, made.sizes, made.targets
    with pytest.raises(NvjpegError, match="initialise"):
        made.state.decode_batched(*arrays, made.stream.handle)
    made.state.initialise(3)
    with pytest.raises(OptionError, match=r"addresses: uint64 of shape \(2,\); expected .* \(3,\)"):
        made.state.decode_batched(*arrays, made.stream.handle)
    assert faults.count("nvjpegDecodeBatched") == 0
    made.state.initialise(2)
    made.state.decode_batched(*arrays, made.stream.handle)
    made.stream.synchronize()
    np.testing.assert_array_equal(made.pixels(1), decoded(TAKEN["4:4:4"]))


def test_a_batch_with_wishes_decodes_each_image_as_it_is_wished(bench):
    made = bench(images=[TAKEN["4:4:4"]] * 2)
    left, right = made.handle.make_params(), made.handle.make_params()
    left.set_region(0, 0, 8, HEIGHT)
    right.set_region(WIDTH - 8, 0, 8, HEIGHT)
    made.state.initialise(2)
    made.state.decode_batched_ex(made.addresses, made.sizes, made.targets, [left, right], made.stream.handle)
    made.stream.synchronize()
    whole = decoded(TAKEN["4:4:4"])
    np.testing.assert_array_equal(made.pixels(0, width=8), whole[:, :8])
    np.testing.assert_array_equal(made.pixels(1, width=8), whole[:, -8:])


def test_wishes_of_a_batch_are_refused_by_other_backends(bench):
    made = bench(Backend.GPU_HYBRID)
    made.state.initialise(1)
    with pytest.raises(NvjpegError, match=r"status 9 \(IMPLEMENTATION_NOT_SUPPORTED\)"):
        made.state.decode_batched_ex(
            made.addresses, made.sizes, made.targets, [made.handle.make_params()], made.stream.handle
        )


# --- handles


def test_without_engines_the_hardware_is_refused_and_the_rest_remains(faults, device):
    faults.engines = 0
    with pytest.raises(NvjpegError, match="use the backend GPU_HYBRID") as caught:
        load().create(Backend.HARDWARE)
    assert (caught.value.call, caught.value.status) == ("nvjpegCreateEx", Status.ARCH_MISMATCH)
    assert load().create(Backend.GPU_HYBRID).hardware_engines() == (0, 0)


def test_a_handle_tells_its_engines_and_keeps_its_padding(faults, device):
    faults.engines, faults.cores = 4, 2
    handle = load().create(Backend.HARDWARE, Flags.UPSAMPLING_WITH_INTERPOLATION)
    assert handle.hardware_engines() == (4, 2)
    handle.device_padding = 1 << 20
    handle.pinned_padding = 1 << 21
    assert (handle.device_padding, handle.pinned_padding) == (1 << 20, 1 << 21)


def test_a_simple_handle_decodes(bench, faults):
    made = bench()
    handle = load().create_simple()
    state = handle.make_state()
    state.decode(int(made.addresses[0]), int(made.sizes[0]), made.targets, made.stream.handle)
    made.stream.synchronize()
    np.testing.assert_array_equal(made.pixels(), decoded(TAKEN["4:2:0"]))
    assert faults.count("nvjpegCreateSimple") == 1


def test_what_is_dropped_without_being_closed_is_given_back(faults, device):
    kinds = ("handle", "state", "jpeg stream", "parameters", "decoder", "buffer")
    gc.collect()  # what other tests left
    before = [faults.live(kind) for kind in kinds]
    handle = load().create(Backend.HARDWARE)
    decoder = handle.make_decoder(Backend.HYBRID)
    things = [handle.make_state(), decoder.make_state(), handle.make_stream(), handle.make_params()]
    things += [handle.make_pinned_buffer(), handle.make_device_buffer()]
    made = [faults.live(kind) - count for kind, count in zip(kinds, before, strict=True)]
    assert made == [1, 2, 1, 1, 1, 2]
    del handle, decoder, things
    gc.collect()
    assert [faults.live(kind) for kind in kinds] == before


def test_memory_in_the_order_of_a_stream_comes_with_its_context(device):
    calls = []

    def allocate(context, address, nbytes, stream):
        memory = device.allocate(nbytes)
        calls.append(("allocate", context, nbytes, stream, memory))
        address[0] = memory.address
        return 0

    def free(context, address, nbytes, stream):
        memory = calls[0][4]
        assert memory.address == address
        memory.free()
        calls.append(("free", context, nbytes))
        return 0

    allocator = StreamAllocator(StreamAllocator.Allocate(allocate), StreamAllocator.Free(free), 0x55)
    stream = device.make_stream()
    buffer = load().create(Backend.HYBRID).make_device_buffer(allocator)
    buffer.resize(4096, stream.handle)
    assert calls[0][:4] == ("allocate", 0x55, 4096, stream.handle)
    assert buffer.retrieve() == (4096, calls[0][4].address)
    buffer.close()
    assert calls[1] == ("free", 0x55, 4096)


# --- questions


@pytest.mark.parametrize(
    ("image", "subsampling"),
    [
        ("4:4:4", ChromaSubsampling.CSS_444),
        ("4:2:2", ChromaSubsampling.CSS_422),
        ("4:2:0", ChromaSubsampling.CSS_420),
        ("4:4:0", ChromaSubsampling.CSS_440),
        ("4:1:1", ChromaSubsampling.CSS_411),
        ("gray", ChromaSubsampling.CSS_GRAY),
    ],
)
def test_a_parsed_jpeg_answers(bench, image, subsampling):
    content = {**TAKEN, **LEFT}[image]
    made = bench()
    stream, memory = parsed(made.handle, content)
    assert stream.dimensions == (HEIGHT, WIDTH)
    assert stream.subsampling is subsampling
    assert stream.encoding is JpegEncoding.BASELINE_DCT
    assert stream.orientation is ExifOrientation.UNKNOWN
    assert stream.precision == 8
    assert stream.number_of_components == (1 if image == "gray" else 3)
    assert stream.component_dimensions(0) == (HEIGHT, WIDTH)
    info = made.handle.image_info(memory.ctypes.data, len(content))
    assert info.subsampling is subsampling
    assert info.heights[0] == HEIGHT
    assert len(info.widths) == stream.number_of_components


def test_a_progressive_jpeg_says_so(bench):
    stream, _ = parsed(bench().handle, LEFT["progressive"])
    assert stream.encoding is JpegEncoding.PROGRESSIVE_DCT_HUFFMAN


@pytest.mark.parametrize(
    "damage", [b"", b"\xff\xd8", b"not a JPEG at all, by no means"], ids=["nothing", "cut", "junk"]
)
def test_what_is_no_jpeg_is_an_error_to_parse(bench, damage):
    handle = bench().handle
    memory = np.frombuffer(damage + bytes(8), np.uint8)
    for ask in (handle.make_stream().parse, handle.make_stream().parse_header, handle.image_info):
        with pytest.raises(NvjpegError) as caught:
            ask(memory.ctypes.data, len(damage))
        assert caught.value.status in {Status.BAD_JPEG, Status.INCOMPLETE_BITSTREAM}


def test_bytes_that_were_copied_need_not_stay(bench, faults):
    made = bench(Backend.HYBRID)
    content = bytearray(TAKEN["4:2:0"])
    memory = np.frombuffer(content, np.uint8)
    stream = made.handle.make_stream()
    stream.parse(memory.ctypes.data, len(content), keep_bytes=True)
    memory[:] = 0
    decoder = made.handle.make_decoder(Backend.HYBRID)
    state = decoder.make_state()
    state.attach_pinned(made.handle.make_pinned_buffer())
    state.attach_device(made.handle.make_device_buffer())
    state.decode(stream, made.targets, made.handle.make_params(), made.stream.handle)
    made.stream.synchronize()
    np.testing.assert_array_equal(made.pixels(), decoded(TAKEN["4:2:0"]))


@pytest.mark.parametrize("image", [*TAKEN, *LEFT])
def test_whether_a_batch_may_hold_an_image_can_be_asked_before(bench, image):
    handle = bench().handle
    stream, _memory = parsed(handle, {**TAKEN, **LEFT}[image])
    assert handle.is_batch_supported(stream) is (image in TAKEN)
    assert handle.is_batch_supported(stream, handle.make_params()) is (image in TAKEN)


def test_whether_a_batch_may_have_a_wish_can_be_asked_before(bench):
    hardware, other = bench().handle, bench(Backend.GPU_HYBRID).handle
    for handle, is_supported in ((hardware, True), (other, False)):
        stream, _memory = parsed(handle, TAKEN["4:2:0"])
        params = handle.make_params()
        params.set_scale(ScaleFactor.HALF)
        assert handle.is_batch_supported(stream, params) is is_supported
        params.set_scale(ScaleFactor.NONE)
        assert handle.is_batch_supported(stream, params)
        params.set_region(0, 0, WIDTH + 1, 1)
        assert not handle.is_batch_supported(stream, params)


def test_a_decoder_takes_cmyk_once_it_is_allowed_and_what_the_engines_leave(bench):
    handle = bench().handle
    decoder, params = handle.make_decoder(Backend.HYBRID), handle.make_params()
    cmyk, _first = parsed(handle, LEFT["CMYK"])
    progressive, _second = parsed(handle, LEFT["progressive"])
    assert decoder.is_supported(progressive, params)
    assert not decoder.is_supported(cmyk, params)
    params.set_allow_cmyk(True)
    assert decoder.is_supported(cmyk, params)
    assert not handle.make_decoder(Backend.HARDWARE).is_supported(progressive, params)


# --- threads


def test_python_goes_on_while_a_call_waits():
    script = """
        import threading, time
        import numpy as np
        from gpubeton.gpu.nvjpeg import Backend
        from tests.simulator.device import SimulatedDevice
        from tests.simulator.faults import Faults
        from tests.simulator.nvjpeg_bench import Bench, TAKEN

        faults, device = Faults(), SimulatedDevice(0)
        with device.active():
            bench = Bench(device, Backend.GPU_HYBRID, [TAKEN["gray"]])
            with faults.held(bench.stream):
                bench.decode()

                def close():
                    with device.active():
                        bench.state.close()  # which waits for the stream

                thread = threading.Thread(target=close)
                thread.start()
                time.sleep(0.3)
                assert thread.is_alive(), "it did not wait"
            thread.join()
        print("went on")
    """
    from tests.simulator.build import build

    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env={"GPUBETON_NVJPEG": str(build()), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.stdout == "went on\n", run.stderr


def test_pictures_of_several_sizes_share_a_batch(device, bench):
    small = jpeg(PHOTO[:16, :24])
    made = bench(images=[TAKEN["4:2:0"], small])
    made.decode()
    made.stream.synchronize()
    np.testing.assert_array_equal(made.pixels(1, 16, 24), decoded(small))
