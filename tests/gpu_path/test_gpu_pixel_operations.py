"""Pixel operations of users in loaders: a GPU makes what the CPU makes."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton.errors import PipelineError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.gpu.gpu_kernels import function_of
from gpubeton.transforms import (
    ColorJitter,
    Cutout,
    NormalizeImage,
    PixelOperation,
    RandomHorizontalFlip,
    ToDevice,
    ToTensor,
    ToTorchImage,
)
from tests.gpu_path.zoo import ZOO, assert_same, epochs, gpu_loader, twin, write_images
from tests.kernels.host_build import needs_compiler
from tests.simulator.device import SimulatedDevice
from tests.transforms.pixel_operations import CASES, sepia

pytestmark = needs_compiler

IMAGES = ZOO[:16]
HEAD = [RandomResizedCropRGBImageDecoder((12, 10)), RandomHorizontalFlip()]
BACK = [NormalizeImage((120, 110, 100), (60, 50, 40), np.float16), ToTensor(), ToDevice("cuda:0"), ToTorchImage()]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "images.beton", IMAGES)


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("decoded") / "decoded.beton", twin(IMAGES))


def explained(loader, capsys):
    loader.explain()
    return capsys.readouterr().out


def test_a_gpu_makes_what_the_cpu_makes_to_the_bit(gpus, path, decoded, capsys):
    own = [CASES["one parameter"].make(p=0.5), ColorJitter(0.4, 0.4, 0.4, 0.1), CASES["position"].make()]
    loader = gpu_loader(path, [*HEAD, *own, *BACK])
    told = explained(loader, capsys)
    assert told.count("fused") == 6
    assert "(copy to the CPU)" not in told
    assert_same(epochs(loader, 2), epochs(gpu_loader(decoded, [*HEAD, *own, *BACK], device="cpu"), 2))


def test_crop_flip_jitter_own_operation_cutout_and_normalize_are_four_launches(gpus, path, decoded, monkeypatch):
    launched, launch = [], SimulatedDevice.launch

    def noting(device, kernel, *arguments):
        launched.append(function_of(kernel))
        launch(device, kernel, *arguments)

    monkeypatch.setattr(SimulatedDevice, "launch", noting)
    own = [ColorJitter(0.4, 0.4, 0.4, 0.1), CASES["position"].make(), Cutout(4, (9, 8, 7))]
    found = epochs(gpu_loader(path, [*HEAD, *own, *BACK]))
    # What is planted, to see later whether the decoder wrote, comes before it decodes.
    assert launched == ["canary", "taps", "resample", "color_sum", "color"] * len(found)
    assert_same(found, epochs(gpu_loader(decoded, [*HEAD, *own, *BACK], device="cpu")))


def test_with_the_numba_half_alone_the_batch_is_copied_back_and_explain_says_so(gpus, path, decoded, capsys):
    own = [*HEAD, PixelOperation(numba=sepia, parameters={"share": (0, 1)}), *BACK]
    loader = gpu_loader(path, own)
    told = explained(loader, capsys)
    assert "(copy to the CPU)" in told
    (line,) = (line for line in told.splitlines() if "PixelOperation('sepia', parameters={'share': (0.0, 1.0)}" in line)
    assert line.endswith("  after, on the finished batch")
    assert_same(epochs(loader), epochs(gpu_loader(decoded, own, device="cpu")))


def test_with_the_cuda_half_alone_it_takes_a_gpu(gpus, path):
    pipeline = [*HEAD, PixelOperation("r = 255.0f - r;", name="mine"), ToTensor(), ToDevice("cuda:0")]
    (images, _), *_ = epochs(gpu_loader(path, pipeline))
    (plain, _), *_ = epochs(gpu_loader(path, [*HEAD, ToTensor(), ToDevice("cuda:0")]))
    assert np.array_equal(images.numpy()[..., 0], 255 - plain.numpy()[..., 0])
    assert np.array_equal(images.numpy()[..., 1:], plain.numpy()[..., 1:])
    with pytest.raises(PipelineError, match="'mine'"):
        gpu_loader(path, pipeline, device="cpu")
