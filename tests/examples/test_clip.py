"""The CLIP example: tokens in a field, negatives of all processes, and runs that resume."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch

from examples.clip import __main__ as trainer
from examples.clip import write
from gpubeton.fields.decoders import NDArrayDecoder
from gpubeton.loader import Loader
from gpubeton.reader import Reader
from tests.examples.example import EXAMPLES, check_resuming, json_lines, write_images
from tests.ranks import run_ranks

TOY = """
side: 32
patch: 16
image_width: 64
image_depth: 1
text_width: 64
text_depth: 1
outputs: 16
epochs: 2
batch_size: 8
lr: 1e-3
ema: 0.5
amp: none
num_workers: 2
"""
CAPTIONS = {0: "a grey sky", 1: "a red wall with a long text", 2: "äöü"}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A file of 18 pairs, and settings for it."""
    folder = tmp_path_factory.mktemp("clip")
    write_images(folder / "photos", classes=3, images=6)
    with open(folder / "pairs.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption"])
        for number in range(18):
            table.writerow([f"photos/class{number // 6}/{number % 6}.jpg", CAPTIONS[number // 6]])
    write.main([str(folder / "pairs.csv"), str(folder / "toy.beton"), "--length", "12", "--workers", "1"])
    (folder / "toy.yaml").write_text(TOY + f"train: {folder}/toy.beton\nval: {folder}/toy.beton\n")
    return folder / "toy.yaml"


def test_captions_are_tokens_of_a_fixed_number(toy):
    path = toy.parent / "toy.beton"
    assert Reader(path).notes["vocabulary"] == 258
    with Loader(path, 18, pipelines={"image": None, "tokens": [NDArrayDecoder()]}) as loader:
        ((result,),) = list(loader)
    for number in (0, 6, 12):
        text = CAPTIONS[number // 6].encode()[:11]
        assert result[number].tolist() == [1, *(byte + 2 for byte in text), *[0] * (11 - len(text))]


def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(toy, tmp_path):
    results = check_resuming(trainer, tmp_path, "--config", str(toy), stop_after=1)
    assert results.keys() == {"image_to_text", "text_to_image"}
    assert all(0 <= share <= 1 for share in results.values())


def test_two_processes_train_as_one_with_their_batches_together(toy, tmp_path, capsys):
    # All pairs are one batch: the order of the samples differs when they are shared.
    config = ["--config", str(toy), "--lr", "1e-2"]
    trainer.main([*config, "--folder", str(tmp_path / "one"), "--batch-size", "18"])
    report = json_lines(capsys.readouterr().out)
    options = [*config, "--folder", str(tmp_path / "two"), "--batch-size", "9"]
    two = json_lines(run_ranks("examples.clip.__main__", options))
    assert two[0]["world"] == 2
    losses = [[line["loss"] for line in lines if "loss" in line] for lines in (report, two)]
    assert len(losses[0]) == 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_loss_is_the_mean_of_two_cross_entropies():
    ones, others = (torch.nn.functional.normalize(torch.randn(5, 3, dtype=torch.float64)) for _ in range(2))
    likeness = np.exp(10 * (ones @ others.T).numpy())
    rows, columns = (np.log(np.diag(likeness) / likeness.sum(axis)).mean() for axis in (1, 0))
    result = trainer.contrastive_loss(ones, others, torch.tensor(10.0, dtype=torch.float64))
    assert float(result) == pytest.approx(-(rows + columns) / 2)


def test_filling_tokens_do_not_count():
    texts = trainer.TextTower(10, 6, 64, 1, 4).eval()
    short = texts(torch.tensor([[3, 4, 0, 0, 0, 0]]))
    with torch.no_grad():
        texts.tokens.weight[0] += torch.randn(64)  # a constant would be normalized away
    assert torch.allclose(short, texts(torch.tensor([[3, 4, 0, 0, 0, 0]])), atol=1e-6)
    assert not torch.allclose(short, texts(torch.tensor([[3, 5, 0, 0, 0, 0]])), atol=1e-3)


def test_the_configuration_has_known_settings():
    path = EXAMPLES / "clip" / "configs" / "vit_b32.yaml"
    settings = trainer.recipe.settings_of(trainer.Settings, ["--config", str(path), "--patch", "16"])
    assert (settings.lr, settings.compile, settings.patch) == (5e-4, "inductor", 16)
