"""Images that the CPU makes after a failure: with every order of colors and paints they are the CPU loader's."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from gpubeton.transforms import Cutout, ImageMixup, RandomBrightness, RandomContrast, RandomHorizontalFlip
from tests.cpu.pictures import jpeg, photo
from tests.gpu_path.image_samples import assert_same, stored
from tests.gpu_path.test_entry_decoder import indexed, loader_of
from tests.gpu_path.test_gpu_loader import VIEWS, crop, normalize

# The nearest pixel of a gray image: the same from the engines and from the CPU.
IMAGES = [stored(jpeg(photo(60 + number, 90 - number, number), sampling="gray")) for number in range(12)]
BAD = 4, 9
CROP, HALVES, FLIP = crop((12, 14), "nearest"), normalize(np.float16), RandomHorizontalFlip()
COLOR, RED, BLUE = RandomBrightness(0.3, 0.9), Cutout(5, (255, 0, 0)), Cutout(4, (0, 0, 255))

PIPELINES = {
    "no paint": [CROP, COLOR, FLIP, HALVES, *VIEWS],
    "paint before a color": [CROP, RED, COLOR, HALVES, *VIEWS],
    "paint after": [CROP, COLOR, RED, HALVES, *VIEWS],
    "two paints": [CROP, RED, COLOR, FLIP, BLUE, *VIEWS],
    "two colors": [CROP, COLOR, RED, RandomContrast(0.6, 0.9), FLIP, BLUE, HALVES, *VIEWS],
    "mixup": [CROP, COLOR, RED, ImageMixup(0.5, False), HALVES, *VIEWS],
}


def skip(loader, faults):
    for number in BAD:
        faults.skip_image(IMAGES[number].data)


def refuse(loader, faults):
    for number in BAD:
        faults.fail_image(6, IMAGES[number].data)


def damage(loader, faults):
    """In the memory of the GPU, so that the CPU can still decode them."""
    resident = loader.gpu.resident["image"]
    for number in BAD:
        ctypes.memset(int(resident.address[number]) + 640, 0, 50)


#: The decoder, and what happens to `BAD` after the first epoch. Nothing: their data were overwritten in the file.
FAILURES = {
    "replaced, engines": ("nvjpeg", None),
    "replaced, entry decoder": ("entries", None),
    "skipped image": ("nvjpeg", skip),
    "failed image": ("nvjpeg", refuse),
    "damaged interval": ("entries", damage),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A file, and its copy with bad images."""
    path = indexed(tmp_path_factory.mktemp("whole") / "images.beton", IMAGES)
    bad = indexed(tmp_path_factory.mktemp("bad") / "images.beton", IMAGES)
    content = bytearray(bad.read_bytes())
    for number in BAD:
        place = content.index(IMAGES[number].data)
        content[place : place + len(IMAGES[number].data)] = bytes(len(IMAGES[number].data))
    bad.write_bytes(content)
    return path, bad


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("failure", FAILURES)
def test_they_are_the_cpus_to_the_bit(gpus, faults, paths, failure, name):
    decoder, plant = FAILURES[failure]
    path = paths[plant is None]
    common = {"image": PIPELINES[name], "on_error": "replace", "batch_size": 6}
    loader = loader_of(path, decoder=decoder, resident=plant is damage, **common)
    expected = loader_of(path, device="cpu", **common)
    assert_same(list(loader), list(expected))
    if plant is not None:
        plant(loader, faults)
    for _ in range(2):
        assert_same(list(loader), list(expected))
    assert len(loader.bad_samples) == len(expected.bad_samples) == (6 if plant is None else 0)
    assert len(loader.gpu._free[0].refused) == (0 if plant is None else len(BAD))
    loader.close()
    expected.close()
