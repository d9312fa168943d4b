"""Masks and depths of one channel, of 8 and 16 bits, follow RGB images to the bit where all pick the nearest pixel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton.fields import ImageField, IntField, RGBImageField
from gpubeton.fields.decoders import FollowImage, RandomResizedCropImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import Operation
from gpubeton.transforms import (
    CornerCrop,
    NormalizeImage,
    Pad,
    RandAugment,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomTranslate,
    ToTensor,
    ToTorchImage,
    TrivialAugmentWide,
)
from tests.small_files import write

LENGTH = 14
LARGEST = 250


def scene(number):
    """A photo, and its red channel as a mask, as a depth (257 times it) and as an overlay."""
    rng = np.random.default_rng(number)
    photo = rng.integers(1, LARGEST, (*rng.integers(40, 70, 2), 3), np.uint8)
    red = photo[..., 0]
    return photo, red, red.astype(np.uint16) * 257, np.concatenate([photo, photo[..., :1]], axis=2), number


FIELDS = {
    "image": RGBImageField("raw"),
    "mask": ImageField("gray", "png"),
    "depth": ImageField("gray16", "raw"),
    "overlay": ImageField("rgba", "png"),
    "label": IntField(),
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return write(
        tmp_path_factory.mktemp("scenes") / "scenes.beton", FIELDS, [scene(number) for number in range(LENGTH)]
    )


class Untouched(Operation):
    """A user's operation: ends the pass over single images, so that later operations run on the finished batch."""

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False), None

    def generate_code(self):
        return lambda batch, _: batch


def crop(size=(24, 28)):
    return RandomResizedCropRGBImageDecoder(size, interpolation="nearest")


def batches_of(path, image, follower, names=("mask", "depth", "overlay"), **arguments):
    pipelines = {"image": image, **{name: [FollowImage(), *follower] for name in names}}
    pipelines = {**dict.fromkeys(FIELDS), **pipelines}
    options = {"num_workers": 2, "seed": 5, "order": "random", "drop_last": False, **arguments}
    return Loader(path, 5, pipelines=pipelines, **options)


MOVES = [
    [],
    [RandomHorizontalFlip(), RandomTranslate(4)],
    [RandomTranslate(3), RandomRotation(40), RandomHorizontalFlip()],
    [RandomAffine(30, (0.2, 0.1), (0.7, 1.3), 10)],
    [Pad(3), RandomCrop(20)],
    [CornerCrop(12)],
    [RandomHorizontalFlip(), RandomAffine(20, interpolation="nearest"), Pad(2)],
]


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("moves", MOVES)
def test_masks_and_depths_are_cut_and_moved_as_their_image(scenes, moves, tensors):
    after = [ToTensor(), Untouched(), ToTorchImage()] if tensors else [Untouched()]
    image = [crop(), *after, *moves]
    count = 0
    for images, masks, depths, overlays in batches_of(scenes, image, [ToTensor()]):
        red = np.asarray(images if not tensors else images.permute(0, 2, 3, 1))[..., :1]
        assert (masks.dtype, depths.dtype) == (torch.uint8, torch.uint16)
        assert np.array_equal(masks.numpy(), red)
        assert np.array_equal(depths.numpy(), red.astype(np.uint16) * 257)
        assert np.array_equal(overlays.numpy()[..., [0, 3]], red.repeat(2, axis=3))
        count += len(images)
    assert count == LENGTH


FINISHED = [Untouched(), RandomHorizontalFlip(), RandomResizedCrop((0.2, 1), (0.75, 1.33), 16)]


@pytest.mark.parametrize(
    "moves", [[RandAugment(2, 9)], [TrivialAugmentWide()], FINISHED], ids=lambda moves: type(moves[-1]).__name__
)
def test_policies_and_crops_of_finished_images_move_every_kind_alike(scenes, moves):
    for _, masks, depths, overlays in batches_of(scenes, [crop(), *moves], []):
        assert np.array_equal(depths, masks.astype(np.uint16) * 257)
        assert np.array_equal(overlays[..., [0, 3]], masks.repeat(2, axis=3))


def test_pixels_from_outside_have_the_fill_of_each_follower(scenes):
    pipelines = {
        "image": [crop(), RandomTranslate(9), RandomRotation(45)],
        "mask": [FollowImage(fill=255)],
        "depth": [FollowImage(fill=65_535)],
        "overlay": [FollowImage(fill=(251, 252, 253, 254))],
        "label": None,
    }
    result = 0
    for images, masks, depths, overlays in Loader(scenes, 5, pipelines=pipelines, seed=1, drop_last=False):
        outside = masks[..., 0] == 255
        result += outside.sum()
        assert np.array_equal(outside, depths[..., 0] == 65_535)
        assert (overlays[outside] == (251, 252, 253, 254)).all()
        assert (images[outside] == 0).all()
    assert result > 100


@pytest.mark.parametrize("interpolation", ["area", "bilinear", "antialias", "bicubic"])
def test_depths_may_be_interpolated(scenes, interpolation):
    """16 bits resolve what 8 bits round: times 257, the two differ by the rounding alone."""
    pipelines = {
        "image": [RandomResizedCropRGBImageDecoder((16, 16), interpolation=interpolation)],
        "depth": [FollowImage(interpolation=interpolation)],
    }
    loader = Loader(scenes, 5, pipelines={**dict.fromkeys(FIELDS), **pipelines}, seed=1, drop_last=False)
    for images, depths in loader:
        assert np.abs(depths / 257 - images[..., :1]).max() <= 1.01


def test_an_rgb_image_may_follow_a_gray_one(scenes):
    pipelines = {
        "image": [FollowImage("mask")],
        "mask": [RandomResizedCropImageDecoder((20, 22), interpolation="nearest"), RandomHorizontalFlip()],
    }
    loader = Loader(scenes, 5, pipelines={**dict.fromkeys(FIELDS), **pipelines}, seed=1, drop_last=False)
    for images, masks in loader:
        assert np.array_equal(images[..., :1], masks)


def test_a_mask_may_be_normalized_and_flipped_after_its_image(scenes):
    after = [Untouched(), ToTensor(), RandomHorizontalFlip(1)]
    for _, _, depths, _ in batches_of(scenes, [crop()], after):
        assert depths.dtype == torch.uint16
    straight = batches_of(scenes, [crop()], [NormalizeImage(0, 257, np.float32), ToTensor()], ("depth",))
    turned = batches_of(scenes, [crop()], after, ("depth",))
    for (_, levels), (_, depths) in zip(straight, turned, strict=True):
        assert torch.equal(levels, depths.to(torch.float32).flip(2) / 257)
