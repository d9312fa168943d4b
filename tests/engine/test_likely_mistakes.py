"""Pipelines that run, but probably not as intended, cause a warning when the loader is made."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields import ImageField, IntField, RGBImageField
from gpubeton.fields.decoders import (
    FollowImage,
    RandomResizedCropImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.pipeline import DrawnParameters, PipelineSpec
from gpubeton.pipeline.operation import Operation
from gpubeton.transforms import (
    Convert,
    Cutout,
    ImageCutMix,
    ImageMixup,
    ImageMixupOrCutMix,
    LabelCutMix,
    LabelMixup,
    LabelMixupOrCutMix,
    NormalizeImage,
    PerSample,
    RandomHorizontalFlip,
    RandomRotation,
    RandomTranslate,
    ToTensor,
    ToTorchImage,
    View,
)
from tests.small_files import picture, write

CROP = RandomResizedCropRGBImageDecoder((16, 16))
FLIPPED = [SimpleRGBImageDecoder(), RandomHorizontalFlip()]


class Scenes:
    """A mask, the photo that it belongs to, and a second photo."""

    def __init__(self, widths=(31,)):
        self.widths = widths

    def __len__(self):
        return 4

    def __getitem__(self, number):
        size = 22, self.widths[number % len(self.widths)]
        return np.full(size, number, np.uint8), picture(number, *size), picture(number + 4, *size)


def scenes(path, **arguments):
    fields = {"mask": ImageField("gray"), "image": RGBImageField(), "other": RGBImageField()}
    return write(path, fields, Scenes(**arguments))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return scenes(tmp_path_factory.mktemp("scenes") / "scenes.beton")


def warnings_of(file, **pipelines):
    """The warnings of a loader with these outputs alone."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Loader(file, 2, num_workers=1, seed=0, pipelines={"mask": None, "image": None, "other": None, **pipelines})
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ([CROP], [RandomResizedCropImageDecoder((16, 16))]),
        ([CROP], [RandomHorizontalFlip()]),
        (FLIPPED, ()),  # without a pipeline: a mask that is never flipped
        ([SimpleRGBImageDecoder(), ToTensor(), RandomRotation(20)], [ToTensor()]),
    ],
)
def test_a_mask_that_does_not_follow_the_moves_of_its_image_causes_a_warning_that_names_the_decoder(file, image, mask):
    (message,) = warnings_of(file, image=image, mask=mask)
    assert "those of 'mask' do not follow" in message
    assert "FollowImage('image')" in message


def test_the_warning_names_the_image_that_other_outputs_follow(file):
    (message,) = warnings_of(file, other=[CROP], image=[CROP], mask=[FollowImage("image")])
    assert "FollowImage('image')" in message
    assert "those of 'other' do not follow" in message


@pytest.mark.parametrize(
    "pipelines",
    [
        {"image": [CROP], "mask": [FollowImage("image")]},
        {"image": [CROP], "view": PipelineSpec("image", transforms=[CROP])},
        {
            "image": [CROP],
            "view": PipelineSpec("image", transforms=[CROP]),
            "mask": [FollowImage("image")],
            "mask of the view": PipelineSpec("mask", transforms=[FollowImage("view")]),
        },
        {"image": [CROP], "mask": [FollowImage("image")], "whole": PipelineSpec("mask")},
        {"image": [SimpleRGBImageDecoder()], "mask": ()},
        {"image": [SimpleRGBImageDecoder(), Cutout(4)], "mask": (), "other": ()},
        {"image": [CROP], "other": [SimpleRGBImageDecoder()]},
        {"mask": [RandomHorizontalFlip()], "still": PipelineSpec("mask")},
    ],
)
def test_pipelines_whose_images_fit_are_not_warned_of(file, pipelines):
    assert warnings_of(file, **pipelines) == []


def test_the_filter_in_the_warning_keeps_it_quiet(file):
    (message,) = warnings_of(file, image=[CROP], other=[CROP])
    call = message[message.index("warnings.filterwarnings") :]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eval(call)
        Loader(file, 2, num_workers=1, seed=0, pipelines={"mask": None, "image": [CROP], "other": [CROP]})


@pytest.mark.parametrize("mask", [(), [CROP]])
def test_errors_of_gray_images_recommend_to_follow_and_never_a_decoder_of_colors(tmp_path, mask):
    file = scenes(tmp_path / "two_sizes.beton", widths=(31, 33))
    with pytest.raises(PipelineError) as caught:
        Loader(file, 2, num_workers=1, pipelines={"image": [CROP], "other": None, "mask": mask})
    advice = str(caught.value).partition("Begin the pipeline")[2]
    assert "FollowImage('image')" in advice
    assert "RGB" not in advice


# --- mixing ----------------------------------------------------------------------------------------------------------

