"""The two-view example: views differ, the losses are those of the papers, and the network learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.recipe import settings_of
from examples.two_views import __main__ as two_views
from gpubeton.fields import RGBImageField
from gpubeton.writer import DatasetWriter
from tests.examples.example import check_resuming, json_lines, write_beton


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Options for a small network and a file of 16 images in 2 classes."""
    path = write_beton(tmp_path_factory.mktemp("two_views"))
    sizes = ["--side", "24", "--hidden", "32", "--outputs", "8", "--num-classes", "2", "--batch-size", "8"]
    return ["--train", str(path), "--val", str(path), "--network", "resnet18", "--warmup", "0", *sizes]


def test_the_views_of_an_image_differ_and_show_the_same_image(toy, tmp_path):
    run = two_views.Run(settings_of(two_views.Settings, [*toy, "--folder", str(tmp_path)]))
    first, labels, second = next(iter(run.loader))
    run.loader.close()
    assert first.shape == second.shape == (8, 3, 24, 24)
    assert labels.shape == (8,)
    assert not any(torch.allclose(image, other, atol=0.1) for image, other in zip(first, second, strict=True))


@pytest.mark.parametrize("options", [["--method", "simclr", "--small", "true"], ["--method", "vicreg"]])
def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(toy, tmp_path, capsys, options):
    results = check_resuming(two_views, tmp_path, *toy, *options, "--epochs", "2", stop_after=3)
    assert 0 <= results["top_1"] <= 1
    first, last, *_ = [line["loss"] for line in json_lines(capsys.readouterr().out) if "loss" in line]
    assert last < first
    weights = torch.load(tmp_path / "through" / "encoder.pt", weights_only=True)
    assert "layer4.1.bn2.weight" in weights
    assert "fc.weight" not in weights


def test_the_network_does_not_learn_from_labels(toy, tmp_path):
    run = two_views.Run(settings_of(two_views.Settings, [*toy, "--folder", str(tmp_path), "--amp", "none"]))
    batch = next(iter(run.loader))
    run.loader.close()
    gradients = []
    for labels in (batch[1], 1 - batch[1]):
        run.network.zero_grad()
        run.loss(batch[0], labels, batch[2]).backward()
        gradients.append([run.network.encoder.conv1.weight.grad.clone(), run.network.classifier.weight.grad.clone()])
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert not torch.equal(gradients[0][1], gradients[1][1])


@pytest.mark.parametrize("has_labels", [False, True])
def test_labels_are_not_needed(toy, tmp_path, has_labels):
    images = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), np.uint8)
    path = tmp_path / "images.beton"
    writer = DatasetWriter(path, {"image": RGBImageField()}, num_workers=1, progress=False)
    writer.from_indexed_dataset([(image,) for image in images])
    files = [] if has_labels else ["--train", str(path), "--val", str(path)]
    options = [*toy, *files, "--num-classes", "0", "--epochs", "1", "--folder", str(tmp_path)]
    assert two_views.main(options) == {}
    assert (tmp_path / "encoder.pt").exists()


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 30), count=st.integers(2, 6), temperature=st.floats(0.1, 2))
def test_simclr_is_the_formula_of_its_paper(seed, count, temperature):
    ones, others = np.random.default_rng(seed).normal(size=(2, count, 5))
    views = np.concatenate([ones, others])
    total = 0.0
    for row in range(2 * count):
        cosines = views @ views[row] / np.linalg.norm(views, axis=1) / np.linalg.norm(views[row])
        terms = np.exp(cosines / temperature)
        total -= np.log(terms[(row + count) % (2 * count)] / (terms.sum() - terms[row]))
    result = two_views.simclr(torch.tensor(ones), torch.tensor(others), temperature)
    assert float(result) == pytest.approx(total / (2 * count), rel=1e-9, abs=1e-12)


@settings(max_examples=20)
@given(seed=st.integers(0, 1 << 30), count=st.integers(2, 6), width=st.integers(2, 5))
def test_vicreg_is_the_formula_of_its_paper(seed, count, width):
    ones, others = np.random.default_rng(seed).normal(size=(2, count, width))
    expected = 25 * np.mean((ones - others) ** 2)
    for views in (ones, others):
        covariance = np.cov(views.T, ddof=1)
        expected += 25 / 2 * np.maximum(0, 1 - np.sqrt(np.diag(covariance) + 1e-4)).mean()
        expected += (covariance[~np.eye(width, dtype=bool)] ** 2).sum() / width
    result = two_views.vicreg(torch.tensor(ones), torch.tensor(others))
    assert float(result) == pytest.approx(expected, rel=1e-9)
