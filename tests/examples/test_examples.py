"""The examples run and do their documented job."""

from __future__ import annotations

import json
import runpy
import sys

import pytest

from benchmarks.harness.photos import PhotoSet, write_photos
from tests.examples.example import EXAMPLES, run

SCRIPTS = sorted(
    path.relative_to(EXAMPLES).as_posix()
    for path in EXAMPLES.rglob("*.py")
    if '__name__ == "__main__"' in path.read_text()
)


def test_training_resumes_in_the_middle_of_an_epoch(tmp_path):
    write_photos(tmp_path / "photos", PhotoSet(40))
    options = (str(tmp_path / "photos"), "--epochs", "2", "--batch-size", "8", "--sides", "32", "64")
    first = run("train.py", *options, "--stop-after", "7")
    assert "epoch 0, 32 pixels" in first
    assert "over 5 batches" in first
    assert "stopped after 7 batches" in first
    second = run("train.py", *options)
    assert "epoch 0" not in second
    assert "epoch 1, 64 pixels" in second
    assert "over 3 batches" in second
    assert "epoch 0, 32 pixels" in run("train.py", *options)  # a finished run starts from the beginning


def test_a_users_fields_are_read_back():
    printed = run("fields.py")
    assert printed.count("torch.Size([8, 64, 64, 3])") == 3
    assert "caption of the last: scene 7" in printed
    assert "lengths of the features: [1.]" in printed


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_users_transform_keeps_a_quarter(workers):
    printed = run("custom_transform.py", "--images", "100", "--batch-size", "40", "--workers", workers)
    assert printed.splitlines() == [
        *["without: (40, 32, 32, 3), 4 levels in the first image"] * 2,
        *["with: (40, 16, 16, 3), 1 levels in the first image"] * 2,
    ]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_same_labels_are_wrong_in_every_epoch_for_any_number_of_threads(workers):
    printed = run("transform_with_indices.py", "--samples", "1000", "--share", "0.3", "--workers", workers)
    assert printed.splitlines() == [
        f"epoch {epoch}: 32.0% of the labels are wrong, the same as before" for epoch in range(3)
    ]


def test_a_regression_on_arrays_finds_the_weights():
    printed = run("linear_regression.py", "--samples", "4000", "--dimensions", "8", "--batch-size", "100")
    assert printed.startswith("epoch 0: mean squared error")
    assert float(printed.split()[-1]) < 0.05


def test_a_field_of_ones_own_has_two_outputs_and_is_filtered_by_one():
    printed = run("custom_field.py", "--tracks", "90")
    assert printed.splitlines() == [
        "90 tracks of 1 to 9 points, 0 of them wrong",
        "20 tracks of 8 to 9 points, 0 of them wrong",
    ]


def test_statistics_reach_all_three_kinds_of_monitoring(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    parser = pytest.importorskip("prometheus_client.parser")
    lines = run("monitoring.py", "--folder", str(tmp_path), "--epochs", "2", "--step-ms", "0").splitlines()
    assert [json.loads(line)["loader/images"] for line in lines] == [512, 512]
    logged = events.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.value for event in logged.Scalars("loader/epoch")] == [0, 1]
    assert "loader/waiting_share" in logged.Tags()["scalars"]
    text = (tmp_path / "train.prom").read_text()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    (images,) = families["gpubeton_loader_images"].samples
    assert (images.value, images.labels) == (1024, {"loader": "train"})
    assert families["gpubeton_loader_images"].type == "counter"
    assert families["gpubeton_loader_waiting_share"].type == "gauge"
    assert len(families) == len(json.loads(lines[0])) - 1  # a sum has no epoch


def test_every_example_is_in_the_list():
    listed = (EXAMPLES / "README.md").read_text()
    documented = [place.replace("__main__.py", "README.md") for place in SCRIPTS]
    assert [place for place in documented if f"]({place})" not in listed] == []


@pytest.mark.parametrize("place", SCRIPTS)
def test_an_example_documents_its_usage(place, monkeypatch, capsys):
    path = EXAMPLES / place
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: ")
    module = "examples." + place.removesuffix(".py").removesuffix("/__main__").replace("/", ".")
    assert f"python examples/{place}" in printed or f"python -m {module}" in printed
