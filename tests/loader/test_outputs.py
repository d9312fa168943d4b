"""A file with outputs of all kinds: images, views, branches, masks, boxes and their draws."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from gpubeton.fields import IntField, RaggedField, RGBImageField
from gpubeton.fields.decoders import FollowImage, RaggedDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import DrawnParameters, PipelineSpec
from gpubeton.transforms import ColorJitter, Cutout, RandomHorizontalFlip, ToTensor, TransformBoxes
from tests.small_files import damage, picture, write

SPOILT = (2, 3, 11)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """A file of images with masks and boxes, and a copy in which three images cannot be decoded."""
    folder = tmp_path_factory.mktemp("scenes")
    fields = {"image": RGBImageField("jpg"), "mask": RGBImageField("raw"), "boxes": RaggedField("<f4", (-1, 4))}
    pictures = [picture(number, 40 + number, 60) for number in range(24)]
    samples = [
        (image, image, np.tile(np.float32([number, 5, number + 9, 30]), (number % 3, 1)), number)
        for number, image in enumerate(pictures)
    ]
    path = write(folder / "whole.beton", {**fields, "label": IntField()}, samples)
    copied = shutil.copy(path, folder / "spoilt.beton")
    for sample in SPOILT:
        damage(copied, sample)
    return path, copied


def make(path, **arguments):
    flip = RandomHorizontalFlip()
    view = [RandomResizedCropRGBImageDecoder((9, 12)), RandomHorizontalFlip(), ColorJitter(0.1, hue=0.1), ToTensor()]
    pipelines = {
        "image": [RandomResizedCropRGBImageDecoder((24, 32)), flip, ToTensor()],
        "mask": [FollowImage(), ToTensor()],
        "boxes": [RaggedDecoder(), TransformBoxes(keep="all"), ToTensor()],
        "branch": PipelineSpec(flip, transforms=[Cutout(4), ToTensor()]),
        "view": PipelineSpec("image", transforms=view),
        "drawn": DrawnParameters("view"),
    }
    return Loader(path, 5, num_workers=2, seed=3, drop_last=False, pipelines=pipelines, **arguments)


def rows_of(path, **arguments):
    """The row that each sample of an epoch has in each output."""
    for *outputs, drawn in make(path, **arguments):
        for rows in zip(*outputs, *drawn.values(), strict=True):
            yield [np.asarray(row).tolist() for row in rows]


@pytest.mark.parametrize(("on_error", "instead"), [("skip", {}), ("replace", {2: 4, 3: 4, 11: 12})])
def test_a_sample_is_left_out_or_replaced_in_all_outputs_of_its_batch(scenes, on_error, instead):
    whole, spoilt = scenes
    expected = list(rows_of(whole))
    samples = [instead.get(sample, sample) for sample in range(24) if sample in instead or sample not in SPOILT]
    assert list(rows_of(spoilt, on_error=on_error)) == [expected[sample] for sample in samples]


def test_explain_names_for_each_output_the_shared_parts_and_its_form(scenes, capsys):
    make(scenes[0]).explain()
    printed = capsys.readouterr().out
    for pattern in (
        r"decoded once for 'image', 'view'.*: each image of 'image'",
        r"branch: shape \(N, 24, 32, 3\), uint8\n  RandomHorizontalFlip\(flip_prob=0\.5\)  in 'image'",
        r"boxes: shape \(N, -1, 5\), float32",
        r"\n +TransformBoxes\(image='image', box_format='xyxy', relative",
        r"drawn: a dict, what is drawn for 'view'\n  size ",
        r"RandomHorizontalFlip +bool \(N\)",
        r"ColorJitter\.order +int32 \(N, 2\)",
    ):
        assert re.search(pattern, printed), (pattern, printed)
