"""Who decodes: each lane does what it is there for, and nobody else does its work."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks.gpu.hazards.pixels import decode_all, difference, do_pixels_agree
from benchmarks.gpu.hazards.ways import Batched, Single
from benchmarks.gpu.nvjpeg_steps import Backend
from benchmarks.gpu.pipelines import usual_pipeline
from benchmarks.gpu.target import Target
from benchmarks.harness.photos import list_photos
from tests.gpu.comparing import counted, epoch, images_loader


def test_the_engines_decode_everything_at_the_first_try_or_nothing(gpu, photos):
    for lanes in (("hardware",), ()):
        with counted() as counts:
            images = epoch(images_loader(photos.beton, usual_pipeline(32), lanes=lanes, batch_size=64))
        assert counts == ({"engines": len(images)} if lanes else {})


def test_the_same_epoch_has_the_same_pixels_every_time(gpu, photos):
    for lanes in (("hardware",), ()):
        first, second = (
            epoch(images_loader(photos.beton, usual_pipeline(64), lanes=lanes, order="random", batch_size=64))
            for _ in range(2)
        )
        assert torch.equal(first, second)


@pytest.fixture
def target(gpu, nvjpeg):
    return Target(gpu.device, nvjpeg, gpu.faults)


@pytest.fixture
def files(gpu, photos):
    count = 3 if gpu.is_simulated else 64
    return [path.read_bytes() for path, _ in list_photos(Path(photos.folder))[:count]]


def test_every_backend_is_near_libjpeg_turbo_for_every_chroma_sampling(target, files):
    found = do_pixels_agree(target, files, images=len(files))
    assert found.holds, found.verdict
    for sampling in ("444", "Gray"):
        for who in ("engines", "processors", "one by one"):
            apart = found.figures[f"{sampling}, {who}, interpolated"]["interpolated"]
            # Each component is rounded by both: 1 and 1.772 levels, and the rounding of the result.
            assert apart["most"] <= 4, (sampling, who, apart)


def test_photographs_are_near_pillows(target, files):
    wanted = []
    for file in files:
        with Image.open(io.BytesIO(file)) as image:
            wanted.append(np.asarray(image.convert("RGB")))
    for way in (Batched(target, Backend.HARDWARE), Batched(target, Backend.GPU_HYBRID)):
        with way:
            apart = difference(decode_all(target, way, files), wanted)
        assert apart["worst_mean_of_an_image"] <= 2.5, apart


def test_the_engines_agree_with_torchvision_on_the_gpu(gpu, target, files):
    torchvision = pytest.importorskip("torchvision.io")
    if gpu.is_simulated:
        pytest.skip("torchvision decodes on a real GPU alone")
    tensors = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in files]
    wanted = [
        image.permute(1, 2, 0).cpu().numpy()
        for image in torchvision.decode_jpeg(tensors, mode=torchvision.ImageReadMode.RGB, device="cuda:0")
    ]
    with Batched(target, Backend.HARDWARE) as way:
        apart = difference(decode_all(target, way, files), wanted)
    # It may repeat chroma where we interpolate; the rest is one library.
    assert apart["worst_mean_of_an_image"] <= 2.5, apart


def test_one_by_one_and_in_batches_the_processors_and_engines_agree(target, files):
    ways = [Batched(target, Backend.HARDWARE), Batched(target, Backend.GPU_HYBRID)]
    ways.append(Single(target, Backend.DEFAULT, states=len(files)))
    decoded = []
    for way in ways:
        with way:
            decoded.append(decode_all(target, way, files))
    for other in decoded[1:]:
        assert difference(other, decoded[0])["worst_mean_of_an_image"] <= 2.5
