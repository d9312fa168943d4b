"""How tests run examples: in this process, which spares importing torch and loading compiled code once more."""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gpubeton.fields import IntField, RGBImageField
from gpubeton.writer import DatasetWriter

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def run(name, *options):
    """Run an example as a script, and return its output."""
    path, printed = EXAMPLES / name, io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.syspath_prepend(str(path.parent))
        patch.setattr(sys, "argv", [str(path), *options])
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()


def run_in_two_processes(name, *options):
    """Run a script, or the recipe of a folder, under torchrun, and give what both processes printed."""
    target = [str(EXAMPLES / name)] if name.endswith(".py") else ["-m", f"examples.{name}"]
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, *target, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def checkpoint(folder):
    return torch.load(Path(folder) / "checkpoint.pt", weights_only=True)


def check_resuming(recipe, folder, *options, stop_after, amp="none"):
    """Train with a moving average, in one go and in two: both end the same, to the bit. Give the results."""
    # Without AVX-512, convolutions of bfloat16 take ten times as long: one recipe is enough for it.
    command = [*options, "--amp", amp, "--ema", "0.5", "--folder"]
    through = recipe.main([*command, f"{folder}/through"])
    assert recipe.main([*command, f"{folder}/halves", "--stop-after", str(stop_after)]) != through
    stopped = checkpoint(f"{folder}/halves")
    assert recipe.main([*command, f"{folder}/halves"]) == through
    expected, result = checkpoint(f"{folder}/through"), checkpoint(f"{folder}/halves")
    for part in ("network", "ema"):
        assert expected[part].keys() == result[part].keys()
        assert all(torch.equal(expected[part][name], result[part][name]) for name in expected[part])
        assert not all(torch.equal(stopped[part][name], result[part][name]) for name in expected[part])
    assert not all(torch.equal(result["network"][name], result["ema"][f"module.{name}"]) for name in result["network"])
    assert stopped["loader"]["batch"] > 0
    return through


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def write_images(folder, classes=2, images=8, side=(40, 48)):
    """Make a folder of small JPEG files; each class has a different color."""
    rng = np.random.default_rng(0)
    for label in range(classes):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(images):
            color = rng.integers(0, 60, 3) + np.array([180, 90, 0]) * (label + 1) % 200
            pixels = rng.integers(0, 40, (*side, 3)) + color
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"class{label}" / f"{number}.jpg")
    return folder


def write_beton(folder, classes=2, images=8, write_mode="jpg"):
    """Write a file of small images, of classes of different colors."""
    fields = {"image": RGBImageField(write_mode=write_mode), "label": IntField()}
    photos = write_images(folder / "photos", classes, images)
    DatasetWriter(folder / "toy.beton", fields, num_workers=1, progress=False).from_image_folder(photos)
    return folder / "toy.beton"
