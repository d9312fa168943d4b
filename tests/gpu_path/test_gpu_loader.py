"""The batches of a loader on a GPU: the CPU's pixels, by every decode route."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpubeton.errors import OptionError
from gpubeton.fields.decoders import (
    CenterCropRGBImageDecoder,
    PadRGBImageDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from gpubeton.loader import Loader
from gpubeton.transforms import (
    Cutout,
    NormalizeImage,
    RandomHorizontalFlip,
    RandomTranslate,
    ToTensor,
    ToTorchImage,
)
from tests.gpu_path.image_samples import (
    IMAGE_SAMPLES,
    NUM_DECODED,
    assert_same,
    epochs,
    gpu_loader,
    raw,
    twin,
    write_images,
)
from tests.loader.pipelines import ONLY_IMAGE, augmented
from tests.reference.image import reference_image


def normalize(dtype):
    return NormalizeImage((123, 116, 103), (58, 57, 57), dtype)


GEOMETRY = [RandomHorizontalFlip(), Cutout(3, (1, 2, 3)), RandomTranslate(2, (200, 5, 6))]
VIEWS = [ToTensor(), ToTorchImage()]


def crop(size, interpolation="area"):
    return RandomResizedCropRGBImageDecoder(size, interpolation=interpolation)


PIPELINES = {
    "uint8": [crop((20, 24)), *VIEWS],
    "half": [crop((24, 20), "bilinear"), *GEOMETRY, normalize(np.float16), *VIEWS],
    "bfloat16": [crop((17, 33), "antialias"), *GEOMETRY[::-1], normalize(torch.bfloat16), *VIEWS],
    "float": [crop((33, 7)), *GEOMETRY, RandomHorizontalFlip(), normalize(np.float32), ToTensor()],
    "planes": [crop((19, 21), "bilinear"), Cutout(4), normalize(np.float16), ToTensor(), ToTorchImage(False)],
    "center": [CenterCropRGBImageDecoder((16, 16), 0.8, "antialias"), ToTensor(), *GEOMETRY, ToTorchImage()],
    "padded": [PadRGBImageDecoder((33, 40), 114), *GEOMETRY, RandomHorizontalFlip(), normalize(np.float16), *VIEWS],
    "padded, enlarged": [PadRGBImageDecoder((99, 81), (9, 8, 7), "bilinear", "top-left"), *GEOMETRY, *VIEWS],
    "bicubic": [crop((31, 18), "bicubic"), *GEOMETRY, RandomHorizontalFlip(), normalize(np.float16), *VIEWS],
    "bicubic, enlarged": [PadRGBImageDecoder((99, 81), 7, "bicubic"), *GEOMETRY, *VIEWS],
    "larger": [crop((96, 80), "antialias"), RandomHorizontalFlip(), normalize(np.float16), *VIEWS],
    "one pixel": [crop((1, 1)), normalize(np.float32), *VIEWS],
    "tail": [crop((16, 18)), normalize(np.float32), Cutout(5, (-1, -2, -3)), RandomHorizontalFlip(), *VIEWS],
}


@pytest.fixture(scope="module")
def sample_file(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("samples") / "samples.beton", IMAGE_SAMPLES)


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("decoded") / "decoded.beton", twin(IMAGE_SAMPLES))


@pytest.mark.parametrize("raw", ["cpu", "bytes"])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_gpu_gives_the_cpus_result_for_the_pixels_of_every_kind_of_image(gpus, sample_file, decoded, name, raw):
    """To the bit: kernels resample RGB as the CPU does, and images that no route takes come from there anyway."""
    batches = epochs(gpu_loader(sample_file, PIPELINES[name], raw=raw), 2)
    assert_same(batches, epochs(gpu_loader(decoded, PIPELINES[name], device="cpu"), 2))


OF_GPUS = {"routes", "images_per_call", "raw"}


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 1},
        {"batch_size": 7},
        {"batch_size": 48},
        {"batch_size": 100},
        {"batch_size": 13, "drop_last": True},
        {"order": "random"},
        {"order": "quasi_random", "batch_size": 5},
        {"os_cache": False},
        {"os_cache": False, "raw": "cpu", "order": "random"},
        {"os_cache": False, "raw": "bytes", "batch_size": 48},
        {"num_workers": 2, "raw": "cpu"},
        {"batches_ahead": 1},
        {"batches_ahead": 7},
        {"routes": ("hardware",)},
        {"images_per_call": 3, "batch_size": 20},
        {"indices": [5, 0, 17, 44, 3, 3]},
    ],
    ids=str,
)
def test_how_it_is_done_does_not_show_in_the_pixels(gpus, faults, sample_file, decoded, changes):
    faults.slow_down(300)
    usual = {name: value for name, value in changes.items() if name not in OF_GPUS}
    batches = epochs(gpu_loader(sample_file, PIPELINES["half"], **changes), 2)
    assert_same(batches, epochs(gpu_loader(decoded, PIPELINES["half"], device="cpu", **usual), 2))


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_any_interleaving_of_streams_gives_the_same_pixels(gpus, faults, sample_file, decoded, is_early, seed):
    faults.early_write = is_early
    faults.slow_down(3000, seed=seed)
    faults.thread_order, faults.thread_seed = seed, seed
    batches = epochs(gpu_loader(sample_file, PIPELINES["half"], order="random"), 2)
    assert_same(batches, epochs(gpu_loader(decoded, PIPELINES["half"], device="cpu", order="random"), 2))


@pytest.mark.parametrize("interpolation", ["area", "bilinear", "antialias", "nearest", "bicubic"])
def test_every_pixel_is_within_a_level_of_the_reference(gpus, sample_file, interpolation):
    """Between the two directions a sample is rounded by half a level; the last rounding is another half."""
    loader = gpu_loader(sample_file, [crop((20, 24), interpolation), *GEOMETRY, ToTensor()])
    plan = loader.plan(0)
    program = plan.outputs[0].program
    compared = 0
    for batch, (images, numbers) in zip(plan, loader, strict=True):
        for image, number, draw in zip(images, numbers[:, 0].tolist(), batch.images["image"].draws, strict=True):
            expected = reference_image(IMAGE_SAMPLES[number].rgb, draw, program).output
            assert np.abs(image.numpy().astype(int) - expected).max() <= 1
            compared += 1
    assert compared == len(IMAGE_SAMPLES)


@pytest.mark.parametrize("interpolation", ["area", "bilinear", "antialias"])
def test_jpegs_look_as_on_the_cpu(gpus, photos, interpolation):
    """The CPU resamples Y, Cb and Cr and makes RGB last; a GPU has RGB first.

    Colors inside the gamut: resampling and the conversion are both linear, so that only roundings differ. The CPU is
    within 1 of its rounded reference, that is 1.5 of the exact one; the GPU too; and the reference of one is that of
    the other but for half a level, by which decoded RGB was rounded. 3.5 in all, and levels are whole.
    """
    pipelines = {**ONLY_IMAGE, "image": [crop((24, 20), interpolation), RandomHorizontalFlip(), ToTensor()]}
    results = []
    for device in ("cuda:0", "cpu"):
        loader = Loader(photos, 8, num_workers=1, seed=1, pipelines=pipelines, device=device)
        results.append(torch.cat([batch for (batch,) in epochs(loader, 2)]).int())
    difference = (results[0] - results[1]).abs()
    assert difference.max() <= 3
    assert difference.float().mean() < 0.5
    assert difference.float().mean() > 0, "one of them did not decode"


@pytest.mark.parametrize("choice", ["cpu", "bytes"])
@pytest.mark.parametrize("os_cache", [True, False])
def test_raw_images_are_the_same_to_the_bit(gpus, raw_photos, choice, os_cache):
    pipelines = {**ONLY_IMAGE, "image": augmented()}
    results = []
    for device in ("cuda:0", "cpu"):
        arguments = {"batch_size": 6, "raw": choice, "more": pipelines, "os_cache": os_cache, "custom_fields": {}}
        results.append(epochs(gpu_loader(raw_photos, pipelines["image"], device=device, **arguments), 3))
    assert_same(*results)


def test_whole_images_of_one_size_need_no_decoder_in_the_pipeline(gpus, tmp_path):
    images = [raw(np.full((9, 14, 3), number, np.uint8)) for number in range(6)]
    path = write_images(tmp_path / "whole.beton", images)
    for pipeline in ([], [ToTensor()], [SimpleRGBImageDecoder(), ToTensor()]):
        batches = epochs(gpu_loader(path, pipeline, batch_size=4))
        assert [tuple(batch.shape) for batch, _ in batches] == [(4, 9, 14, 3), (2, 9, 14, 3)]
        assert torch.cat([batch for batch, _ in batches])[:, 0, 0, 0].tolist() == list(range(6))


def test_batches_that_are_kept_are_never_overwritten(gpus, faults, sample_file):
    faults.slow_down(500)
    loader = gpu_loader(sample_file, PIPELINES["half"], order="random", batch_size=5)
    copies = [(batch, [tensor.clone() for tensor in batch]) for _ in range(3) for batch in loader]
    loader.close()
    for ours, theirs in copies:
        assert_same([ours], [tuple(theirs)])


def num_decoded(faults):
    return len(faults.notes("image"))


def test_an_epoch_decodes_each_jpeg_once(gpus, faults, sample_file):
    loader = gpu_loader(sample_file, PIPELINES["half"])
    for epoch in range(1, 3):
        list(loader)
        assert num_decoded(faults) == epoch * NUM_DECODED
    loader.close()


def test_batches_of_another_size_come_from_the_next_epoch_on(gpus, sample_file, decoded):
    results = []
    for path, device in ((sample_file, "cuda:0"), (decoded, "cpu")):
        loader, batches = gpu_loader(path, PIPELINES["half"], device=device, batch_size=3), []
        for batch_size in (3, 11, 2):
            loader.batch_size = batch_size
            batches += list(loader)
        loader.close()
        results.append(batches)
    assert_same(*results)


def test_a_gpu_has_memory_for_as_many_batches_ahead_as_at_first(gpus, sample_file):
    loader = gpu_loader(sample_file, PIPELINES["half"], batches_ahead=1)
    with pytest.raises(OptionError, match="batches_ahead"):
        loader.batches_ahead = 3
    assert len(epochs(loader)) > 0
