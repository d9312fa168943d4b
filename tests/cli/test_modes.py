"""Every command on files of images that are not RGB."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from gpubeton._writing import write_at
from gpubeton.dataset import Contents
from gpubeton.fields.png import encode_png
from tests.cli.command import run

COUNT = 6
SHAPES = {"gray": (20, 30, 1), "rgba": (20, 30, 4), "gray16": (20, 30, 1), "rgb16": (20, 30, 3)}


def pixels(path):
    contents = Contents(path)
    return [contents.value(sample, "image").pixels() for sample in range(contents.index.num_samples)]


@pytest.fixture(params=["gray png", "gray jpg", "rgba png", "gray16 png", "gray16 raw", "rgb16 png"])
def stored(request, tmp_path):
    """A file of a kind, stored in a way, and its pixels."""
    mode, write_mode = request.param.split()
    random = np.random.default_rng(1)
    levels = 1 << (16 if mode.endswith("16") else 8)
    dtype = "u2" if levels > 256 else "u1"
    images = [random.integers(0, levels, SHAPES[mode]).astype(dtype) for _ in range(COUNT)]
    for number, image in enumerate(images):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_png(image))
    out = tmp_path / "a.beton"
    done = run(
        "convert", tmp_path / "photos", out, "--mode", mode, "--write-mode", write_mode, "--workers", 1, "--json"
    )
    assert (done.exit_code, json.loads(done.stdout)["samples"]) == (0, COUNT)
    if write_mode != "jpg":
        in_order = images[::2] + images[1::2]
        np.testing.assert_array_equal(pixels(out), in_order)
    return out, mode, write_mode


def test_every_command_works_on_it(stored, tmp_path):
    path, mode, write_mode = stored
    shown = run("info", path).stdout
    assert f"ImageField, mode {mode}" in shown
    image = json.loads(run("info", path, "--json").stdout)["fields"][0]["image"]
    assert (image["mode"], image["stored"][write_mode]) == (mode, COUNT)
    assert image["routes"] == {"hardware": 0, "cpu": COUNT * (write_mode == "jpg")}
    done = run("verify", path)
    assert done.exit_code == 0
    assert (f"and {COUNT} PNG files decoded" in " ".join(done.stdout.split())) == (write_mode == "png")
    for options in ((), ("--train-size", 16)):
        assert run("view", path, tmp_path / "sheet.png", "--overwrite", "--count", 3, *options).exit_code == 0
        with Image.open(tmp_path / "sheet.png") as sheet:
            assert np.asarray(sheet).std() > 10
    assert run("cat", path, 0, "--only", "image").stdout_bytes == Contents(path).to_file(0, "image")[1]
    assert run("extract", path, tmp_path / "files").exit_code == 0
    options = ("--mode", mode, "--write-mode", write_mode, "--workers", 1)
    assert run("convert", tmp_path / "files" / "samples.csv", tmp_path / "again.beton", *options).exit_code == 0
    np.testing.assert_array_equal(pixels(tmp_path / "again.beton"), pixels(path))
    first, two, both = (tmp_path / f"{name}.beton" for name in ("one", "two", "both"))
    assert run("split", path, f"{first}=0.5", f"{two}=rest").exit_code == 0
    assert run("merge", first, two, "-o", both).exit_code == 0
    np.testing.assert_array_equal(pixels(both), pixels(first) + pixels(two))
    assert sorted(pixel.tobytes() for pixel in pixels(both)) == sorted(pixel.tobytes() for pixel in pixels(path))
    assert run("subset", path, tmp_path / "few.beton", "--indices", "1,3").exit_code == 0
    np.testing.assert_array_equal(pixels(tmp_path / "few.beton"), [pixels(path)[1], pixels(path)[3]])
    for file_out in (both, tmp_path / "few.beton"):
        assert run("verify", file_out).exit_code == 0
        assert f"mode {mode}" in run("info", file_out).stdout


def test_files_of_two_kinds_are_not_merged_and_the_kinds_are_named(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("L", (6, 5), 9).save(tmp_path / "photos" / "0.png")
    for mode in ("gray", "rgba"):
        assert run("convert", tmp_path / "photos", tmp_path / f"{mode}.beton", "--mode", mode).exit_code == 0
    done = run("merge", tmp_path / "gray.beton", tmp_path / "rgba.beton", "-o", tmp_path / "all.beton")
    assert done.exit_code == 1
    assert "'image' is of images of kind gray in the first and of images of kind rgba in the second" in " ".join(
        done.stderr.split()
    )


def test_a_png_of_another_kind_than_the_field_is_a_bad_sample(tmp_path):
    (tmp_path / "photos").mkdir()
    content = encode_png(np.zeros((5, 6, 1), "u2"))
    (tmp_path / "photos" / "0.png").write_bytes(content)
    path = tmp_path / "a.beton"
    assert run("convert", tmp_path / "photos", path, "--mode", "gray16").exit_code == 0
    other = encode_png(np.zeros((5, 6, 1), "u1")).ljust(len(content), b"\0")[: len(content)]
    with path.open("r+b") as file:
        write_at(file.fileno(), int(Contents(path).index.regions("image").offset[0]), other, path)
    done = run("verify", path)
    assert done.exit_code == 1
    assert "a PNG file of kind gray, expected gray16" in " ".join(done.stdout.split())
