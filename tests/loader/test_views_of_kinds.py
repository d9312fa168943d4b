"""Several views of images of any kind: a PNG file is unpacked once for all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton._cpu import refused_images
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


class Pairs:
    def __init__(self, kind):
        self.kind = IMAGE_KINDS[kind]

    def __len__(self):
        return LENGTH

    def __getitem__(self, number):
        shape = 30 + number, 40, self.kind.channels
        levels = np.random.default_rng(number).integers(0, self.kind.max_level + 1, shape)
        return picture(number, 30 + number, 40), levels.astype(self.kind.dtype)


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


@pytest.mark.parametrize("write_mode", ["png", "raw"])
@pytest.mark.parametrize("kind", KINDS)
def test_views_of_every_kind_are_as_if_alone_and_a_png_file_is_unpacked_once(tmp_path, monkeypatch, kind, write_mode):
    fields = {"image": RGBImageField("raw"), "mask": ImageField(kind, write_mode)}
    path = write(tmp_path / "pairs.beton", fields, Pairs(kind))
    alone = {name: [batch[1] for batch in loader(path, (name,))] for name in ("first", "second", "third")}
    calls = []
    unpack = refused_images.decode_png
    monkeypatch.setattr(refused_images, "decode_png", lambda *arguments: calls.append(1) or unpack(*arguments))
    together = list(loader(path))
    # The first draws, and has the same place among the outputs when it is alone; the others draw nothing.
    for number, name in enumerate(("first", "second", "third"), start=1):
        assert all(torch.equal(batch[number], separate) for batch, separate in zip(together, alone[name], strict=True))
    assert len(calls) == (LENGTH if write_mode == "png" else 0)


def test_a_bad_png_file_is_reported_once(tmp_path):
    fields = {"image": RGBImageField("raw"), "mask": ImageField("gray", "png")}
    path = write(tmp_path / "pairs.beton", fields, Pairs("gray"))
    damage(path, 3, field="mask", content=bytes(40))
    with pytest.raises(BadImageError) as caught:
        list(loader(path))
    (reason,) = caught.value.reasons
    assert reason.count("first: ") == 1
    assert "second: " not in reason
    assert sum(len(batch[1]) for batch in loader(path, on_error="skip")) == LENGTH - 1
