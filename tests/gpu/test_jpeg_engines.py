"""The JPEG engines, called as a loader calls them: they are there, decode in time, and are near libjpeg-turbo."""

from __future__ import annotations

import io
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import torch
from PIL import Image

from benchmarks.gpu.pipelines import usual_pipeline
from benchmarks.harness.photos import list_photos
from gpubeton.loader import GpuOptions
from tests.gpu.comparing import images_loader
from tests.gpu_path.gpu_room import DecodedImages, DecodeRoute, lay_out_images, open_nvjpeg_backends


@pytest.fixture
def engines(gpu, nvjpeg):
    """The backend of the engines. Containers without the driver's `video` capability have none."""
    opened = open_nvjpeg_backends(gpu.device, nvjpeg, GpuOptions(), (1, 1))
    assert DecodeRoute.HARDWARE in opened.backends, opened.notes
    yield opened.backends[DecodeRoute.HARDWARE]
    opened.backends[DecodeRoute.HARDWARE].close()


@pytest.fixture
def files(gpu, photos):
    count = 3 if gpu.is_simulated else 40
    return [path.read_bytes() for path, _ in list_photos(Path(photos.folder))[:count]]


def decoded(gpu, engines, files):
    """What the engines make of some JPEGs, read by another stream that waits for their event alone."""
    device, reading = gpu.device, gpu.device.make_stream()
    headers = [simplejpeg.decode_jpeg_header(file) for file in files]
    height, width = (np.array([header[axis] for header in headers], np.int32) for axis in (0, 1))
    layout, sent = lay_out_images(height, width), [device.allocate_pinned(len(file)) for file in files]
    for memory, file in zip(sent, files, strict=True):
        memory.array[: len(file)] = np.frombuffer(file, np.uint8)
    arena, seen = device.allocate(layout.nbytes), device.allocate_pinned(layout.nbytes)
    images = DecodedImages(
        program=0,
        rows=np.arange(len(files)),
        routes=np.zeros(len(files), np.int8),
        address=np.array([memory.address for memory in sent], np.uint64),
        target=layout.offset + np.uint64(arena.address),
        size=np.array([len(file) for file in files], np.uint64),
        pitch=layout.pitch,
        height=height,
        width=width,
    )
    end, refused = engines.begin(images)
    assert refused == {}
    reading.wait(end)
    device.copy(seen.address, arena.address, layout.nbytes, reading)
    reading.synchronize()
    engines.settle()
    images = []
    for offset, pitch, rows, columns in zip(layout.offset.tolist(), layout.pitch.tolist(), height, width, strict=True):
        lines = seen.array[offset : offset + pitch * rows].reshape(rows, pitch)
        images.append(lines[:, : 3 * columns].reshape(rows, columns, 3).copy())
    return images


def differences(result, expected):
    """Largest mean difference of an image, and largest difference of all levels."""
    apart = [np.abs(output.astype(np.int16) - other) for output, other in zip(result, expected, strict=True)]
    return max(float(difference.mean()) for difference in apart), max(int(difference.max()) for difference in apart)


@pytest.mark.parametrize("sampling", ["444", "422", "420", "440", "Gray"])
def test_the_engines_are_near_libjpeg_turbo_for_every_chroma_sampling(gpu, engines, files, sampling):
    encoded = []
    for number, file in enumerate(files):  # of about 150 pixels a side, with partial blocks
        part = np.ascontiguousarray(simplejpeg.decode_jpeg(file)[: 150 + number % 17, : 150 + number % 19])
        space = "RGB"
        if sampling == "Gray":
            part, space = np.ascontiguousarray(part.mean(axis=2, keepdims=True).astype(np.uint8)), "GRAY"
        encoded.append(simplejpeg.encode_jpeg(part, 92, colorspace=space, colorsubsampling=sampling))
    expected, repeated = (
        [simplejpeg.decode_jpeg(file, fastupsample=fast) for file in encoded] for fast in (False, True)
    )
    mean, largest = differences(decoded(gpu, engines, encoded), expected)
    assert mean <= differences(repeated, expected)[0] + 1
    if sampling in ("444", "Gray"):
        # Each component is rounded by both: 1 and 1.772 levels, and the rounding of the result.
        assert largest <= 4


def test_photographs_are_near_pillows(gpu, engines, files):
    expected = []
    for file in files:
        with Image.open(io.BytesIO(file)) as image:
            expected.append(np.asarray(image.convert("RGB")))
    assert differences(decoded(gpu, engines, files), expected)[0] <= 2.5


def test_the_engines_agree_with_torchvision_on_the_gpu(gpu, engines, files):
    torchvision = pytest.importorskip("torchvision.io")
    if gpu.is_simulated:
        pytest.skip("torchvision decodes on a real GPU alone")
    tensors = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
    images = torchvision.decode_jpeg(tensors, mode=torchvision.ImageReadMode.RGB, device="cuda:0")
    expected = [image.permute(1, 2, 0).cpu().numpy() for image in images]
    # It may repeat chroma where we interpolate; the rest is one library.
    assert differences(decoded(gpu, engines, files), expected)[0] <= 2.5


@pytest.mark.parametrize("name", ["beton", "indexed"])
def test_graphs_can_be_captured_while_a_loader_works(gpu, photos, name):
    if gpu.is_simulated:
        pytest.skip("graphs are captured on a real GPU only")
    arguments = {"pipeline": usual_pipeline(64), "batch_size": 48, "resident": False}
    with closing(images_loader(getattr(photos, name), **arguments)) as loader:
        target = [batch.cpu() for (batch,) in loader]
        for _ in range(3):
            loader.set_epoch(0)
            for (batch,), expected in zip(loader, target, strict=True):
                graph, values = torch.cuda.CUDAGraph(), torch.arange(1000.0, device="cuda:0")
                with torch.cuda.graph(graph):  # in mode "global": a call that cannot be captured fails in any thread
                    doubled = 2 * values
                    time.sleep(0.02)  # so that the loader makes such calls
                    result = doubled + 1
                graph.replay()
                assert torch.equal(result, 2 * values + 1)
                assert torch.equal(batch.cpu(), expected)
