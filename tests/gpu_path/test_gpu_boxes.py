"""Boxes beside images that a GPU makes."""

from __future__ import annotations

import numpy as np
import torch

from gpubeton.fields import RaggedField, RGBImageField
from gpubeton.fields.decoders import RaggedDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import (
    Mosaic,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomTranslate,
    ToTensor,
    TransformBoxes,
)
from tests.simulator.device import SimulatedDevice
from tests.small_files import picture, write

IMAGE = [
    *(RandomResizedCropRGBImageDecoder((16, 20)), RandomHorizontalFlip(), RandomTranslate(2), RandomCrop(14, 1)),
    *(ToTensor(), Mosaic(0.7), RandomResizedCrop((0.5, 1), (0.8, 1.2), 12)),
]
BOXES = [RaggedDecoder(), TransformBoxes(), ToTensor()]


class Boxed:
    def __len__(self):
        return 12

    def __getitem__(self, number):
        corner = np.random.default_rng(number).uniform(0, 20, (number % 4, 2))
        return picture(number, 30, 40), np.concatenate([corner, corner + 9], axis=1).astype(np.float32)


def test_boxes_follow_the_images_of_a_gpu_and_are_handed_over_with_them(gpus, tmp_path, monkeypatch):
    handed = []
    hand_over = SimulatedDevice.hand_over

    def record(self, tensors, ready):
        handed.append(tensors)
        hand_over(self, tensors, ready)

    monkeypatch.setattr(SimulatedDevice, "hand_over", record)
    fields = {"image": RGBImageField("raw"), "boxes": RaggedField("<f4", (-1, 4))}
    path = write(tmp_path / "boxes.beton", fields, Boxed())

    def batches(device):
        pipelines = {"image": IMAGE, "boxes": BOXES}
        loader = Loader(path, 5, num_workers=1, seed=3, drop_last=False, pipelines=pipelines, device=device)
        results = list(loader)
        loader.close()
        return results

    on_gpu, here = batches("cuda:0"), batches("cpu")
    assert sum(len(boxes.values) for _, boxes in on_gpu) > 6
    for (images, boxes), (own_images, own_boxes) in zip(on_gpu, here, strict=True):
        assert torch.equal(images, own_images)
        assert torch.equal(boxes.values, own_boxes.values)
        assert torch.equal(boxes.offsets, own_boxes.offsets)
    assert len(handed) == len(on_gpu)
    for tensors, (images, boxes) in zip(handed, on_gpu, strict=True):
        assert [id(tensor) for tensor in tensors] == [id(images), id(boxes.values), id(boxes.offsets)]
