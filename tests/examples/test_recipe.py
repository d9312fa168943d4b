"""What all recipes share: settings, the learning rate, options of a run, and processes that work together."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import recipe
from examples.imagenet.__main__ import Settings as ImageNet
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import SimpleRGBImageDecoder
from gpubeton.writer import DatasetWriter
from tests.examples.example import checkpoint, json_lines


@dataclass(frozen=True)
class Settings(recipe.Settings):
    """The settings of a run."""

    batch_size: int = 4
    epochs: int = 1
    num_workers: int = 1


class Run(recipe.Run[Settings]):
    def make_network(self):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3), torch.nn.BatchNorm1d(3))

    def make_loader(self):
        return self.open_training({"image": self.images(SimpleRGBImageDecoder()), "label": self.labels()})

    def loss(self, images, labels):
        with self.precision():
            logits = self.replica(images)
        return torch.nn.functional.cross_entropy(logits.float(), labels)

    def test(self, network):
        pipelines = {"image": self.images(SimpleRGBImageDecoder()), "label": self.labels()}
        return self.test_classes(network, self.open_validation(pipelines))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The options with a file of 18 images of 8 x 8 pixels."""
    path = tmp_path_factory.mktemp("recipe") / "toy.beton"
    images = np.random.default_rng(0).integers(0, 256, (18, 8, 8, 3), np.uint8)
    writer = DatasetWriter(path, {"image": RGBImageField(), "label": IntField()}, num_workers=1, progress=False)
    writer.from_indexed_dataset([(image, number % 3) for number, image in enumerate(images)])
    return ["--train", str(path), "--val", str(path)]


def run_of(files, folder, *options):
    return Run(recipe.settings_of(Settings, [*files, "--folder", str(folder), *options]))


@pytest.mark.parametrize(
    "options", [["--compile", "aot_eager"], ["--amp", "none"], ["--clip", "0.1"], ["--ema", "0.5"]]
)
def test_each_option_trains(files, tmp_path, options):
    run = run_of(files, tmp_path, *options)
    assert isinstance(run.replica, torch._dynamo.OptimizedModule) == ("--compile" in options)
    before = {name: value.clone() for name, value in run.network.state_dict().items()}
    results = run.train()
    run.loader.close()
    assert 0 <= results["top_1"] <= results["top_5"] == 1
    assert not torch.equal(before["1.weight"], run.network.state_dict()["1.weight"])
    assert checkpoint(tmp_path)["network"].keys() == before.keys()  # compiled or not


@pytest.mark.parametrize(
    ("amp", "dtype"), [("bfloat16", torch.bfloat16), ("float16", torch.bfloat16), ("none", torch.float32)]
)
def test_a_network_runs_with_the_numbers_of_amp(files, tmp_path, amp, dtype):
    run = run_of(files, tmp_path, "--amp", amp)
    images, _ = next(iter(run.loader))
    run.loader.close()
    with run.precision():
        assert run.network[:2](images).dtype == dtype
    assert {parameter.dtype for parameter in run.network.parameters()} == {torch.float32}


def test_the_moving_average_is_evaluated(files, tmp_path):
    run = run_of(files, tmp_path, "--ema", "0.5", "--lr", "0.1", "--amp", "none")
    weights = [run.network[1].weight.detach().clone()]
    batches = list(run.loader)
    for batch in batches:
        run.step(batch, 0.1)
        weights.append(run.network[1].weight.detach().clone())
    run.loader.close()
    expected = weights[1]  # the first step starts it
    for value in weights[2:]:
        expected = 0.5 * expected + 0.5 * value
    assert torch.allclose(run.tested()[1].weight, expected, atol=1e-6)
    assert torch.equal(run.network[1].weight, weights[-1])


def test_a_gradient_is_cut_to_its_largest_norm(files, tmp_path):
    run = run_of(files, tmp_path, "--clip", "0.01")
    run.step(next(iter(run.loader)), 0.1)
    run.loader.close()
    norm = torch.stack([parameter.grad.norm() for parameter in run.network.parameters()]).norm()
    assert float(norm) == pytest.approx(0.01, rel=1e-3)


def test_a_finished_run_is_only_tested(files, tmp_path, capsys):
    options = [*files, "--folder", str(tmp_path), "--ema", "0.5"]
    trained = recipe.launch(Run, recipe.settings_of(Settings, options))
    before = (tmp_path / "checkpoint.pt").read_bytes()
    capsys.readouterr()
    tested = recipe.launch(Run, recipe.settings_of(Settings, [*options, "--only-evaluate", "true"]))
    assert tested == pytest.approx(trained)
    assert tested.items() <= json_lines(capsys.readouterr().out)[-1].items()
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


@given(epoch=st.floats(0, 20), epochs=st.integers(3, 20), warmup=st.integers(1, 2))
def test_the_triangle_is_an_interpolation(epoch, epochs, warmup):
    settings = recipe.Settings(lr=2.0, schedule="triangle", warmup=float(warmup), epochs=epochs)
    expected = np.interp(epoch, [0, warmup, epochs], [2e-4, 2, 0])
    if epoch <= epochs:
        assert recipe.learning_rate(settings, epoch) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("schedule", "epochs", "rates"),
    [("cosine", (0, 1, 2, 5, 8), (2e-4, 1.0001, 2, 1, 0)), ("steps", (0, 2.9, 3, 6.1), (2, 2, 0.2, 0.02))],
)
def test_a_rate_follows_its_schedule(schedule, epochs, rates):
    settings = recipe.Settings(lr=2.0, schedule=schedule, warmup=2.0, epochs=8, step_epochs=3)
    assert [recipe.learning_rate(settings, epoch) for epoch in epochs] == pytest.approx(list(rates))


def test_the_command_line_comes_before_the_file_and_the_file_before_the_defaults(tmp_path):
    path = tmp_path / "some.yaml"
    path.write_text("lr: 3e-1\nepochs: 7\n")  # YAML 1.1 reads 3e-1 as text
    options = ["--config", str(path), "--epochs", "9", "--flip", "false", "--train", "1"]
    settings = recipe.settings_of(ImageNet, options)
    assert (settings.lr, settings.epochs, settings.flip, settings.train) == (0.3, 9, False, "1")
    assert settings.momentum == 0.9


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("learning_rate: 0.1", "no setting is called 'learning_rate'"),
        ("epochs: many", "epochs is 'many', expected int"),
        ("epochs: true", "epochs is True, expected int"),
        ("schedule: linear", "schedule is 'linear', expected cosine, triangle, steps"),
        ("amp: no", "amp is False, expected str"),
        ("amp: half", "amp is 'half', expected none, bfloat16, float16"),
        ("a: [", "while parsing"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, capsys, entries, message):
    (tmp_path / "wrong.yaml").write_text(entries)
    with pytest.raises(SystemExit):
        recipe.settings_of(Settings, ["--config", str(tmp_path / "wrong.yaml")])
    assert message in capsys.readouterr().err


def test_at_ctrl_c_a_run_stops_with_a_checkpoint_and_resumes_with_the_remaining_batches(files, tmp_path):
    class Interrupted(Run):
        def loss(self, images, labels):
            if self.done == 1:
                signal.raise_signal(signal.SIGINT)
            return super().loss(images, labels)

    settings = recipe.settings_of(Settings, [*files, "--folder", str(tmp_path)])
    with pytest.raises(SystemExit, match="130"):
        recipe.launch(Interrupted, settings)
    assert checkpoint(tmp_path)["loader"]["batch"] == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert recipe.launch(Run, settings)  # two batches are left
    assert checkpoint(tmp_path)["loader"]["epoch"] == 1
