from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from PIL import Image

from gpubeton.fields import ImageField, IntField
from tests.cli.command import run
from tests.picture_folders import write_converted
from tests.small_files import damage, picture, write, write_photos

view = partial(run, "view")


def cells(path, count, side=32):
    """The images on a sheet of one row."""
    sheet = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return [sheet[6 : 6 + side, 6 + column * (side + 6) :][:, :side] for column in range(count)]


def test_stored_images_are_drawn_with_number_and_class(tmp_path):
    file = write_converted(tmp_path)
    done = view(file, tmp_path / "a.png", "--indices", "3,0", "--side", 32, "--columns", 2, "--json")
    result = json.loads(done.stdout)
    assert result["captions"] == ["3 dog", "0 cat"]
    first, second = cells(tmp_path / "a.png", 2)
    # 24 x 32 and 25 x 32 pixels, in the middle of squares.
    assert np.abs(second[4:28] - picture(0, 24, 32)).mean() < 4
    assert np.ptp(first[:3]) == np.ptp(first[29:]) == 0  # the background
    assert np.abs(first[4:29] - picture(1, 25, 32)).mean() < 4


def test_samples_are_chosen_by_chance_and_seed(tmp_path):
    file = write_photos(tmp_path / "a.beton", 40)
    options = ("--count", 5, "--json", "--overwrite", "--seed")
    chosen = [json.loads(view(file, tmp_path / "a.png", *options, seed).stdout) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(chosen[0]["samples"]) == 5


def test_training_crops_are_drawn(tmp_path):
    file = write_photos(tmp_path / "a.beton", 6, write_mode="raw")
    done = view(file, tmp_path / "a.png", "--train-size", 32, "--count", 4, "--side", 32)
    assert (done.exit_code, done.stderr) == (0, "")
    assert all((cell != 255).any() for cell in cells(tmp_path / "a.png", 4))


def test_a_field_that_does_not_exist_is_refused(tmp_path):
    done = view(write_photos(tmp_path / "a.beton", 2), tmp_path / "a.png", "--image", "x")
    assert (done.exit_code, "it has 'image'" in done.stderr) == (2, True)


def test_a_file_without_images_and_a_bad_image_are_named(tmp_path):
    done = view(write(tmp_path / "a.beton", {"x": IntField()}, [(1,)]), tmp_path / "a.png")
    assert (done.exit_code, "it has none" in done.stderr) == (2, True)
    file = write_photos(tmp_path / "b.beton", 3)
    damage(file, 1)
    done = view(file, tmp_path / "a.png")
    assert (done.exit_code, "sample 1, field 'image'" in done.stderr.replace("\n", " ")) == (1, True)


@pytest.mark.parametrize("options", [(), ("--train-size", 32)])
@pytest.mark.parametrize(
    ("kind", "pixel", "color"),
    [("gray16", [0xA234], [0xA2] * 3), ("gray", [3], [255] * 3), ("rgba", [1, 2, 3, 4], [1, 2, 3])],
)
def test_pixels_of_any_kind_become_colors(kind, pixel, color, options, tmp_path):
    pixels = np.full((32, 32, len(pixel)), pixel, np.uint16 if kind == "gray16" else np.uint8)
    file = write(tmp_path / "a.beton", {"image": ImageField(kind)}, [(pixels,)])
    done = view(file, tmp_path / "a.png", "--side", 32, *options)
    assert (done.exit_code, done.stderr) == (0, "")
    assert (cells(tmp_path / "a.png", 1)[0] == color).all()
