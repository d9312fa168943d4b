from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from PIL import Image

from gpubeton.errors import OptionError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.integrations.timm import NO_EFFECT, NO_EQUIVALENT, create_loader
from gpubeton.transforms import RandAugment
from tests.small_files import picture, write, write_photos

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
SIZES = [(90, 120), (121, 90), (200, 201), (64, 64), (300, 150)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    samples = [(picture(number, *size), number) for number, size in enumerate(SIZES)]
    fields = {"image": RGBImageField("raw"), "label": IntField()}
    return write(tmp_path_factory.mktemp("timm") / "photos.beton", fields, samples)


def by_timm(image, arguments):
    data = pytest.importorskip("timm.data")
    return data.create_transform(**{"mean": MEAN, "std": STD, **arguments})(Image.fromarray(image)).numpy()


def by_pillow(image, arguments):
    """timm's transform for evaluation, written with Pillow: resize, cut out the center, normalize."""
    size, mode = np.broadcast_to(arguments["input_size"], 2), arguments.get("crop_mode")
    scaled = np.floor(size / arguments["crop_pct"]).astype(int)
    shape = np.array(image.shape[:2])
    exact = shape * (scaled / shape).max()
    size_in_timm = (exact + 1e-6 if size[0] == size[1] else np.rint(exact)).astype(
        int
    )  # timm rounds down for squares only
    to = scaled if mode == "squash" else size_in_timm
    filtering = getattr(Image.Resampling, arguments.get("interpolation", "bilinear").upper())
    resized = np.asarray(Image.fromarray(image).resize(to[::-1].tolist(), filtering))
    top, left = np.rint((to - size) / 2).astype(int)
    cut = resized[top : top + size[0], left : left + size[1]] / 255
    return ((cut - MEAN) / STD).transpose(2, 0, 1)


@pytest.mark.parametrize("reference", [by_pillow, by_timm])
@pytest.mark.parametrize(
    "arguments",
    [
        {"input_size": 56, "crop_pct": 0.875},
        {"input_size": (40, 40), "crop_pct": 1.0},
        {"input_size": (48, 64), "crop_pct": 0.9},
        {"input_size": (48, 64), "crop_pct": 0.9, "crop_mode": "squash"},
        {"input_size": 60, "crop_pct": 1.0, "interpolation": "nearest"},
        {"input_size": (48, 64), "crop_pct": 0.95, "interpolation": "bicubic"},
    ],
    ids=str,
)
def test_images_for_evaluation_are_timms(photos, reference, arguments):
    images, labels = next(iter(create_loader(photos, batch_size=len(SIZES), mean=MEAN, std=STD, **arguments)))
    assert labels.tolist() == list(range(len(SIZES)))
    for number, size in enumerate(SIZES):
        expected = reference(picture(number, *size), arguments)
        # These pictures rise by up to 9 levels a pixel; the crops differ by up to half a pixel.
        assert np.abs(images[number].numpy() - expected).max() * min(STD) * 255 < 5


def test_every_argument_of_timms_is_known():
    timms = inspect.signature(pytest.importorskip("timm.data").create_loader).parameters
    ours = inspect.signature(create_loader).parameters
    assert set(timms) - {"dataset"} - set(ours) - set(NO_EQUIVALENT) - NO_EFFECT <= {
        "num_workers", "distributed", "device",
    }  # fmt: skip
    for name, harmless in NO_EQUIVALENT.items():
        assert timms[name].default in harmless


def test_a_configuration_of_a_model_fits(photos):
    config = {"input_size": (3, 48, 48), "interpolation": "bilinear", "mean": MEAN, "std": STD, "crop_pct": 0.95,
              "crop_mode": "center"}  # fmt: skip
    images, _ = next(iter(create_loader(photos, batch_size=2, img_dtype=torch.float16, **config, pin_memory=True)))
    assert (images.shape, images.dtype) == ((2, 3, 48, 48), torch.float16)


@pytest.mark.parametrize("augment", [None, RandAugment(2, 9)])
def test_training_shuffles_augments_and_drops_the_last_batch(tmp_path, augment):
    file = write_photos(tmp_path / "a.beton", 50)
    arguments = {"re_prob": 0.5, "re_mode": "pixel", "grayscale_prob": 0.2, "auto_augment": augment}
    loader = create_loader(file, 32, 16, is_training=True, seed=1, **arguments)
    batches = list(loader)
    assert [images.shape for images, _ in batches] == [(16, 3, 32, 32)] * 3
    labels = torch.cat([labels for _, labels in batches]).tolist()
    assert len(set(labels)) == 48
    assert labels != sorted(labels)
    loader.sampler.set_epoch(0)
    assert torch.equal(next(iter(loader))[0], batches[0][0])
    plain = create_loader(file, 32, 16, is_training=True, seed=1)
    assert not torch.equal(next(iter(plain))[0], batches[0][0])


def test_erased_areas_have_the_mean_color(photos):
    loader = create_loader(
        photos, 32, 5, is_training=True, seed=1, re_prob=1, mean=(0, 0, 0), std=(1, 1, 1), color_jitter=None
    )
    images, _ = next(iter(loader))
    shares = (images == 0).all(dim=1).float().mean(dim=(1, 2))  # these pictures have no black
    assert ((shares > 0.01) & (shares < 0.36)).all()


def test_training_without_augmentation_only_resizes(photos):
    images, labels = next(iter(create_loader(photos, (32, 32), 5, is_training=True, no_aug=True, mean=MEAN, std=STD)))
    squashed = create_loader(photos, (32, 32), 5, crop_pct=1.0, crop_mode="squash", mean=MEAN, std=STD)
    assert torch.equal(images, next(iter(squashed))[0][labels])


@pytest.mark.parametrize(
    "wrong",
    [{"vflip": 0.5}, {"re_count": 3}, {"train_crop_mode": "rkrc"}, {"num_aug_repeats": 3}, {"crop_mode": "border"},
     {"interpolation": "random"}, {"collate_fn": list}, {"crop_pct": 1.5}],
    ids=str,
)  # fmt: skip
def test_an_argument_without_an_equivalent_is_named(photos, wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        create_loader(photos, 32, 4, **wrong)


@pytest.mark.parametrize("wrong", [{"auto_augment": "rand-m9-mstd0.5"}, {"re_mode": "rand"}], ids=str)
def test_an_argument_without_an_equivalent_in_training_is_named(photos, wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        create_loader(photos, 32, 4, is_training=True, re_prob=0.5, **wrong)
