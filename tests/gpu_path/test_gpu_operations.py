"""Operations give the same on a GPU as on the CPU: in the one pass, or after it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._batch import run_steps
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import (
    AugMix,
    ColorJitter,
    Cutout,
    NormalizeImage,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomAutocontrast,
    RandomBrightness,
    RandomContrast,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGaussianBlur,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomSaturation,
    RandomSolarization,
    RandomTranslate,
    RandomVerticalFlip,
    ToDevice,
    ToTensor,
    ToTorchImage,
    TrivialAugmentWide,
)
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, twin, write_images
from tests.simulator.device import SimulatedDevice

CROP = RandomResizedCropRGBImageDecoder((24, 20))
NORMALIZE = NormalizeImage((123, 116, 103), (58, 57, 57), np.float16)
FLOATS = NormalizeImage(0, 1, np.float32)
SCALES = (0.1, 0.9), (0.7, 1.4)
THERE = ToDevice("cuda:0")
VIEWS = [ToTensor(), ToTorchImage()]
JITTER = ColorJitter(0.4, 0.4, 0.4, 0.1)


class Darker(torch.nn.Module):
    """A user's own operation, in place."""

    def forward(self, images):
        return images.bitwise_right_shift_(1)


class Transposed(torch.nn.Module):
    """A user's own operation that returns a view."""

    def forward(self, images):
        return images.transpose(2, 3)


PIPELINES = {
    "erasing": [CROP, RandomErasing(0.7), RandomHorizontalFlip(), RandomErasing(value=(9, 8, 7)), NORMALIZE, *VIEWS],
    "colors, erasing": [CROP, Cutout(3), JITTER, RandomErasing(1, value=(9.5, 255.9, 7)), NORMALIZE, *VIEWS],
    "erasing, colors": [
        CROP,
        RandomErasing(1, value=99),
        RandomTranslate(2, (125.3, 122.9, 113.8)),
        JITTER,
        NORMALIZE,
        *VIEWS,
    ],
    "erasing, normalized": [CROP, NORMALIZE, *VIEWS, RandomErasing(1, value=-0.5)],
    "noise, normalized": [CROP, NORMALIZE, *VIEWS, RandomErasing(1, value="random")],
    "colors of floats": [CROP, FLOATS, *VIEWS, RandomBrightness(0.8), RandomContrast(0.8), RandomSaturation(0.8)],
    "view": [CROP, JITTER, RandomGaussianBlur(5, p=0.8), RandomSolarization(p=0.4), NORMALIZE, *VIEWS],
    "levels": [CROP, *VIEWS, RandomAutocontrast(), RandomEqualize(), RandomAdjustSharpness(2)],
    "turned": [CROP, RandomRotation(40, "bilinear", (1, 2, 3)), RandomCrop(18, 2), ToTensor(), Pad(1), ToTorchImage()],
    "affine": [CROP, RandomHorizontalFlip(), RandomAffine(9, (0.1, 0.2), (0.7, 1.3), 8), NORMALIZE, *VIEWS],
    "rand augment": [CROP, RandomHorizontalFlip(), RandAugment(2, 15), NORMALIZE, *VIEWS, RandomErasing(value=1)],
    "cropped again": [CROP, RandomHorizontalFlip(), RandomResizedCrop(*SCALES, 14), ToTensor(), THERE, ToTorchImage()],
    "cropped there": [CROP, RandomHorizontalFlip(), *VIEWS, THERE, RandomResizedCrop(*SCALES, 14)],
    "cropped when normalized": [CROP, NORMALIZE, *VIEWS, RandomResizedCrop(*SCALES, 14), RandomErasing(1, value=0.5)],
    "trivial augment": [CROP, TrivialAugmentWide(interpolation="bilinear"), *VIEWS, NORMALIZE],
}
LATER = [
    RandomHorizontalFlip(),
    RandAugment(3, 15),
    RandomTranslate(5, (9, 8, 7)),
    RandomErasing(0.9, value=(99, 8, 7), count=2),
    RandomPerspective(0.6, 0.8),
    RandomGaussianBlur(5),
    AugMix(5, 2),
    RandomVerticalFlip(),
    ColorJitter(0.4, 0.4, 0.4, 0.1),
]
AFTER_A_USERS = {
    "channels last": [CROP, *VIEWS, THERE, Darker(), *LATER],
    "transposed": [RandomResizedCropRGBImageDecoder((24, 24)), *VIEWS, THERE, Transposed(), *LATER],
    "rows last": [CROP, ToTensor(), THERE, Darker(), *LATER],
}


@pytest.fixture(scope="module")
def sample_file(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("samples") / "samples.beton", IMAGE_SAMPLES)


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("decoded") / "decoded.beton", twin(IMAGE_SAMPLES))


@pytest.fixture
def launched(monkeypatch):
    """Names of the kernels that were launched."""
    names, launch = [], SimulatedDevice.launch

    def noting(device, kernel, *arguments):
        names.append(kernel)
        launch(device, kernel, *arguments)

    monkeypatch.setattr(SimulatedDevice, "launch", noting)
    return names


@pytest.mark.parametrize("name", PIPELINES)
def test_operations_draw_and_give_the_same_on_a_gpu_and_on_the_cpu(gpus, sample_file, decoded, name):
    batches = epochs(gpu_loader(sample_file, PIPELINES[name]), 2)
    assert_same(batches, epochs(gpu_loader(decoded, PIPELINES[name], device="cpu"), 2))


@pytest.mark.parametrize("name", AFTER_A_USERS)
def test_steps_after_a_users_operation_run_on_the_gpu_too(gpus, sample_file, decoded, name, launched, monkeypatch):
    expected = epochs(gpu_loader(decoded, AFTER_A_USERS[name], device="cpu"), 2)

    def refuse(*arguments):
        raise AssertionError("steps of a batch on a GPU ran on the CPU")

    monkeypatch.setattr(run_steps, "run_listed", refuse)
    batches = epochs(gpu_loader(sample_file, AFTER_A_USERS[name]), 2)
    assert_same(batches, expected)
    assert launched.count("image_steps") > len(LATER)


def test_crop_flip_jitter_cutout_and_normalize_are_three_launches_and_canaries(gpus, sample_file, launched):
    batches = epochs(
        gpu_loader(sample_file, [CROP, RandomHorizontalFlip(), JITTER, Cutout(4, (9, 8, 7)), NORMALIZE, *VIEWS])
    )
    # Canaries, which later show whether the decoder wrote, come before it decodes.
    assert launched == ["canary", "taps", "resample", "image_steps"] * len(batches)
