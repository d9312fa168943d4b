"""The simulated nvJPEG with images to decode, for the simulator's own tests."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu.nvjpeg_parts import Backend, decode_one
from gpubeton._gpu.nvjpeg import IMAGE, RGBI, Handle, State, load
from tests.cpu.pictures import jpeg, noise, pillow_jpeg, planes
from tests.cpu.plain_jpeg import components_of, write
from tests.simulator.active_device import GARBAGE

HEIGHT, WIDTH = 40, 52
PITCH = 3 * WIDTH + 20

BATCHED = [Backend.HARDWARE, Backend.GPU_HYBRID]
STREAM_ORDERED = [Backend.DEFAULT, Backend.HYBRID, Backend.GPU_HYBRID]

PHOTO = noise(HEIGHT, WIDTH)
TAKEN = {name: jpeg(PHOTO, sampling=name) for name in ("4:4:4", "4:2:2", "4:2:0", "4:4:0", "gray")}
LEFT = {
    "4:1:1": jpeg(PHOTO, sampling="4:1:1"),
    "progressive": pillow_jpeg(PHOTO, progressive=True),
    "CMYK": pillow_jpeg(PHOTO, mode="CMYK"),
    "separate scans": write(components_of(planes(TAKEN["4:4:4"]), ((1, 1),) * 3), HEIGHT, WIDTH, separate=True),
}


class Bench:
    """A handle and a state, images in pinned memory, and places for them on the device."""

    def __init__(self, device, backend, images):
        self.device = device
        self.handle = Handle(load(), backend)
        self.state = State(self.handle)
        self.stream = device.make_stream()
        self.inputs = [device.allocate_pinned(len(image)) for image in images]
        for memory, image in zip(self.inputs, images, strict=True):
            memory.array[:] = np.frombuffer(image, np.uint8)
        self.addresses = np.array([memory.address for memory in self.inputs], np.uint64)
        self.sizes = np.array([len(image) for image in images], np.uint64)
        self.outputs = [device.allocate_pinned(HEIGHT * PITCH) for _ in images]
        self.targets = np.zeros(len(images), IMAGE)
        self.targets["channel"][:, 0] = [memory.address for memory in self.outputs]
        self.targets["pitch"][:, 0] = PITCH

    def decode(self):
        self.state.initialize(len(self.inputs))
        self.state.decode_batched(self.addresses, self.sizes, self.targets, self.stream.handle)

    def decode_alone(self, index=0):
        target = self.targets[index : index + 1]
        address, size = int(self.addresses[index]), int(self.sizes[index])
        decode_one(self.state, address, size, target, self.stream.handle)

    def pixels(self, index=0, height=HEIGHT, width=WIDTH):
        rows = self.outputs[index].array[: height * PITCH].reshape(height, PITCH)
        return rows[:, : 3 * width].reshape(height, width, 3)

    def is_untouched(self, index=0):
        return bool((self.outputs[index].array == GARBAGE).all())

    def status_of_batch(self, stream=None):
        """The call itself, without what the binding looks at before."""
        pointers = self.handle.pointer, self.state.pointer
        arrays = (array.ctypes.data for array in (self.addresses, self.sizes, self.targets))
        stream = self.stream if stream is None else stream
        return self.handle.library.status("nvjpegDecodeBatched", *pointers, *arrays, stream and stream.handle)

    def status_of_initialize(self):
        pointers = self.handle.pointer, self.state.pointer
        return self.handle.library.status("nvjpegDecodeBatchedInitialize", *pointers, 1, 1, RGBI)


@pytest.fixture
def bench(device):
    """A function that makes one."""
    results = []

    def make(backend=Backend.HARDWARE, images=(TAKEN["4:2:0"],)):
        results.append(Bench(device, backend, images))
        return results[-1]

    yield make
    for result in results:
        result.stream.synchronize()
