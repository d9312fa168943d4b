"""BatchDecoder on a GPU: the pixels of a loader there."""

from __future__ import annotations

import pytest
import torch

from gpubeton import BatchDecoder
from gpubeton.dataset import Contents
from gpubeton.errors import BadImageError, DeviceError
from gpubeton.loader import Loader
from gpubeton.transforms import ImageMixup, RandAugment, RandomHorizontalFlip, ToTensor
from tests.cpu.pictures import photo, pillow_jpeg
from tests.gpu_path.test_gpu_loader import PIPELINES, crop
from tests.loader.pipelines import ONLY_IMAGE

MIXED = [crop((24, 20)), ImageMixup(0.5, False), ToTensor()]
STEPS = [crop((24, 20)), RandAugment(2, 9), RandomHorizontalFlip(), ToTensor()]


@pytest.fixture(scope="module")
def files(photos):
    contents = Contents(photos)
    return [contents.stored(sample, "image") for sample in range(50)]


@pytest.mark.parametrize("pipeline", [PIPELINES["half"], MIXED, STEPS], ids=["half", "mixed", "steps"])
def test_images_are_those_of_a_loader_on_the_gpu(gpus, photos, files, pipeline):
    decoder = BatchDecoder(pipeline, 1, device="cuda:0", seed=3)
    pipelines = {**ONLY_IMAGE, "image": pipeline}
    arguments = {"num_workers": 1, "seed": 3, "drop_last": False, "device": "cuda:0"}
    with Loader(photos, 20, pipelines=pipelines, **arguments) as loader:
        batches = iter(loader)
        for (images,) in batches:
            result = decoder([files[sample] for sample in batches.samples], batches.samples)
            assert result.stride() == images.stride()
            assert torch.equal(result, images)
    decoder.close()


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_policies_hold_and_other_files_come_from_the_cpu(gpus, files, on_error):
    rows = [0, 1, 3] if on_error == "skip" else [0, 1, 3, 3]
    some = [files[0], pillow_jpeg(photo(30, 40), "CMYK"), b"no image", files[1]]
    pipeline = PIPELINES["uint8"]
    decoder = BatchDecoder(pipeline, 1, device="cuda:0", seed=3, on_error=on_error)
    result = decoder.decode(some, range(4))
    good = BatchDecoder(pipeline, 1, device="cuda:0", seed=3)
    assert result.rows.tolist() == rows
    assert torch.equal(result.images, good([some[row] for row in rows], rows))
    with pytest.raises(BadImageError, match="position 2 of the list"):
        good(some)


def test_a_gpu_that_cannot_be_used_is_an_error(monkeypatch):
    def open_device(name):
        raise DeviceError(f"no {name} here")

    monkeypatch.setattr("gpubeton._gpu.cuda.open_device", open_device)
    with pytest.raises(DeviceError, match="no cuda:0 here"):
        BatchDecoder(PIPELINES["uint8"], device=0)([b""])
