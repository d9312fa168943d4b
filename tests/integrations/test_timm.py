from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from PIL import Image

import gpubeton.loader.loader as loader_module
from gpubeton._plan.places import Rank
from gpubeton.errors import OptionError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.integrations.timm import NO_EFFECT, NO_EQUIVALENT, create_loader
from gpubeton.transforms import RandAugment
from gpubeton.traversal_order import base
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


@pytest.mark.parametrize("augment", [None, RandAugment(2, 9), "rand-m9-mstd0.5-inc1", "3a", "augmix-m5-w2-d2", "v0r"])
def test_training_shuffles_augments_and_drops_the_last_batch(tmp_path, augment):
    file = write_photos(tmp_path / "a.beton", 50)
    arguments = {"re_prob": 0.5, "re_mode": "pixel", "re_count": 2, "grayscale_prob": 0.2, "auto_augment": augment,
                 "vflip": 0.5}  # fmt: skip
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


@pytest.mark.parametrize(("mode", "num_colors"), [("const", 1), ("rand", 2), ("pixel", 20)])
def test_erased_areas_have_as_many_colors_as_timms(photos, mode, num_colors):
    erasing = {"re_prob": 1, "re_mode": mode, "re_count": 2}
    images, plain = (
        next(iter(create_loader(photos, 32, 5, is_training=True, seed=1, color_jitter=None, hflip=0, **arguments)))[0]
        for arguments in (erasing, {})
    )
    for image, whole in zip(images, plain, strict=True):
        is_erased = (image != whole).any(dim=0)
        colors = torch.unique(image[:, is_erased].T, dim=0)
        assert 1 <= len(colors) <= num_colors if mode != "pixel" else len(colors) > num_colors
        if mode == "const":
            assert colors.abs().max() < 0.01  # the mean, rounded to whole levels


@pytest.mark.parametrize("augment", ["rand-m9-mstd0.5-inc1", "3a"])
def test_policies_are_timms_with_its_fill_and_its_jitter(photos, augment):
    loader = create_loader(photos, 32, 5, is_training=True, auto_augment=augment, mean=MEAN, vflip=0.3)
    listed = str(loader.pipelines["image"])
    assert f"TimmAugment(config='{augment}', interpolation='bilinear', fill=(102" in listed
    assert "RandomVerticalFlip(p=0.3)" in listed
    assert ("ColorJitter" in listed) == (augment == "3a")


def test_repeated_samples_are_on_different_ranks_and_differ(tmp_path, monkeypatch):
    file, found = write_photos(tmp_path / "a.beton", 48), []
    arguments = {"is_training": True, "num_aug_repeats": 2, "distributed": True, "seed": 4}
    monkeypatch.setattr(loader_module, "check_ranks", lambda *_: None)
    for number in range(2):
        monkeypatch.setattr(base, "rank_of_process", lambda number=number: Rank(number, 2))
        found.append(list(create_loader(file, 32, 8, **arguments)))
    assert len(found[0]) == 3
    for (images, labels), (others, other_labels) in zip(*found, strict=True):
        assert labels.tolist() == other_labels.tolist()
        assert not any(torch.equal(image, other) for image, other in zip(images, others, strict=True))
    with pytest.raises(OptionError, match="num_repeats is 2"):
        create_loader(file, 32, 8, **{**arguments, "distributed": False})


def test_training_without_augmentation_only_resizes(photos):
    images, labels = next(iter(create_loader(photos, (32, 32), 5, is_training=True, no_aug=True, mean=MEAN, std=STD)))
    squashed = create_loader(photos, (32, 32), 5, crop_pct=1.0, crop_mode="squash", mean=MEAN, std=STD)
    assert torch.equal(images, next(iter(squashed))[0][labels])


@pytest.mark.parametrize(
    "wrong",
    [{"num_aug_splits": 3}, {"re_split": True}, {"train_crop_mode": "rkrc"}, {"crop_mode": "border"},
     {"interpolation": "random"}, {"collate_fn": list}, {"crop_pct": 1.5}],
    ids=str,
)  # fmt: skip
def test_an_argument_without_an_equivalent_is_named(photos, wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        create_loader(photos, 32, 4, **wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"auto_augment": "rand-x9"}, "'x9' in 'rand-x9'"),
        ({"auto_augment": 3}, "auto_augment is 3"),
        ({"re_mode": "mean"}, "re_mode"),
        ({"re_count": 0}, "count is 0"),
    ],
    ids=str,
)
def test_an_argument_without_an_equivalent_in_training_is_named(photos, wrong, words):
    with pytest.raises(OptionError, match=words):
        create_loader(photos, 32, 4, is_training=True, re_prob=0.5, **wrong)