MIXUP = ImageMixup(0.2, True)
EITHER = ImageMixupOrCutMix(0.2, 1.0, True)


@pytest.fixture(scope="module")
def labeled(tmp_path_factory):
    samples = [(number, picture(number, 22, 31)) for number in range(4)]
    return write(
        tmp_path_factory.mktemp("labeled") / "x.beton", {"label": IntField(), "image": RGBImageField()}, samples
    )


def warnings_of_mixing(file, image, label, **more):
    pipelines = {"image": [SimpleRGBImageDecoder(), *image], "label": label, **more}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Loader(file, 2, num_workers=1, seed=0, pipelines=pipelines)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("image", "label", "names"),
    [
        ([MIXUP], [LabelMixup(0.4, True)], ["ImageMixup(alpha=0.2", "LabelMixup(alpha=0.4"]),
        ([MIXUP], [LabelMixup(0.2, False)], ["same_lambda=True", "same_lambda=False"]),
        ([MIXUP], [LabelCutMix(0.2, True)], ["ImageMixup", "LabelCutMix"]),
        ([ImageCutMix(1.0, True)], (), ["ImageCutMix", "'label' has none"]),
        ([MIXUP, ImageCutMix(1.0, True)], [LabelMixup(0.2, True)], ["ImageCutMix"]),
        ([EITHER], [LabelMixupOrCutMix(0.2, 1.0, True, 0.3)], ["p_cutmix=0.5", "p_cutmix=0.3"]),
        ([], [LabelMixup(0.2, True)], ["LabelMixup", "'image' has none"]),
    ],
)
def test_labels_that_are_not_mixed_as_the_images_are_cause_a_warning(labeled, image, label, names):
    (message,) = warnings_of_mixing(labeled, image, label)
    assert "labels would not fit the images" in message
    assert [name for name in names if name not in message] == []


@pytest.mark.parametrize(
    ("image", "label", "more"),
    [
        ([MIXUP], [LabelMixup(0.2, True)], {}),
        ([MIXUP], None, {}),  # there are no labels
        ([MIXUP], (), {"drawn": DrawnParameters("image")}),  # the loop may mix them
        ([ImageCutMix(1.0, True)], [LabelCutMix(1.0, True, (22, 31))], {}),
        ([EITHER], [LabelMixupOrCutMix(0.2, 1.0, True, size=(22, 31))], {}),
        ([], (), {}),
    ],
)
def test_labels_that_are_mixed_alike_or_by_the_loop_are_not_warned_of(labeled, image, label, more):
    assert warnings_of_mixing(labeled, image, label, **more) == []


# --- transforms of torchvision on batches -----------------------------------------------------------------------------


def torchvision_like(name, *inner):
    """A module that looks like a transform of torchvision; Compose keeps those inside of it in a list."""
    kind = type(
        name, (torch.nn.Module,), {"__module__": "torchvision.transforms.v2", "forward": lambda _, batch: batch}
    )
    module = kind()
    if inner:
        module.transforms = list(inner)
    return module


@pytest.mark.parametrize(
    ("module", "parts"),
    [
        (torchvision_like("RandomHorizontalFlip"), "RandomHorizontalFlip"),
        (torchvision_like("Compose", torchvision_like("Resize"), torchvision_like("ColorJitter")), "ColorJitter"),
        (torch.nn.Sequential(torchvision_like("RandAugment")), "RandAugment"),
    ],
)
def test_torchvisions_random_transforms_on_a_batch_cause_a_warning_with_the_remedy(file, module, parts):
    (message,) = warnings_of(file, image=[SimpleRGBImageDecoder(), ToTensor(), ToTorchImage(), module])
    assert f"{parts} of torchvision, in the pipeline of 'image', draws once for a batch" in message
    with pytest.raises(PipelineError, match=rf"draw once for all images of a batch \({parts}\)"):
        warnings_of(file, image=[SimpleRGBImageDecoder(), module])


def test_the_remedy_names_the_operation_that_draws_for_each_image(file):
    module = torchvision_like("RandomHorizontalFlip")
    (message,) = warnings_of(file, image=[SimpleRGBImageDecoder(), ToTensor(), ToTorchImage(), module])
    assert "gpubeton.transforms.RandomHorizontalFlip" in message


@pytest.mark.parametrize("module", [torchvision_like("Normalize"), torch.nn.Dropout()])
def test_other_modules_are_not_warned_of(file, module):
    assert warnings_of(file, image=[SimpleRGBImageDecoder(), ToTensor(), ToTorchImage(), module]) == []


def torchvision_normalize(*std):
    module = torchvision_like("Normalize")
    module.mean, module.std = std, std
    return module


def scaling(scale):
    module = torchvision_like("ToDtype")
    module.scale = scale
    return module


