"""Several files on a GPU, and the drawn parameters."""

from __future__ import annotations

import pytest
import torch

from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.pipeline import DrawnParameters
from gpubeton.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, write_images

PIPELINE = [RandomResizedCropRGBImageDecoder((20, 24)), RandomHorizontalFlip(), ToTensor(), ToTorchImage()]


@pytest.fixture(scope="module")
def sample_file(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("samples") / "samples.beton", IMAGE_SAMPLES)


@pytest.mark.parametrize("os_cache", [True, False])
def test_several_files_give_the_batches_of_one_with_all_their_images(gpus, sample_file, tmp_path, os_cache):
    parts = IMAGE_SAMPLES[:11], IMAGE_SAMPLES[11:20], IMAGE_SAMPLES[20:]
    files = [write_images(tmp_path / f"{number}.beton", part) for number, part in enumerate(parts)]
    several, single = (gpu_loader(path, PIPELINE, order="random", os_cache=os_cache) for path in (files, sample_file))
    result, expected = ([images for images, _ in epochs(loader, 2)] for loader in (several, single))
    assert_same([tuple(result)], [tuple(expected)])


def test_drawn_parameters_are_the_same_as_on_the_cpu(gpus, sample_file):
    more = {"drawn": DrawnParameters("image")}
    result, expected = (
        epochs(gpu_loader(sample_file, PIPELINE, device=device, more=more)) for device in ("cuda:0", "cpu")
    )
    for (_, _, ours), (_, _, theirs) in zip(result, expected, strict=True):
        assert list(ours) == ["size", "crop", "RandomHorizontalFlip"]
        assert all(torch.equal(values, theirs[name]) for name, values in ours.items())
