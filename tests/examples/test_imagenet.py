"""The ImageNet example: its parts are FFCV's recipe, and it trains, stops, goes on and shares the work."""

from __future__ import annotations

import json
import re

import pytest
import torch

from examples.imagenet import __main__ as trainer
from examples.imagenet import report, resnet, write
from examples.recipe import learning_rate, settings_of
from tests.examples.example import EXAMPLES, check_resuming, json_lines, run_in_two_processes, write_images

CONFIGS = sorted((EXAMPLES / "imagenet" / "configs").glob("*.yaml"))
TOY = """
network: resnet18
epochs: 2
batch_size: 8
lr: 0.01
warmup: 1
num_classes: 5
min_side: 32
max_side: 64
ramp_start: 0
ramp_stop: 1
val_side: 32
val_every: 2
num_workers: 2
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A file of 18 images in 3 classes, and settings for it."""
    folder = tmp_path_factory.mktemp("imagenet")
    photos = str(write_images(folder / "photos", classes=3, images=6))
    write.main([photos, str(folder / "toy.beton"), "--workers", "1", "--raw", "0.5"])
    (folder / "toy.yaml").write_text(TOY + f"train: {folder}/toy.beton\nval: {folder}/toy.beton\n")
    return folder / "toy.yaml"


def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(toy, tmp_path, capsys):
    check_resuming(trainer, tmp_path, "--config", str(toy), stop_after=3, amp="bfloat16")
    printed = capsys.readouterr().out
    lines = [
        line for name in ("through", "halves") for line in (tmp_path / name / "log.jsonl").read_text().splitlines()
    ]
    assert printed.splitlines() == lines
    assert {"resumed_epoch": 1, "batch": 1}.items() <= json_lines(printed)[-3].items()
    epochs = [line for line in json_lines(printed) if "loss" in line]
    assert all(line["images_per_second"] > 0 <= line["waiting_share"] <= 1 for line in epochs)
    assert [line["side"] for line in epochs] == [32, 64, 32, 64]


def test_images_have_the_side_and_steps_the_rate_of_their_moment(toy, tmp_path, monkeypatch):
    steps = []

    def note(run, batch, rate):
        steps.append((*(tuple(part.shape) for part in batch), rate))
        return torch.zeros(())

    monkeypatch.setattr(trainer.Run, "step", note)
    trainer.main(["--config", str(toy), "--folder", str(tmp_path), "--amp", "none"])
    settings = settings_of(trainer.Settings, ["--config", str(toy)])
    rates = [learning_rate(settings, epoch) for epoch in (0, 0.5, 1, 1.5)]
    assert steps == [((8, 3, side, side), (8,), rate) for side, rate in zip((32, 32, 64, 64), rates, strict=True)]


def test_two_processes_evaluate_the_same_weights_like_one(toy, tmp_path):
    options = ["--config", str(toy), "--folder", str(tmp_path), "--epochs", "1", "--batch-size", "4"]
    printed = json_lines(run_in_two_processes("imagenet", *options))
    assert printed[0]["world"] == 2
    both = printed[-1]
    alone = trainer.main([*options, "--only-evaluate", "true"])
    # 18 images: sums of other order and other batches, in bfloat16.
    assert alone["val_loss"] == pytest.approx(both["val_loss"], rel=1e-2)
    assert abs(alone["top_1"] - both["top_1"]) <= 1 / 18 + 1e-9
    assert round(both["top_5"] * 18, 6) % 1 == 0


def test_only_evaluate_tests_the_checkpoint_and_prints_the_result(toy, tmp_path, capsys):
    options = ["--config", str(toy), "--folder", str(tmp_path), "--epochs", "1"]
    trained = trainer.main(options)
    capsys.readouterr()
    assert trainer.main([*options, "--only-evaluate", "true"]) == pytest.approx(trained)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["top_1"] == trained["top_1"]


@pytest.mark.parametrize(
    ("epochs", "top_1", "outcome"),
    [(16, 73.3, "within"), (16, 73.2, "below"), (88, 79.0, "above"), (17, 73.8, "no published result")],
)
def test_a_top_1_is_compared_with_the_published_one_of_as_many_epochs(epochs, top_1, outcome):
    settings = trainer.Settings(network="resnet50", epochs=epochs)
    assert report.expected(settings, top_1)["outcome"].startswith(outcome)


