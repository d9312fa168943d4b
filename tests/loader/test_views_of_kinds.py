"""Several views of images of any kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import BadImageError
from gpubeton.fields import ImageField, RGBImageField
from gpubeton.fields.decoders import (
    CenterCropImageDecoder,
    CenterCropRGBImageDecoder,
    FollowImage,
    RandomResizedCropImageDecoder,
)
from gpubeton.format.field_arguments import IMAGE_KINDS
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import RandomHorizontalFlip, ToTensor
from tests.small_files import damage, picture, write

LENGTH = 10
KINDS = sorted(IMAGE_KINDS)


def pair(kind, number):
    shape = 30 + number, 40, kind.channels
    levels = np.random.default_rng(number).integers(0, kind.max_level + 1, shape)
    return picture(number, 30 + number, 40), levels.astype(kind.dtype)


def write_pairs(path, kind, write_mode):
    fields = {"image": RGBImageField("raw"), "mask": ImageField(kind, write_mode)}
    return write(path, fields, [pair(IMAGE_KINDS[kind], number) for number in range(LENGTH)])


def pipelines(names):
    specs = {
        "first": PipelineSpec("mask", RandomResizedCropImageDecoder((9, 12)), [RandomHorizontalFlip(), ToTensor()]),
        "second": PipelineSpec("mask", CenterCropImageDecoder((8, 8), 1), [ToTensor()]),
        "third": PipelineSpec("mask", FollowImage("image"), [ToTensor()]),
    }
    return {
        "image": PipelineSpec("image", CenterCropRGBImageDecoder((7, 7), 1), [ToTensor()]),
        "mask": None,
        **{name: spec for name, spec in specs.items() if name in names},
    }


def loader(path, names=("first", "second", "third"), **arguments):
    usual = {"batch_size": 4, "num_workers": 2, "seed": 1, "drop_last": False}
    return Loader(path, pipelines=pipelines(names), **{**usual, **arguments})


@pytest.mark.parametrize(
    ("kind", "write_mode"), [("gray", "jpg"), *((kind, mode) for kind in KINDS for mode in ("png", "raw"))]
)
def test_views_of_every_kind_are_as_if_alone(tmp_path, kind, write_mode):
    path = write_pairs(tmp_path / "pairs.beton", kind, write_mode)
    alone = {name: [batch[1] for batch in loader(path, (name,))] for name in ("first", "second", "third")}
    together = list(loader(path))
    # The first draws, and has the same place among the outputs when it is alone; the others draw nothing.
    for number, name in enumerate(("first", "second", "third"), start=1):
        assert all(torch.equal(batch[number], separate) for batch, separate in zip(together, alone[name], strict=True))


def test_a_bad_png_file_is_reported_once(tmp_path):
    path = write_pairs(tmp_path / "pairs.beton", "gray", "png")
    damage(path, 3, field="mask", content=bytes(40))
    with pytest.raises(BadImageError) as caught:
        list(loader(path))
    (reason,) = caught.value.reasons
    assert reason.count("first: ") == 1
    assert "second: " not in reason
    assert sum(len(batch[1]) for batch in loader(path, on_error="skip")) == LENGTH - 1
