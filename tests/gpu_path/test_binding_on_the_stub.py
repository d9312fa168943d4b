"""The binding over a library that has nvJPEG's binary interface and decodes: the simulator's."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.nvjpeg_parts import Backend
from gpubeton.errors import NvjpegError
from tests.cpu.pictures import decoded, jpeg
from tests.gpu_path.gpu_room import Handle, Status, load
from tests.simulator.active_device import device, faults, simulated_device
from tests.simulator.nvjpeg_bench import BATCHED, HEIGHT, PHOTO, TAKEN, WIDTH, bench

__all__ = ["bench", "device", "faults", "simulated_device"]

ROOT = Path(__file__).resolve().parent.parent.parent
REFUSALS = [status for status in Status if status is not Status.SUCCESS]


# --- batches


@pytest.mark.parametrize("backend", BATCHED)
def test_several_states_have_batches_in_flight_at_once(bench, faults, backend):
    faults.slow_down(3000, seed=5)
    images = list(TAKEN.values())
    benches = [bench(backend, images[shift:] + images[:shift]) for shift in range(3)]
    for driven in benches:
        driven.state.preallocate(len(images), WIDTH, HEIGHT)
        driven.decode()
    for shift, driven in enumerate(benches):
        driven.stream.synchronize()
        for index in range(len(images)):
            np.testing.assert_array_equal(driven.pixels(index), decoded(images[(index + shift) % len(images)]))


def test_a_state_takes_batch_after_batch_once_it_is_initialized(bench, faults):
    result = bench(Backend.GPU_HYBRID, [TAKEN["4:2:0"], TAKEN["gray"]])
    result.decode()
    for _ in range(3):
        result.stream.synchronize()
        result.state.decode_batched(result.addresses, result.sizes, result.targets, result.stream.handle)
    result.stream.synchronize()
    np.testing.assert_array_equal(result.pixels(1), decoded(TAKEN["gray"]))
    assert faults.count("nvjpegDecodeBatched") == 4
    assert faults.count("nvjpegDecodeBatchedInitialize") == 1


@pytest.mark.parametrize("status", REFUSALS)
def test_the_status_of_one_image_is_that_of_its_batch(bench, faults, status):
    images = [TAKEN["4:2:0"], TAKEN["4:4:4"], TAKEN["gray"]]
    result = bench(images=images)
    faults.fail_image(status, index=1)
    with pytest.raises(NvjpegError, match=rf"nvjpegDecodeBatched: status {status.value} \({status.name}\)") as caught:
        result.decode()
    assert (caught.value.call, caught.value.status) == ("nvjpegDecodeBatched", status)
    assert result.state.batch == 0


@pytest.mark.parametrize("status", REFUSALS)
def test_the_status_of_an_image_alone_is_its_own(bench, faults, status):
    result = bench(Backend.GPU_HYBRID, [TAKEN["4:2:0"], TAKEN["4:4:4"]])
    faults.fail_image(status, TAKEN["4:4:4"])
    result.decode_alone(0)
    with pytest.raises(NvjpegError, match=rf"nvjpegDecode: status {status.value} \({status.name}\)"):
        result.decode_alone(1)
    result.stream.synchronize()
    np.testing.assert_array_equal(result.pixels(0), decoded(TAKEN["4:2:0"]))


def test_after_a_bad_image_the_others_are_decoded_one_by_one_and_the_state_remains_usable(bench, faults):
    junk = TAKEN["4:2:0"][:200] + bytes(500)
    images = [TAKEN["4:2:0"], junk, TAKEN["4:4:4"], TAKEN["gray"]]
    result = bench(images=images)
    with pytest.raises(NvjpegError):
        result.decode()
    result.stream.synchronize()
    good = [0, 2, 3]
    with pytest.raises(NvjpegError, match="nvjpegDecode: "):
        result.decode_alone(1)
    for index in good:
        result.decode_alone(index)
    result.stream.synchronize()
    for index in good:
        np.testing.assert_array_equal(result.pixels(index), decoded(images[index]))
        result.outputs[index].array[:] = 0
    result.state.initialize(len(good))
    result.state.decode_batched(result.addresses[good], result.sizes[good], result.targets[good], result.stream.handle)
    result.stream.synchronize()
    for index in good:
        np.testing.assert_array_equal(result.pixels(index), decoded(images[index]))


def test_arguments_that_would_crash_nvjpeg_do_not_reach_it(bench, faults):
    faults.crash = True  # the process would end
    result = bench(images=[TAKEN["4:2:0"], TAKEN["4:4:4"]])
    arrays = result.addresses, result.sizes, result.targets
    with pytest.raises(NvjpegError, match="initialize"):
        result.state.decode_batched(*arrays, result.stream.handle)
    result.state.initialize(3)
    with pytest.raises(NvjpegError, match="2 images for a state that is initialized for 3"):
        result.state.decode_batched(*arrays, result.stream.handle)
    assert faults.count("nvjpegDecodeBatched") == 0
    result.state.initialize(2)
    result.state.decode_batched(*arrays, result.stream.handle)
    result.stream.synchronize()
    np.testing.assert_array_equal(result.pixels(1), decoded(TAKEN["4:4:4"]))


# --- handles


def test_without_engines_the_hardware_is_refused_and_the_rest_remains(faults, device):
    faults.engines = 0
    with pytest.raises(NvjpegError, match=r"MIG slice|video") as caught:
        Handle(load(), Backend.HARDWARE)
    assert (caught.value.call, caught.value.status) == ("nvjpegCreateEx", Status.ARCH_MISMATCH)
    assert Handle(load(), Backend.GPU_HYBRID).hardware_engines() == (0, 0)


# --- threads


def test_python_runs_while_a_call_waits():
    script = """
        import threading, time
        import numpy as np
        from benchmarks.gpu.nvjpeg_parts import Backend
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
        check=False,
    )
    assert run.stdout == "went on\n", run.stderr


def test_pictures_of_several_sizes_share_a_batch(device, bench):
    small = jpeg(PHOTO[:16, :24])
    result = bench(images=[TAKEN["4:2:0"], small])
    result.decode()
    result.stream.synchronize()
    np.testing.assert_array_equal(result.pixels(1, 16, 24), decoded(small))
