"""Masks beside images that a GPU makes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.fields import RGBImageField
from gpubeton.fields.decoders import FollowImage, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import (
    NormalizeImage,
    RandomHorizontalFlip,
    RandomRotation,
    RandomTranslate,
    ToDevice,
    ToTensor,
    ToTorchImage,
)
from tests.small_files import write

IMAGE = [
    RandomResizedCropRGBImageDecoder((16, 20), interpolation="nearest"),
    RandomHorizontalFlip(),
    RandomTranslate(2),
]
MASK = [FollowImage(fill=255), ToTensor(), ToTorchImage()]


class Noise:
    def __len__(self):
        return 12

    def __getitem__(self, number):
        image = np.random.default_rng(number).integers(1, 250, (30 + number, 40, 3), np.uint8)
        return image, image.repeat(2, axis=1)


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    fields = {"image": RGBImageField("raw"), "mask": RGBImageField("raw")}
    return write(tmp_path_factory.mktemp("masks") / "noise.beton", fields, Noise())


def batches(path, device, image, mask, **more):
    pipelines = {"image": image, "mask": mask, **more}
    loader = Loader(path, 5, num_workers=1, seed=3, drop_last=False, pipelines=pipelines, device=device)
    results = [[tensor.cpu() for tensor in batch] for batch in loader]
    loader.close()
    return results


@pytest.mark.parametrize("tail", [[], [RandomRotation(40)]], ids=["one pass", "rotated after it"])
def test_masks_have_the_bits_of_the_cpu_and_show_the_objects_of_the_image(gpus, noise, tail):
    views = [ToTensor(), ToTorchImage()]
    on_gpu = batches(noise, "cuda:0", [*IMAGE, *tail, *views], MASK)
    here = batches(noise, "cpu", [*IMAGE, *tail, *views], MASK)
    assert len(on_gpu) == len(here) == 3
    for (images, masks), (own_images, own_masks) in zip(on_gpu, here, strict=True):
        assert torch.equal(images, own_images)
        assert torch.equal(masks, own_masks)
        is_outside = (masks == 255).all(dim=1, keepdim=True).expand_as(masks)
        assert torch.equal(masks[~is_outside], images[~is_outside])
        assert not images[is_outside].any()


def test_a_mask_on_the_cpu_follows_an_image_on_a_gpu_and_another_view_of_it(gpus, noise):
    image = [*IMAGE, NormalizeImage([0] * 3, [1] * 3, np.float32), ToTensor(), ToDevice(torch.device("cuda:0"))]
    more = {
        "view": PipelineSpec("image", transforms=[*IMAGE, ToTensor()]),
        "its mask": PipelineSpec("mask", decoder=FollowImage("view"), transforms=[ToTensor()]),
    }
    pipelines = {"image": image, "mask": [FollowImage(), ToTensor()], **more}
    loader = Loader(noise, 5, num_workers=1, seed=3, drop_last=False, pipelines=pipelines)
    for images, masks, views, their_masks in loader:
        assert torch.equal(images.cpu().to(torch.uint8), masks.cpu())
        assert torch.equal(views.cpu(), their_masks.cpu())
        assert not torch.equal(masks.cpu(), their_masks.cpu())
    loader.close()
