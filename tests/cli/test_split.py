from __future__ import annotations

import functools
import json
import operator

import numpy as np
import pytest

from gpubeton.fields import FloatField, IntField
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.cli.command import run


@pytest.fixture
def file(tmp_path):
    """30 samples of three classes; the weight is the number of the sample."""
    path = tmp_path / "all.beton"
    fields, notes = {"label": IntField(), "weight": FloatField()}, {"class_names": ["cat", "dog", "eel"]}
    samples = [(number % 3, float(number)) for number in range(30)]
    DatasetWriter(path, fields, num_workers=1, progress=False, notes=notes).from_indexed_dataset(samples)
    return path


def weights(path):
    return Reader(path).index.column("weight").astype(int).tolist()


def test_split_divides_by_share_number_and_rest(file, tmp_path):
    parts = [tmp_path / "train.beton", tmp_path / "val.beton", tmp_path / "test.beton"]
    done = run("split", file, f"{parts[0]}=60%", f"{parts[1]}=3", f"{parts[2]}=rest", "--json")
    assert done.exit_code == 0
    assert [part["samples"] for part in json.loads(done.stdout)["files"]] == [18, 3, 9]
    assert sorted(functools.reduce(operator.iadd, map(weights, parts), [])) == list(range(30))
    assert weights(parts[0]) == sorted(weights(parts[0]))
    assert weights(parts[0]) != list(range(18))
    assert Reader(parts[1]).class_names == ("cat", "dog", "eel")


def test_split_keeps_the_proportion_of_classes_or_the_order_and_counts_the_samples_in_no_part(file, tmp_path):
    train, val = tmp_path / "train.beton", tmp_path / "val.beton"
    run("split", file, f"{train}=0.8", f"{val}=rest", "--stratify", "--seed", "4", code=0)
    assert np.bincount(Reader(val).index.column("label")).tolist() == [2, 2, 2]
    done = run("split", file, f"{tmp_path / 'a'}=10", f"{tmp_path / 'b'}=5", "--in-order", code=0)
    assert (weights(tmp_path / "a"), weights(tmp_path / "b")) == (list(range(10)), list(range(10, 15)))
    assert f"left out: 15 samples of {file}" in done.stderr
    assert "left out" not in run("split", file, f"{tmp_path / 'c'}=29", f"{tmp_path / 'd'}=rest").stderr


@pytest.mark.parametrize("parts", [["a"], ["a=x"], ["=3"], ["a=31"], ["a=1.5"], ["a=3", "a=4"], ["all.beton=3"]])
def test_split_refuses_shares_that_cannot_be(parts, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run("split", "all.beton", *parts)
    assert (done.exit_code, len(done.stderr) > 20) == (2, True)
    assert weights(file) == list(range(30))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--indices 28:,3,0:4:2", [28, 29, 3, 0, 2]),
        ("--indices @list.txt", [5, 4]),
        ("--class dog --class 2 --per-class 2", [1, 2, 4, 5]),
    ],
)
def test_subset_takes_indices_slices_files_of_them_and_classes(options, expected, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("5\n4\n")
    run("subset", file, "some.beton", *options.split(), code=0)
    assert weights(tmp_path / "some.beton") == expected


def test_subset_takes_a_number_by_chance(file, tmp_path):
    out = tmp_path / "some.beton"
    run("subset", file, out, "--count", "5", "--shuffle", "--seed", "1", code=0)
    assert len(set(weights(out))) == 5
    assert weights(out) != [0, 1, 2, 3, 4]
    assert "one.beton: 1 sample; " in run("subset", file, tmp_path / "one.beton", "--count", 1).stdout


@pytest.mark.parametrize(
    "options", ["--indices 30", "--indices a", "--indices 1:2:3:4", "--class owl", "--class 1 --label weight"]
)
def test_subset_refuses_unknown_samples_and_fields(options, file, tmp_path):
    assert run("subset", file, tmp_path / "some.beton", *options.split()).exit_code == 2


def test_merge_concatenates_files(file, tmp_path):
    for name, indices in (("a", "0:3"), ("b", "20:22")):
        assert run("subset", file, tmp_path / name, "--indices", indices).exit_code == 0
    done = run("merge", tmp_path / "b", tmp_path / "a", "-o", tmp_path / "c")
    assert (done.exit_code, "5 samples" in done.stdout) == (0, True)
    assert weights(tmp_path / "c") == [20, 21, 0, 1, 2]
    assert Reader(tmp_path / "c").class_names == ("cat", "dog", "eel")


def test_merge_takes_names_of_classes_from_a_file_and_refuses_an_empty_one(file, tmp_path):
    (tmp_path / "names").write_text("x\ny\nz\n")
    run("merge", file, "-o", tmp_path / "c", "--classes", tmp_path / "names", code=0)
    assert Reader(tmp_path / "c").class_names == ("x", "y", "z")
    (tmp_path / "names").write_text("")
    result = run("merge", file, "-o", tmp_path / "d", "--classes", tmp_path / "names", code=2)
    assert "the file is empty, expected one class name per line" in " ".join(result.stderr.split())
    assert not (tmp_path / "d").exists()
