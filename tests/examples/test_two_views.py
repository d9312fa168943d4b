"""The two-view example: views differ, the losses are those of the papers, and the network learns."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpubeton.fields import IntField, RGBImageField
from gpubeton.writer import DatasetWriter
from tests.examples.example import module_of, write_images


@pytest.fixture
def two_views(monkeypatch):
    return module_of(monkeypatch, "two_views.py")


@pytest.fixture
def beton(tmp_path):
    path = tmp_path / "toy.beton"
    fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
    photos = write_images(tmp_path / "photos", classes=2, images=8)
    DatasetWriter(path, fields, num_workers=1, progress=False).from_image_folder(photos)
    return str(path)


def test_the_views_of_an_image_differ_and_show_the_same_image(two_views, beton):
    options = two_views.options_of([beton, "--batch-size", "16", "--side", "32"])
    first, second = next(iter(two_views.make_loader(options, torch.device("cpu"))))
    assert first.shape == second.shape == (16, 3, 32, 32)
    assert not any(torch.allclose(one, other, atol=0.1) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("loss", ["simclr", "vicreg"])
def test_both_losses_fall(two_views, beton, tmp_path, capsys, loss):
    options = [beton, "--loss", loss, "--epochs", "4", "--batch-size", "8", "--side", "32", "--workers", "2"]
    last = two_views.main([*options, "--save", str(tmp_path / "encoder.pt")])
    printed = capsys.readouterr().out.splitlines()
    assert last < float(printed[0].split()[3].rstrip(";"))
    assert all("of the time waiting for data" in line for line in printed[:4])
    assert printed[4].endswith("of 16 images")
    assert "0.weight" in torch.load(tmp_path / "encoder.pt", weights_only=True)


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 30), count=st.integers(2, 6), temperature=st.floats(0.1, 2))
def test_simclr_is_the_formula_of_its_paper(seed, count, temperature):
    ones, others = np.random.default_rng(seed).normal(size=(2, count, 5))
    views = np.concatenate([ones, others])
    total = 0.0
    for one in range(2 * count):
        cosines = views @ views[one] / np.linalg.norm(views, axis=1) / np.linalg.norm(views[one])
        terms = np.exp(cosines / temperature)
        total -= np.log(terms[(one + count) % (2 * count)] / (terms.sum() - terms[one]))
    with pytest.MonkeyPatch.context() as patch:
        found = module_of(patch, "two_views.py").simclr(torch.tensor(ones), torch.tensor(others), temperature)
    assert float(found) == pytest.approx(total / (2 * count), rel=1e-9, abs=1e-12)


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 30), count=st.integers(2, 6), width=st.integers(2, 5))
def test_vicreg_is_the_formula_of_its_paper(seed, count, width):
    ones, others = np.random.default_rng(seed).normal(size=(2, count, width))
    expected = 25 * np.mean((ones - others) ** 2)
    for views in (ones, others):
        covariance = np.cov(views.T, ddof=1)
        expected += 25 / 2 * np.maximum(0, 1 - np.sqrt(np.diag(covariance) + 1e-4)).mean()
        expected += (covariance[~np.eye(width, dtype=bool)] ** 2).sum() / width
    with pytest.MonkeyPatch.context() as patch:
        found = module_of(patch, "two_views.py").vicreg(torch.tensor(ones), torch.tensor(others))
    assert float(found) == pytest.approx(expected, rel=1e-9)


def test_a_network_of_torchvisions_says_what_it_needs(two_views, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(SystemExit, match=r"torchvision.* --network"):
        two_views.make_encoder("resnet18")
