"""What `precompile` compiles is all that loaders need."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpubeton import DatasetWriter
from gpubeton.cli.app import app
from gpubeton.fields import BytesField, ImageField, IntField, RGBImageField

pytestmark = pytest.mark.campaign

ROOT = Path(__file__).resolve().parent.parent.parent

LOADERS = """
import sys
import numpy as np
from gpubeton import Loader
from gpubeton._cpu import epilogue, precompile, ring, stored_bytes
from gpubeton._cpu.jpeg import markers
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.fields.image_decoders import CenterCropImageDecoder
from gpubeton.dataset.summary import summarize
from gpubeton._batch.random_crops import compiled_rule
from gpubeton._plan import philox
from gpubeton.transforms import ImageMixup, NormalizeImage, ToTensor

precompile.precompile()
values = [value for module in (philox, epilogue, stored_bytes, ring, markers) for value in vars(module).values()]
kept = [
    value for value in (compiled_rule(), *values)
    if type(getattr(value, "_cache", None)).__name__ == "KeptCode"
]
before = [len(function.signatures) for function in kept]
for dtype in (np.uint8, np.float16, np.float32):
    change = [ImageMixup(0.5, 1), NormalizeImage([120.0] * 3, [60.0] * 3, dtype)]
    rgb = [CenterCropRGBImageDecoder((8, 9), 1), *change, ToTensor()]
    raw = [CenterCropRGBImageDecoder((9, 8), 1), NormalizeImage([120.0] * 3, [60.0] * 3, dtype)]
    gray, rgba = [CenterCropImageDecoder((5, 5), 1)], [CenterCropImageDecoder((5, 5), 1)]
    pipelines = {"rgb": rgb, "raw": raw, "gray": gray, "rgba": rgba}
    for batch in Loader(sys.argv[1], batch_size=2, num_workers=1, pipelines=pipelines, os_cache=dtype == np.uint8):
        pass
summarize(sys.argv[1])
print(len(kept), before == [len(function.signatures) for function in kept])
"""


CHANGES = """
import sys
from gpubeton import Loader
from gpubeton._batch.run_steps import STEP_FUNCTIONS
from gpubeton._cpu.precompile import precompile
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.transforms import (
    ColorJitter, RandAugment, RandomErasing, RandomGaussianBlur, RandomRotation, RandomSolarization, ToTensor,
    TrivialAugmentWide
)

if sys.argv[2:]:
    precompile()
    sys.exit()
for change in (
    RandAugment(9), TrivialAugmentWide(), RandomGaussianBlur(5, p=1), RandomRotation(30), RandomSolarization(9, 1),
    ColorJitter(0.1, 0.2, 0.3, 0.4, p=1), RandAugment(9, interpolation="bilinear"), RandomErasing(p=1),
):
    rgb = [CenterCropRGBImageDecoder((8, 9), 1), change, RandomGaussianBlur(3, p=1), ToTensor()]
    for batch in Loader(sys.argv[1], batch_size=4, num_workers=1, pipelines={"rgb": rgb}):
        pass
stats = [function.code.stats for function in {*STEP_FUNCTIONS.values()} if "address" in vars(function)]
print(sum(1 for stat in stats if stat.cache_hits) > 4, [stat for stat in stats if stat.cache_misses])
"""


class Samples:
    def __len__(self):
        return 4

    def __getitem__(self, number):
        picture = np.random.default_rng(number).integers(0, 256, (20, 30, 4), np.uint8)
        rgb = np.ascontiguousarray(picture[..., :3])
        return rgb, rgb, np.ascontiguousarray(picture[..., :1]), picture, np.full(number + 1, 7, np.uint8), number


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "all.beton"
    fields = {
        "rgb": RGBImageField("jpg"),
        "raw": RGBImageField("raw"),
        "gray": ImageField("gray"),
        "rgba": ImageField("rgba"),
        "bytes": BytesField(),
        "label": IntField(),
    }
    DatasetWriter(path, fields, num_workers=1, progress=False).from_indexed_dataset(Samples())
    return path


def output_of(program, *arguments):
    """What another process prints and warns of."""
    command = [sys.executable, "-W", "error", "-W", "ignore::UserWarning", "-c", program, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr


def test_after_it_no_loader_compiles(file):
    assert output_of(LOADERS, file) == ("18 True\n", "")


def test_after_it_no_step_compiles(file):
    assert output_of(CHANGES, file, "precompile") == ("", "")
    assert output_of(CHANGES, file) == ("True []\n", "")


def test_the_command_names_the_folder():
    done = CliRunner().invoke(app, ["warm-up", "--json"])
    assert done.exit_code == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["bytes"] > 100_000
    assert shown["bytes"] == sum(path.stat().st_size for path in Path(shown["folder"]).iterdir())


def test_code_that_cannot_be_kept_is_an_error(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gpubeton", tmp_path / "gpubeton", ignore=ignored)
    (tmp_path / "gpubeton/_cpu/__pycache__").touch()  # no folder, for the superuser neither
    nowhere = f"{os.devnull}/folder"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": nowhere, "XDG_CACHE_HOME": nowhere}
    command = [sys.executable, "-B", "-m", "gpubeton", "warm-up", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert nowhere in done.stdout + done.stderr
    assert "NUMBA_CACHE_DIR" in done.stdout + done.stderr
