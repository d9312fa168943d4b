from __future__ import annotations

import pytest
import torch

from gpubeton import recipes, transforms
from gpubeton.errors import OptionError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from gpubeton.transforms import (
    ColorJitter,
    ImageMixup,
    NormalizeImage,
    RandomGaussianBlur,
    RandomHorizontalFlip,
    RandomSolarization,
    ToTensor,
    ToTorchImage,
)

LAST = [NormalizeImage, ToTensor, ToTorchImage]


def batch_of(path, pipelines):
    others = dict.fromkeys(Reader(path).field_names)  # fields that are not read
    with Loader(path, 10, num_workers=1, seed=0, pipelines={**others, **pipelines}, device="cpu") as loader:
        return next(iter(loader))


@pytest.mark.parametrize("training", recipes.SIDES)
def test_a_training_on_imagenet_gives_normalized_images_of_its_size_or_a_given_one(photos, training):
    recipe = recipes.imagenet(training)
    assert recipe[0].output_size == (recipes.SIDES[training],) * 2
    assert [type(operation) for operation in recipe[-3:]] == LAST
    images, labels = batch_of(photos, {"image": recipes.imagenet(training, 48), "label": recipes.labels()})
    assert (images.shape, images.dtype) == ((10, 3, 48, 48), torch.float16)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert -2.2 < float(images.min()) < 0 < float(images.max()) < 2.7
    assert (labels.shape, labels.dtype) == ((10,), torch.int64)


def test_a_recipe_is_a_list_that_can_be_changed(photos):
    recipe = recipes.evaluation(32, dtype=torch.float32)
    recipe.insert(-3, ImageMixup(0.2, True))
    assert [type(operation) for operation in recipe] == [CenterCropRGBImageDecoder, ImageMixup, *LAST]
    (images,) = batch_of(photos, {"image": recipe})
    assert images.dtype == torch.float32
    assert recipes.evaluation(32) is not recipes.evaluation(32)


def test_a_recipe_prints_one_operation_on_each_line():
    lines = repr(recipes.cifar()).splitlines()
    assert (lines[0], lines[1], lines[-1]) == ("Recipe([", "    SimpleRGBImageDecoder(),", "])")
    assert len(lines) == len(recipes.cifar()) + 2


def test_views_have_their_own_settings():
    first, second = recipes.self_supervised("byol")["image"], recipes.self_supervised("byol")["view_2"].transforms
    blurs = [next(op.p for op in view if isinstance(op, RandomGaussianBlur)) for view in (first, second)]
    assert blurs == [1.0, 0.1]
    assert [sum(isinstance(op, RandomSolarization) for op in view) for view in (first, second)] == [0, 1]
    (one, other) = recipes.self_supervised("simclr").values()
    assert repr(one) == repr(other.transforms)
    assert one is not other.transforms


def test_dino_has_large_views_of_large_parts_and_small_views_of_small_parts(photos):
    views = recipes.self_supervised("dino", 56, num_small=3)
    decoders = [getattr(view, "transforms", view)[0] for view in views.values()]
    assert [decoder.scale for decoder in decoders] == [(0.4, 1.0)] * 2 + [(0.05, 0.4)] * 3
    shapes = [tuple(view.shape) for view in batch_of(photos, {**views})]
    assert shapes == [(10, 3, 56, 56)] * 2 + [(10, 3, 24, 24)] * 3


def test_masked_autoencoders_have_one_view():
    assert list(recipes.self_supervised("mae")) == ["image"]


CONFIG = {
    "input_size": (3, 64, 64),
    "interpolation": "bilinear",
    "mean": (0.5, 0.4, 0.3),
    "std": (0.25, 0.25, 0.25),
    "crop_pct": 0.5,
    "crop_mode": "center",
}


def test_fine_tuning_takes_everything_from_the_configuration_of_a_model():
    training, evaluation = (recipes.fine_tuning(CONFIG, training=training) for training in (True, False))
    assert [type(operation) for operation in training] == [
        RandomResizedCropRGBImageDecoder,
        RandomHorizontalFlip,
        *LAST,
    ]
    assert (training[0].output_size, training[0].interpolation) == ((64, 64), "antialias")  # Pillow's bilinear
    assert repr(evaluation[0]) == repr(CenterCropRGBImageDecoder(64, 0.5, "antialias"))
    assert evaluation[1].mean == (127.5, 102.0, 76.5)
    assert evaluation[1].std == (63.75,) * 3


def test_fine_tuning_takes_timms_defaults_for_what_a_configuration_does_not_have():
    assert repr(recipes.fine_tuning({}, training=False)) == repr(recipes.evaluation(224, 0.875, "bicubic"))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: recipes.fine_tuning({**CONFIG, "interpolation": "lanczos"}), "config: interpolation is 'lanczos'"),
        (lambda: recipes.fine_tuning({**CONFIG, "crop_mode": "squash"}), "config: crop_mode is 'squash'"),
        (lambda: recipes.imagenet("a1"), "imagenet: training is 'a1'"),
        (lambda: recipes.self_supervised("moco"), "self_supervised: method is 'moco'"),
    ],
)
def test_an_unknown_value_is_an_error_that_names_the_argument(make, named):
    with pytest.raises(OptionError, match=named):
        make()


def test_jitter_of_deit3_is_weaker_than_that_of_simclr():
    strengths = [
        next(op.brightness for op in recipe if isinstance(op, ColorJitter))
        for recipe in (recipes.imagenet("deit3"), recipes.self_supervised("simclr")["image"])
    ]
    assert strengths == [(0.7, 1.3), (pytest.approx(0.2), 1.8)]


def test_boxes_follow_the_images_of_a_detector(tmp_path):
    detection = recipes.detection(64, "xywh")
    assert isinstance(detection["boxes"][1], transforms.TransformBoxes)
    assert detection["boxes"][1].box_format == "xywh"
    assert detection["image"][-3].std == (255.0,)
