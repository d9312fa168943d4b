"""The gallery shows every transform, as the library itself draws it."""

from __future__ import annotations

import numpy as np
import pytest

import gpubeton.transforms
from docs.entries import ENTRIES, Entry
from docs.gallery import Gallery, draw_gallery

#: Transforms that draw nothing: they do the same to all images.
NOT_RANDOM = {"Pad", "NormalizeImage", "ModuleWrapper", "CenterCropRGBImageDecoder", "PadRGBImageDecoder"}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    return Gallery(tmp_path_factory.mktemp("photos"))


def test_every_transform_is_in_it_once():
    shown = [entry.name for entry in ENTRIES]
    assert sorted(set(gpubeton.transforms.__all__) - set(shown)) == []
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.kind == "pixels"], ids=lambda entry: entry.name)
def test_a_picture_shows_a_change_and_different_draws(gallery, entry):
    before, after = gallery.batch(entry, before=True), np.asarray(gallery.batch(entry))
    if after.shape == before.shape:
        assert any((image != other).any() for image, other in zip(before, after, strict=True))
    if entry.name not in NOT_RANDOM:
        assert any((image != after[0]).any() for image in after[1:])


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.kind != "pixels"], ids=lambda entry: entry.name)
def test_labels_boxes_and_types_are_shown(gallery, entry):
    if entry.is_text:
        before, after = gallery.describe(entry).split("\nbecomes ")
        assert before != after
    else:
        assert np.ptp(np.asarray(gallery.draw(entry))) >= 250


def test_the_page_shows_each_picture_below_the_code_that_made_it(tmp_path):
    entries = (Entry("Pad", "Pad(2)", "Places", note="A note."), Entry("Cutout", "Cutout(9)", "Holes"))
    draw_gallery(tmp_path / "pictures", tmp_path / "gallery.inc", entries)
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["Cutout.webp", "Pad.webp"]
    page = (tmp_path / "gallery.inc").read_text()
    assert page.index("## Places") < page.index("Pad(2)") < page.index("/pictures/Pad.webp") < page.index("A note.")
    assert page.index("A note.") < page.index("## Holes") < page.index("Cutout(9)")


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.kind in {"gray", "gray16"}], ids=str)
def test_images_of_other_kinds_are_drawn_in_their_kind(gallery, entry):
    images = np.asarray(gallery.batch(entry))
    assert images.shape == (6, 144, 144, 1)
    assert images.dtype == {"gray": np.uint8, "gray16": np.float32}[entry.kind]
    assert any((image != images[0]).any() for image in images[1:])


def test_there_are_pictures_of_gray_images_of_16_bits_and_of_several_views():
    assert {"gray", "gray16", "views"} <= {entry.kind for entry in ENTRIES}
