"""Several views of each image: from one decode, each as if it were alone."""

from __future__ import annotations

import pytest
import torch

from gpubeton.errors import BadImageError
from gpubeton.fields import RGBImageField
from gpubeton.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import PipelineSpec
from gpubeton.transforms import Cutout, RandomBrightness, RandomHorizontalFlip, RandomTranslate, ToTensor
from tests.small_files import damage, picture, write, write_photos

LENGTH = 30
OTHERS = ("label", "weight", "note", "info", "vector")
VIEWS = {
    "image": [RandomResizedCropRGBImageDecoder((24, 24)), RandomHorizontalFlip(), RandomBrightness(0.8), ToTensor()],
    "second": [RandomResizedCropRGBImageDecoder((24, 24), (0.5, 1), interpolation="antialias"), Cutout(5), ToTensor()],
    "small": [RandomResizedCropRGBImageDecoder((9, 12), (0.05, 0.2)), RandomTranslate(2), ToTensor()],
    "plain": [CenterCropRGBImageDecoder((16, 16), 1), ToTensor()],
}


@pytest.fixture(scope="module", params=["jpg", "raw"])
def photos(tmp_path_factory, request):
    return write_photos(tmp_path_factory.mktemp("views") / f"{request.param}.beton", LENGTH, write_mode=request.param)


def loader(path, names=tuple(VIEWS), **arguments):
    """A loader with these views and no other output; the others keep their places, and with them their numbers."""
    specs = {name: PipelineSpec("image", transforms=views) if name in names else None for name, views in VIEWS.items()}
    specs = {name: spec for name, spec in specs.items() if spec or name == "image"}
    usual = {"batch_size": 8, "num_workers": 2, "seed": 5, "order": "random", "drop_last": False}
    return Loader(path, pipelines={**dict.fromkeys(OTHERS), **specs}, **{**usual, **arguments})


@pytest.mark.parametrize("os_cache", [True, False])
def test_each_view_equals_that_of_a_loader_with_it_alone(photos, os_cache):
    together = list(loader(photos, os_cache=os_cache))
    assert len(together) == 4
    # A view's draws depend on its place among the outputs: the first two have it alone, too.
    for number, name in enumerate(("image", "second")):
        alone = list(loader(photos, ("image", name) if number else (name,)))
        for batch, separate in zip(together, alone, strict=True):
            assert torch.equal(batch[number], separate[number])
    for (plain,), batch in zip(loader(photos, ("plain",)), together, strict=True):
        assert torch.equal(plain, batch[3])


def test_a_view_is_drawn_alike_whether_the_fields_before_it_are_left_out_or_not(photos):
    label = {**dict.fromkeys(OTHERS), "label": [IntDecoder(), ToTensor()]}
    second = {"image": None, "second": PipelineSpec("image", transforms=VIEWS["second"])}
    usual = {"num_workers": 1, "seed": 5, "drop_last": False}
    with_label = Loader(photos, 8, pipelines={**label, **second}, **usual)
    for (view,), (_, same) in zip(loader(photos, ("second",), order="sequential"), with_label, strict=True):
        assert torch.equal(view, same)


def test_two_views_of_one_image_differ_and_do_not_depend_on_the_workers(photos):
    first, other = list(loader(photos)), list(loader(photos, num_workers=1))
    for batch, again in zip(first, other, strict=True):
        assert all(torch.equal(view, same) for view, same in zip(batch, again, strict=True))
        assert not torch.equal(batch[0], batch[1])


@pytest.fixture
def damaged(tmp_path):
    path = write_photos(tmp_path / "damaged.beton", LENGTH)
    for sample in (4, 17):
        damage(path, sample)
    return path


def test_a_bad_image_is_reported_once_for_all_its_views(damaged):
    with pytest.raises(BadImageError) as caught:
        list(loader(damaged, order="sequential"))
    text = str(caught.value)
    assert "sample 4" in text
    assert text.count("image: ") == 1
    assert not any(f"{name}: " in text for name in ("second", "small", "plain"))


def test_bad_images_of_two_fields_are_both_named(tmp_path):
    pairs = [(picture(number, 30, 40), picture(number, 40, 30)) for number in range(4)]
    path = write(tmp_path / "pairs.beton", {"left": RGBImageField("jpg"), "right": RGBImageField("jpg")}, pairs)
    for field in ("left", "right"):
        damage(path, 2, field=field)
    specs = {name: [CenterCropRGBImageDecoder((8, 8), 1)] for name in ("left", "right")}
    with pytest.raises(BadImageError) as caught:
        list(Loader(path, 4, num_workers=1, pipelines=specs))
    (reason,) = caught.value.reasons
    assert reason.startswith("left: ")
    assert "; right: " in reason
