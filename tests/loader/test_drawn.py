from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import PipelineError
from gpubeton.fields.decoders import (
    FollowImage,
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
    ResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.pipeline import DrawnParameters, PipelineSpec
from gpubeton.transforms import (
    ColorJitter,
    Cutout,
    LabelMixup,
    RandomBrightness,
    RandomErasing,
    RandomHorizontalFlip,
    RandomRotation,
    RandomTranslate,
    Squeeze,
    ToTensor,
)
from tests.loader.pipelines import augmented
from tests.small_files import picture

REST = dict.fromkeys(["label", "weight", "note", "info", "vector"])


class WindowDecoder(ResizedCropRGBImageDecoder):
    """A random part of the output's own size, so that nothing is resized."""

    is_random = True

    def boxes(self, heights, widths, uniform):
        size = np.array(self.output_size)
        corners = uniform(2) * (np.stack([heights, widths], axis=1) - size + 1)
        return np.hstack([corners, np.broadcast_to(size, corners.shape)]).astype(np.int32)


def make(path, image, drawn=("image",), **arguments):
    pipelines = {"image": image, **REST} | {f"drawn_{name}": DrawnParameters(name) for name in drawn}
    pipelines |= arguments.pop("pipelines", {})
    defaults = {"num_workers": 2, "seed": 5, "drop_last": False, "order": "random", "pipelines": pipelines}
    return Loader(path, arguments.pop("batch_size", 7), **{**defaults, **arguments})


def rows_of(loader):
    """Each sample of the next epoch with its image and its parameters."""
    batches = iter(loader)
    for image, *_, drawn in batches:
        for row, sample in enumerate(batches.samples.tolist()):
            yield sample, image[row].numpy(), {name: values[row].numpy() for name, values in drawn.items()}


def painted(image, box, fill):
    top, left, height, width = box
    image[top : top + height, left : left + width] = fill


def test_with_the_numbers_the_augmentation_can_be_done_again(raw_photos):
    operations = [
        WindowDecoder((24, 20)), RandomHorizontalFlip(), RandomTranslate(5, (1, 2, 3)), Cutout(6, (9, 8, 7)),
        RandomBrightness(0.9), RandomErasing(value=(50, 60, 70)), RandomHorizontalFlip(), ToTensor(),
    ]  # fmt: skip
    seen = {"RandomHorizontalFlip": set(), "RandomHorizontalFlip_2": set()}
    for epoch in range(2):
        for sample, result, drawn in rows_of(make(raw_photos, operations, seed=epoch)):
            top, left, height, width = drawn["crop"]
            assert drawn["size"].tolist() == [48, 64]
            image = picture(sample, 48, 64)[top : top + height, left : left + width].copy()
            image = image[:, ::-1] if drawn["RandomHorizontalFlip"] else image
            down, right = drawn["RandomTranslate"]
            moved = np.full_like(image, (1, 2, 3))
            for y in range(height):
                for x in range(width):
                    if 0 <= y - down < height and 0 <= x - right < width:
                        moved[y, x] = image[y - down, x - right]
            painted(moved, drawn["Cutout"], (9, 8, 7))
            image = np.floor(np.minimum(moved * drawn["RandomBrightness"], 255)).astype(np.uint8)
            painted(image, drawn["RandomErasing"], (50, 60, 70))
            image = image[:, ::-1] if drawn["RandomHorizontalFlip_2"] else image
            assert np.array_equal(result, image)
            for name, values in seen.items():
                values.add(bool(drawn[name]))
    assert all(values == {False, True} for values in seen.values())


def test_numbers_do_not_depend_on_the_batch_size_and_workers(photos):
    first, second = (
        {sample: drawn for sample, _, drawn in rows_of(make(photos, augmented(), batch_size=size, num_workers=workers))}
        for size, workers in ((7, 1), (16, 2))
    )
    assert first.keys() == second.keys() == set(range(50))
    assert all(np.array_equal(values, second[key][name]) for key in first for name, values in first[key].items())


def test_drawn_parameters_change_no_other_output(photos):
    view = PipelineSpec(
        "image", transforms=[RandomResizedCropRGBImageDecoder((8, 8)), RandomHorizontalFlip(), ToTensor()]
    )
    pipelines = {"image": augmented(), **REST}
    plain = make(photos, None, drawn=(), pipelines={**pipelines, "view": view})
    asked = make(photos, None, drawn=(), pipelines={**pipelines, "drawn": DrawnParameters("view"), "view": view})
    for (image, other), (same_image, drawn, same_other) in zip(plain, asked, strict=True):
        assert torch.equal(image, same_image)
        assert torch.equal(other, same_other)
        assert list(drawn) == ["size", "crop", "RandomHorizontalFlip"]


def test_drawn_parameters_of_a_branch_are_the_shared_ones_and_its_later_ones(raw_photos):
    shared, later = RandomRotation(10), RandomRotation(180)
    image = [SimpleRGBImageDecoder(), RandomHorizontalFlip(), shared, ColorJitter(0.4), ToTensor()]
    branch = PipelineSpec(shared, transforms=[later, ToTensor()])
    loader = make(raw_photos, image, drawn=("image", "view"), pipelines={"view": branch})
    for _, drawn, of_view, _ in loader:
        assert {name.partition(".")[0] for name in drawn} == {
            "size", "crop", "RandomHorizontalFlip", "RandomRotation", "ColorJitter",
        }  # fmt: skip
        assert list(of_view) == ["size", "crop", "RandomHorizontalFlip", "RandomRotation", "RandomRotation_2"]
        for name in ("crop", "RandomHorizontalFlip", "RandomRotation"):
            assert torch.equal(drawn[name], of_view[name])
        assert of_view["RandomRotation"].abs().max() <= 10 < of_view["RandomRotation_2"].abs().max()


def test_drawn_parameters_of_a_follower_include_those_of_the_image(photos):
    image = [RandomResizedCropRGBImageDecoder((24, 20)), RandomBrightness(0.5), RandomHorizontalFlip(), ToTensor()]
    mask = PipelineSpec("image", transforms=[FollowImage("image"), RandomTranslate(2), ToTensor()])
    loader = make(photos, image, drawn=("image", "mask"), pipelines={"mask": mask})
    for _, drawn, of_mask, _ in loader:
        assert list(of_mask) == ["size", "crop", "RandomHorizontalFlip", "RandomTranslate"]
        for name in ("size", "crop", "RandomHorizontalFlip"):
            assert torch.equal(drawn[name], of_mask[name])


def test_of_labels_there_are_partner_and_share(raw_photos):
    mixed = {"label": [IntDecoder(), LabelMixup(0.5, False), ToTensor(), Squeeze()]}
    loader = make(raw_photos, None, drawn=("label",), pipelines=mixed)
    for labels, drawn in loader:
        assert list(drawn) == ["LabelMixup.partner", "LabelMixup.share"]
        assert torch.equal(labels[:, 1], labels[drawn["LabelMixup.partner"], 0])
        assert torch.equal(labels[:, 2], drawn["LabelMixup.share"].float())


def test_an_output_without_draws_gives_an_empty_dict_and_one_that_does_not_exist_is_refused(photos, raw_photos):
    assert next(iter(make(raw_photos, None, drawn=("weight",), pipelines={"weight": ()})))[1] == {}
    with pytest.raises(PipelineError, match=r"'drawn_picture': .*'picture'.*'image'"):
        make(photos, augmented(), drawn=("picture",))
    with pytest.raises(PipelineError, match=r"'drawn_image'"):
        make(photos, augmented(), drawn=("image", "drawn_image"))
    with pytest.raises(PipelineError, match=r"'label' .* 'label_drawn'"):
        make(photos, augmented(), drawn=(), pipelines={"label": DrawnParameters("image")})
