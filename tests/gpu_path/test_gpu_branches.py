"""Outputs on a GPU that continue other outputs, and crops of images decoded there."""

from __future__ import annotations

import pytest

from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import Cutout, RandomHorizontalFlip, RandomResizedCrop, ToDevice, ToTensor, ToTorchImage
from tests.cpu.pictures import noise
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, raw, twin, write_images

CROP = RandomResizedCropRGBImageDecoder((12, 10))
FLIP, THERE = RandomHorizontalFlip(), ToDevice("cuda:0")
BRANCHES = {
    "from an array": ([CROP, FLIP, ToTensor(), THERE], PipelineSpec(FLIP, transforms=[Cutout(3), ToTensor(), THERE])),
    "from a tensor there": ([CROP, FLIP, ToTensor(), THERE], PipelineSpec(THERE, transforms=[ToTorchImage()])),
    "from the decoder": ([CROP, FLIP, ToTensor(), THERE], PipelineSpec(CROP, transforms=[FLIP])),
}


@pytest.mark.parametrize("before", [[], [RandomHorizontalFlip()]])
def test_a_crop_of_decoded_images_is_the_same_on_a_gpu_and_on_the_cpu(gpus, tmp_path, before):
    images = [raw(noise(40, 30, seed=number)) for number in range(12)]
    path = write_images(tmp_path / "images.beton", images)
    crop = RandomResizedCrop((0.1, 0.9), (0.7, 1.4), 16)
    pipeline = [SimpleRGBImageDecoder(), *before, crop, ToTensor(), THERE, ToTorchImage()]
    batches = epochs(gpu_loader(path, pipeline))
    assert_same(batches, epochs(gpu_loader(path, pipeline, device="cpu")))


@pytest.mark.parametrize("device", ["auto", "cuda:0"])
@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_is_the_same_on_a_gpu_and_on_the_cpu(gpus, tmp_path, name, device):
    image, view = BRANCHES[name]
    images = IMAGE_SAMPLES[:12]
    on_gpu = gpu_loader(write_images(tmp_path / "images.beton", images), image, more={"view": view}, device=device)
    batches = epochs(on_gpu)
    assert on_gpu.gpu is not None
    decoded = write_images(tmp_path / "decoded.beton", twin(images))
    assert_same(batches, epochs(gpu_loader(decoded, image, more={"view": view}, device="cpu")))
