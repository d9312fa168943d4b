"""Gray images, depths and transparency beside images that a GPU makes: made on the CPU, and moved."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.fields import ImageField, RGBImageField
from gpubeton.fields.decoders import CenterCropImageDecoder, FollowImage, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import (
    NormalizeImage,
    RandomHorizontalFlip,
    RandomTranslate,
    ToDevice,
    ToTensor,
    ToTorchImage,
)
from tests.small_files import picture, write

THERE = ToDevice("cuda:0")
FIELDS = {
    "image": RGBImageField("raw"),
    "mask": ImageField("gray", "png"),
    "depth": ImageField("gray16"),
    "lossless": ImageField("rgb", "png"),
    "photo": ImageField("rgb", "jpg"),
}
IMAGE = [RandomResizedCropRGBImageDecoder((16, 20)), RandomHorizontalFlip(), RandomTranslate(2), ToTensor(), THERE]


class Scenes:
    def __len__(self):
        return 11

    def __getitem__(self, number):
        photo = picture(number, 30, 40)
        return photo, photo[..., 1], photo[..., 2].astype(np.uint16) * 200, photo, photo


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("scenes") / "scenes.beton", FIELDS, Scenes())


def loader_of(path, pipelines, device, **arguments):
    pipelines = {**dict.fromkeys(FIELDS), **pipelines}
    return Loader(path, 4, num_workers=1, seed=3, drop_last=False, pipelines=pipelines, device=device, **arguments)


def batches(*arguments, **options):
    loader = loader_of(*arguments, **options)
    results = [batch for _ in range(2) for batch in loader]
    loader.close()
    return results


@pytest.mark.parametrize("device", ["auto", "cuda:0"])
@pytest.mark.parametrize("os_cache", [True, False])
def test_masks_beside_images_of_a_gpu_equal_those_of_the_cpu(gpus, path, device, os_cache):
    normalized = [NormalizeImage(10, 20), ToTensor(), THERE, ToTorchImage()]
    pipelines = {
        "image": IMAGE,
        "mask": [FollowImage(), ToTensor(), THERE],
        "depth": [FollowImage(interpolation="area"), *normalized],
        "lossless": [CenterCropImageDecoder((9, 9), 1), *normalized],
        "photo": [CenterCropImageDecoder((9, 9), 1), *normalized],
    }
    on_cpu = {
        name: [operation for operation in pipeline if operation is not THERE]
        if isinstance(pipeline, list)
        else pipeline
        for name, pipeline in pipelines.items()
    }
    on_gpu, here = batches(path, pipelines, device, os_cache=os_cache), batches(path, on_cpu, "cpu")
    assert len(gpus) == 1
    for batch, other in zip(on_gpu, here, strict=True):
        assert [tensor.dtype for tensor in batch] == [tensor.dtype for tensor in other]
        for output, expected in zip(batch, other, strict=True):
            assert torch.equal(output, expected)


@pytest.mark.parametrize("device", ["auto", "cuda:0"])
def test_a_gpu_is_not_opened_for_images_that_only_the_cpu_makes(gpus, path, device, capsys):
    pipelines = {"mask": [CenterCropImageDecoder((9, 9), 1), ToTensor(), THERE]}
    assert sum(len(masks) for (masks,) in batches(path, pipelines, device)) == 22
    assert not gpus
    loader_of(path, pipelines, device).explain()
    text = capsys.readouterr().out
    assert "images are decoded on the CPU, and moved" in text
    assert "ToDevice(device=device(type='cuda', index=0)" in text


def test_explain_names_outputs_made_on_the_cpu_beside_a_gpu(gpus, path, capsys):
    pipelines = {"image": IMAGE, "mask": [FollowImage(), ToTensor()], "photo": [CenterCropImageDecoder((9, 9), 1)]}
    loader = loader_of(path, pipelines, "cuda:0")
    loader.explain()
    text = capsys.readouterr().out
    loader.close()
    assert "CPU       'mask', 'photo': " in text
    assert "mask: gray, 16 x 20, nearest, written as uint8\n" in text
