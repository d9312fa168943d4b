"""The fine-tuning example: it takes over a network's preprocessing and weights, replaces the head, and resumes."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
import torch

from examples.finetune import __main__ as trainer
from examples.finetune import pretrained
from examples.recipe import settings_of
from tests.examples.example import EXAMPLES, check_resuming, checkpoint, json_lines, write_beton

CONFIGS = sorted((EXAMPLES / "finetune" / "configs").glob("*.yaml"))


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A file of 18 images in 3 classes, and settings for it."""
    folder = write_beton(tmp_path_factory.mktemp("finetune"), classes=3, images=6).parent
    config = "epochs: 2\nbatch_size: 4\nlr: 1e-2\nnum_workers: 2\nema: 0.5\namp: none\nmodel: timm:tiny\n"
    (folder / "toy.yaml").write_text(f"{config}train: {folder}/toy.beton\nval: {folder}/toy.beton\n")
    return folder / "toy.yaml"


@pytest.fixture
def timm(monkeypatch):
    """Replace timm, which does not import without torchvision: its two functions that the recipe calls."""
    results = {"input_size": (3, 24, 24), "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.25, 0.5), "crop_pct": 0.875}

    def create_model(name, *, pretrained, num_classes):
        convolution = torch.nn.Conv2d(3, 8, 5, stride=2, bias=False)
        layers = [convolution, torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)]
        return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8, num_classes))

    module = ModuleType("timm")
    module.create_model = create_model
    module.data = ModuleType("timm.data")
    module.data.resolve_data_config = lambda *_, **__: {**results, "interpolation": "bilinear"}
    monkeypatch.setitem(sys.modules, "timm", module)
    return results


def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(timm, toy, tmp_path, capsys):
    results = check_resuming(trainer, tmp_path, "--config", str(toy), stop_after=6)  # 18 images are 4 batches
    assert checkpoint(tmp_path / "halves")["class_names"] == ["class0", "class1", "class2"]
    first, *_, last = json_lines(capsys.readouterr().out)
    assert (first["size"], first["ratio"], first["interpolation"]) == ([24, 24], 0.875, "antialias")
    assert {"epoch": 1, **results}.items() <= last.items()


def test_images_are_those_that_the_network_was_trained_with(timm, toy, tmp_path):
    run = trainer.Run(settings_of(trainer.Settings, ["--config", str(toy), "--folder", str(tmp_path)]))
    images, _ = next(iter(run.loader))
    run.loader.close()
    assert images.shape == (4, 3, 24, 24)
    mean, std = (torch.tensor(timm[name])[:, None, None] for name in ("mean", "std"))
    levels = (images * std + mean) * 255
    assert levels.min() >= -1e-3
    assert levels.max() <= 255.001
    assert torch.allclose(levels, levels.round(), atol=1e-3)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_has_known_settings_and_the_command_line_comes_first(path):
    settings = settings_of(trainer.Settings, ["--config", str(path), "--lr", "5e-5"])
    assert (settings.lr, settings.compile, settings.ema) == (5e-5, "inductor", 0.999)


def test_an_unknown_network_is_named_and_a_file_needs_the_class_names_of_the_other(toy, tmp_path):
    with pytest.raises(ValueError, match="'resnet50', expected timm:NAME or hf:NAME"):
        pretrained.load_pretrained("resnet50", ["a"], weights=False)
    other = write_beton(tmp_path, classes=2, images=1).rename(tmp_path / "two.beton")
    with pytest.raises(ValueError, match=r"two\.beton has the classes .*toy\.beton"):
        trainer.Run(settings_of(trainer.Settings, ["--config", str(toy), "--val", str(other)]))


STANDARD = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2], "rescale_factor": 1 / 255}


@pytest.mark.parametrize(
    ("values", "size", "ratio", "interpolation"),
    [
        ({"size": {"height": 224, "width": 224}, "resample": 2}, (224, 224), 1.0, "antialias"),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 0}, (224, 224), 0.875, "nearest"),
        ({"size": {"height": 224, "width": 224}, "resample": 3}, (224, 224), 1.0, "bicubic"),
        ({"size": {"height": 224, "width": 224}, "resample": 1}, (224, 224), 1.0, "antialias"),
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.875}, (384, 384), 1.0, "antialias"),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
            (224, 224),
            0.875,
            "antialias",
        ),
    ],
)
def test_a_processors_settings_are_used(values, size, ratio, interpolation):
    result = pretrained.preprocessing_of_processor({**STANDARD, **values})
    assert (result.size, result.ratio, result.interpolation) == (size, ratio, interpolation)
    assert result.mean == pytest.approx([127.5, 102, 76.5])
    assert result.std == pytest.approx([127.5, 63.75, 51])


@pytest.mark.filterwarnings("default")  # of transformers itself
def test_a_network_of_hugging_faces_keeps_its_body_and_gets_a_new_head(toy, tmp_path):
    transformers = pytest.importorskip("transformers", reason="not part of the development environment")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=7, **sizes)
    before = transformers.ViTForImageClassification(config)
    before.save_pretrained(tmp_path / "tiny")
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, **STANDARD}
    (tmp_path / "tiny" / "preprocessor_config.json").write_text(json.dumps(processor))
    options = ["--config", str(toy), "--folder", str(tmp_path / "run"), "--model", f"hf:{tmp_path}/tiny"]
    run = trainer.Run(settings_of(trainer.Settings, options))
    run.loader.close()
    result = run.network.network.state_dict()
    assert result["classifier.weight"].shape == (3, 16)
    body = [name for name in result if not name.startswith("classifier")]
    assert all(torch.equal(result[name], before.state_dict()[name]) for name in body)
    assert 0 <= trainer.main(options)["top_1"] <= 1
    after = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "run" / "model")
    assert after.config.id2label == {0: "class0", 1: "class1", 2: "class2"}