def test_a_report_has_the_result_and_the_published_ones_beside(toy, tmp_path, capsys):
    options = ["--config", str(toy), "--folder", str(tmp_path), "--epochs", "1", "--report", str(tmp_path / "a.json")]
    result = trainer.main(options)
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["line"]["top_1"] == pytest.approx(100 * result["top_1"], abs=1e-3)
    assert written["result"] == result
    assert {"epoch", "loss"} <= written["log"][1].keys()
    assert {entry["network"] for entry in written["expected"]["published"]} == {"resnet18"}
    assert json.dumps(written["line"]) in capsys.readouterr().out


def test_twelve_configurations_are_there_and_the_published_accuracies_are_those_of_the_page():
    names = [f"{network}_{epochs}" for network in ("rn18", "rn50") for epochs in (16, 24, 32, 40, 56, 88)]
    assert [path.stem for path in CONFIGS] == names
    rows = dict(
        re.findall(r"(rn\d+_\d+)\.yaml\) \| \d+ \| ([\d.]+) %", (EXAMPLES / "imagenet" / "README.md").read_text())
    )
    listed = [entry for entry in json.loads(report.PUBLISHED.read_text())["published"] if entry["by"] == "FFCV"]
    assert {f"rn{entry['network'][6:]}_{entry['epochs']}": str(entry["top_1"]) for entry in listed} == rows


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_is_the_recipe_stretched_over_its_epochs(path):
    settings = settings_of(trainer.Settings, ["--config", str(path)])
    network, epochs = path.stem.split("_")
    assert (settings.network, settings.epochs) == (f"resnet{network[2:]}", int(epochs))
    sides = [trainer.side_of(settings, epoch) for epoch in range(settings.epochs)]
    assert (sides[0], sides[-1]) == (160, 192)
    assert sides == sorted(sides)
    # 160 pixels for about three quarters of the epochs.
    assert 0.65 < sides.count(160) / settings.epochs < 0.85
    rates = [learning_rate(settings, epoch) for epoch in range(settings.epochs + 1)]
    assert max(rates) == rates[2] == settings.lr
    assert rates[-1] == 0
    published = {"resnet18": (0.5, 1024, 5e-5), "resnet50": (1.7, 512, 1e-4)}
    assert (settings.lr, settings.batch_size, settings.weight_decay) == published[settings.network]


@pytest.mark.parametrize(("name", "parameters"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_a_resnet_has_as_many_parameters_as_torchvisions(name, parameters):
    network = resnet.ResNet(name, 1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert "layer4.0.downsample.1.running_mean" in network.state_dict()


def test_batch_normalizations_have_no_weight_decay(toy, tmp_path):
    run = trainer.Run(settings_of(trainer.Settings, ["--config", str(toy), "--folder", str(tmp_path)]))
    run.loader.close()
    decayed, free = (group["params"] for group in run.optimizer.param_groups)
    assert len(decayed) + len(free) == len(list(run.network.parameters()))
    assert all(parameter.ndim == 1 for parameter in free)
    assert sum(parameter.ndim == 1 for parameter in decayed) == 1  # the bias of the last layer


@pytest.mark.parametrize(("name", "blurred"), [("resnet18", 6), ("resnet50", 6)])
def test_every_strided_convolution_but_the_first_is_blurred(name, blurred):
    network = resnet.make_resnet(name, 5, blurpool=True)
    results = [module for module in network.modules() if isinstance(module, resnet.BlurredConvolution)]
    assert len(results) == blurred
    assert all(max(module.conv.stride) == 2 for module in results)


def test_a_blur_removes_the_finest_pattern_and_keeps_even_areas():
    convolution = torch.nn.Conv2d(16, 16, 1, stride=2, bias=False)
    torch.nn.init.dirac_(convolution.weight)
    blurred = resnet.BlurredConvolution(convolution)
    even = torch.full((1, 16, 8, 8), 3.0)
    stripes = torch.ones(1, 16, 8, 8) * torch.tensor([1.0, -1.0]).repeat(4)
    assert torch.allclose(blurred(even)[..., 1:, 1:], torch.full((1, 16, 3, 3), 3.0))
    assert torch.allclose(blurred(stripes)[..., 1:, 1:], torch.zeros(1, 16, 3, 3))