@pytest.mark.parametrize(
    ("operations", "what"),
    [
        ([ToTensor(), ToTorchImage(), Convert(torch.float32), torchvision_normalize(0.2, 0.2, 0.2)], "from 0 to 255"),
        ([ToTensor(), ToTorchImage(), scaling(False), torchvision_normalize(0.2, 0.2, 0.2)], "from 0 to 255"),
        (
            [NormalizeImage([120] * 3, [60] * 3, np.float32), ToTensor(), ToTorchImage(), torchvision_normalize(0.2)],
            "normalized already",
        ),
    ],
)
def test_torchvisions_normalize_for_other_numbers_is_warned_of(file, operations, what):
    (message,) = warnings_of(file, image=[SimpleRGBImageDecoder(), *operations])
    assert "torchvision's Normalize in the pipeline of 'image'" in message
    assert what in message


@pytest.mark.parametrize(
    "operations",
    [
        [ToTensor(), ToTorchImage(), scaling(True), torchvision_normalize(0.2, 0.2, 0.2)],
        [ToTensor(), ToTorchImage(), torch.nn.Sequential(scaling(True), torchvision_normalize(0.2, 0.2, 0.2))],
        [ToTensor(), ToTorchImage(), Convert(torch.float32), torchvision_normalize(60, 60, 60)],
        [NormalizeImage([0] * 3, [255] * 3, np.float32), ToTensor(), ToTorchImage(), torchvision_normalize(0.2)],
    ],
)
def test_torchvisions_normalize_for_these_numbers_is_not_warned_of(file, operations):
    assert warnings_of(file, image=[SimpleRGBImageDecoder(), *operations]) == []


def test_torchvisions_transforms_on_channels_last_are_warned_of(file):
    (message,) = warnings_of(file, image=[SimpleRGBImageDecoder(), ToTensor(), torchvision_like("Resize")])
    assert "Resize of torchvision" in message
    assert "channels last" in message


# --- halves as int16 --------------------------------------------------------------------------------------------------

TO_HALF = NormalizeImage([100] * 3, [50] * 3, np.float16)
BRANCH = ToTensor()


def unchanged(image, generator):
    return image


class Plain(Operation):
    """A user's operation that leaves a batch as it is, and declares its type."""

    def __init__(self, dtype=None):
        self.dtype = dtype

    def generate_code(self):
        return lambda batch, _: batch if self.dtype is None else batch.view(self.dtype)

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=False, dtype=self.dtype or previous_state.dtype), None


@pytest.mark.parametrize(
    ("operations", "reader"),
    [
        ([TO_HALF, ToTensor()], "the loop"),
        ([TO_HALF], "the loop"),
        ([TO_HALF, ToTensor(), ToTorchImage(convert_back_int16=False)], "the loop"),
        ([PerSample(unchanged), TO_HALF, ToTensor()], "the loop"),  # not fused
        ([TO_HALF, PerSample(unchanged), ToTensor(), ToTorchImage()], "PerSample"),
        ([TO_HALF, ToTensor(), torch.nn.Identity(), ToTorchImage()], "ModuleWrapper"),
        ([TO_HALF, ToTensor(), Convert(torch.float32), ToTorchImage()], "Convert"),
        ([TO_HALF, Plain(), ToTensor(), ToTorchImage()], "Plain"),
    ],
)
def test_bits_of_halves_read_as_numbers_cause_a_warning_with_the_remedy(file, operations, reader):
    (message,) = warnings_of(file, image=[SimpleRGBImageDecoder(), *operations])
    assert f"{reader}" in message.partition(" gets int16 numbers")[0]
    assert "'image'" in message
    assert "ToTorchImage()" in message
    assert "np.float32" in message


@pytest.mark.parametrize(
    "operations",
    [
        [TO_HALF, ToTensor(), ToTorchImage()],
        [TO_HALF, RandomTranslate(2), ToTensor(), ToTorchImage(), torch.nn.Identity()],
        [ToTensor(), TO_HALF],
        [TO_HALF, ToTensor(), View(torch.float16)],
        [TO_HALF, Plain(np.dtype("f2")), ToTensor()],
        [NormalizeImage(0, 1, np.float32), ToTensor()],
        [ToTensor(), Convert(torch.int16)],
    ],
)
def test_halves_that_are_turned_back_are_not_warned_of(file, operations):
    assert warnings_of(file, image=[SimpleRGBImageDecoder(), *operations]) == []


def test_an_output_that_continues_from_bits_of_halves_causes_a_warning_too(file):
    image = [SimpleRGBImageDecoder(), TO_HALF, BRANCH, ToTorchImage()]
    (message,) = warnings_of(file, image=image, branch=PipelineSpec(BRANCH))
    assert "'branch'" in message
