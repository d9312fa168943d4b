"""Pipelines that run, but probably not as intended, cause a warning when the loader is made."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields import ImageField, RGBImageField
from gpubeton.fields.decoders import (
    FollowImage,
    RandomResizedCropImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.pipeline.operation import Operation
from gpubeton.transforms import (
    Convert,
    Cutout,
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
