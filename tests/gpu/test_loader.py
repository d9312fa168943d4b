"""A loader on the GPU beside the same on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.gpu.pipelines import image_pipelines, usual_pipeline
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.transforms import NormalizeImage, ToTensor, ToTorchImage
from tests.gpu.comparing import assert_equal_to_the_bit, epoch, images_loader, levels_apart, means_apart, plain_twin
from tests.gpu_path.image_samples import BASELINE, IMAGE_SAMPLES, twin, write_images
from tests.small_files import write_photos

SIDE = 40
PIPELINES = image_pipelines(SIDE)
LEVELS = [CenterCropRGBImageDecoder((24, 20), 0.9), ToTensor()]


@pytest.fixture(scope="module")
def raw_photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("raw") / "raw.beton", 40, write_mode="raw")


@pytest.fixture(scope="module")
def smooth_photos(tmp_path_factory):
    """JPEGs whose colors stay inside the gamut."""
    return write_photos(tmp_path_factory.mktemp("smooth") / "smooth.beton", 60)


@pytest.mark.parametrize("os_cache", [True, False], ids=["mapped", "read"])
@pytest.mark.parametrize("where", ["cpu", "bytes"])
@pytest.mark.parametrize("name", PIPELINES)
def test_raw_images_are_the_cpus_to_the_bit(gpu, raw_photos, name, where, os_cache):
    arguments = {"raw": where, "os_cache": os_cache, "order": "random"}
    result, expected = (
        epoch(images_loader(raw_photos, PIPELINES[name], device=device, **arguments)) for device in ("cuda:0", "cpu")
    )
    assert_equal_to_the_bit(result, expected)
    assert len(result) == 40


@pytest.mark.parametrize("dtype", [np.float16, np.float32, torch.bfloat16, np.uint8], ids=str)
def test_every_element_type_is_the_cpus_to_the_bit(gpu, raw_photos, dtype):
    pipeline = [op for op in usual_pipeline(SIDE, np.float16) if not isinstance(op, NormalizeImage)]
    if dtype != np.uint8:
        pipeline.insert(2, NormalizeImage((123, 116, 103), (58, 57, 57), dtype))
    result, expected = (epoch(images_loader(raw_photos, pipeline, device=device)) for device in ("cuda:0", "cpu"))
    assert_equal_to_the_bit(result, expected)


def test_batches_are_on_the_gpu_and_channels_last(gpu, raw_photos):
    loader = images_loader(raw_photos, usual_pipeline(SIDE), batch_size=8)
    (batch,) = next(iter(loader))
    assert batch.shape == (8, 3, SIDE, SIDE)
    assert batch.dtype == torch.float16
    assert batch.is_contiguous(memory_format=torch.channels_last)
    assert not gpu.has_cuda or batch.device == torch.device("cuda:0")
    loader.close()


def test_a_loader_may_work_on_another_gpu_than_the_current_one(gpu, photos):
    """The last GPU; where there is one alone, it is the current one."""
    last = f"cuda:{max(torch.cuda.device_count(), 1) - 1}"
    result, expected = (
        epoch(images_loader(photos.beton, PIPELINES["mixup"], device=device)) for device in (last, "cuda:0")
    )
    assert_equal_to_the_bit(result, expected)
    assert not gpu.has_cuda or torch.cuda.current_device() == 0


@pytest.mark.parametrize("interpolation", ["float16", "bilinear", "antialias", "uint8"])
def test_jpegs_are_near_the_cpus(gpu, smooth_photos, interpolation):
    """Two decoders differ by 1 in each component, so by 1 + 1.772 and a rounding in RGB; the CPU resamples components.

    On the simulated GPU, with equal decoders, the latter alone comes to 3. Levels here, standard deviations apart.
    """
    pipeline = [op for op in PIPELINES[interpolation] if not isinstance(op, NormalizeImage)]
    result, expected = (epoch(images_loader(smooth_photos, pipeline, device=device)) for device in ("cuda:0", "cpu"))
    most, mean = levels_apart(result, expected)
    assert most <= 7
    assert mean <= 1.0
    assert mean > 0, "one of them did not decode"


def test_photographs_are_near_the_cpus(gpu, photos):
    """Chroma that is repeated instead of interpolated differs more, at edges of colors; on the mean it does not."""
    pipeline = [CenterCropRGBImageDecoder((128, 128), 0.9), ToTensor(), ToTorchImage()]
    result, expected = (epoch(images_loader(photos.beton, pipeline, device=device)) for device in ("cuda:0", "cpu"))
    assert means_apart(result, expected).max() <= 2.5


@pytest.fixture(scope="module")
def sample_files(tmp_path_factory):
    """Every kind of image; as JPEG, and as pixels of libjpeg-turbo with interpolated and with repeated chroma."""
    folder = tmp_path_factory.mktemp("samples")
    return (
        write_images(folder / "samples.beton", IMAGE_SAMPLES),
        write_images(folder / "twin.beton", twin(IMAGE_SAMPLES)),
        write_images(folder / "plain.beton", plain_twin(IMAGE_SAMPLES)),
    )


ROUTES = {
    "usual": {},
    "engines": {"routes": ("hardware",)},
    "few images a call": {"images_per_call": 3},
    "repeated chroma": {"smooth_chroma": False},
}


@pytest.mark.parametrize("name", ROUTES)
def test_every_route_is_as_near_the_cpu_as_its_own_two_ways_of_chroma_are_to_each_other(gpu, sample_files, name):
    jpegs, pixels, plain = sample_files
    result = epoch(images_loader(jpegs, LEVELS, custom=True, **ROUTES[name]))
    expected = epoch(images_loader(pixels, LEVELS, custom=True, device="cpu"))
    other = epoch(images_loader(plain, LEVELS, custom=True, device="cpu"))
    # Roundings of two decoders are less than a level on the mean.
    allowed = means_apart(other, expected) + 1.0
    apart = means_apart(result, expected)
    assert (apart <= allowed).all(), {int(i): (apart[i], allowed[i]) for i in np.flatnonzero(apart > allowed)}
    raws = [number for number, image in enumerate(IMAGE_SAMPLES) if image not in BASELINE]
    assert apart[raws].max() == 0, "images stored raw or decoded by the CPU equal the CPU's"


def test_explain_names_the_gpu_and_its_routes(gpu, photos, capsys):
    loader = images_loader(photos.beton, usual_pipeline(SIDE))
    loader.explain()
    loader.close()
    text = capsys.readouterr().out
    assert gpu.device.name in text
    assert "JPEG engines" in text
    assert "fused" in text
