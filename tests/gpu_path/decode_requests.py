"""JPEGs in pinned memory with places for them on the device, as backends get them, for the tests of backends."""

from __future__ import annotations

import numpy as np

from gpubeton.fields.jpeg import decode_rgb
from tests.gpu_path.gpu_room import DecodedImages, lay_out_images

#: What new memory of the simulated device is full of.
GARBAGE = 0xCD


class DecodeRequests:
    """Makes requests, and looks at what became of them. The arena is pinned memory, which the test can read."""

    def __init__(self, device):
        self.device = device
        self.kept = []

    def make(self, images):
        staging = [self.device.allocate_pinned(len(image)) for image in images]
        for memory, image in zip(staging, images, strict=True):
            memory.array[:] = np.frombuffer(image, np.uint8)
        sizes = [decode_rgb(image).shape[:2] for image in images]
        height, width = (np.array([size[axis] for size in sizes], np.int32) for axis in (0, 1))
        layout = lay_out_images(height, width)
        arena = self.device.allocate_pinned(layout.nbytes)
        request = DecodedImages(
            program=0,
            rows=np.arange(len(images)),
            routes=np.zeros(len(images), np.int8),
            address=np.array([memory.address for memory in staging], np.uint64),
            target=layout.offset + np.uint64(arena.address),
            size=np.array([len(image) for image in images], np.uint64),
            pitch=layout.pitch,
            height=height,
            width=width,
        )
        self.kept.append((staging, arena, layout, images, request))
        return request

    def state_of(self, request):
        """For each image "decoded", "untouched" or "something else"."""
        (arena, layout, images) = next(entry[1:4] for entry in self.kept if entry[4] is request)
        results = []
        for start, pitch, image in zip(layout.offset.tolist(), layout.pitch.tolist(), images, strict=True):
            rgb = decode_rgb(image)
            height, width, _ = rgb.shape
            rows = arena.array[start : start + height * pitch].reshape(height, pitch)
            if np.array_equal(rows[:, : 3 * width].reshape(rgb.shape), rgb):
                results.append("decoded")
            else:
                results.append("untouched" if (rows == GARBAGE).all() else "something else")
        return results
