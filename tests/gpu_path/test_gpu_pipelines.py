"""Pipelines of every shape on a GPU, and loaders beside each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpubeton.fields.decoders import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.pipeline import Operation, PipelineSpec
from gpubeton.transforms import (
    Convert,
    Cutout,
    NormalizeImage,
    RandomHorizontalFlip,
    Squeeze,
    ToDevice,
    ToTensor,
    ToTorchImage,
)
from tests.at_once import run_at_once
from tests.gpu_path.image_samples import IMAGE_SAMPLES, assert_same, epochs, gpu_loader, twin, write_images
from tests.loader.pipelines import augmented, by_sample, equal
from tests.simulator.device import SimulatedDevice

CROP = RandomResizedCropRGBImageDecoder((12, 10))
HALVES = NormalizeImage((120, 110, 100), (60, 50, 40), np.float16)
THERE = ToDevice("cuda:0")
IMAGES = IMAGE_SAMPLES[:24]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "images.beton", IMAGES)


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("decoded") / "decoded.beton", twin(IMAGES))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two fields with different images."""
    return write_images(tmp_path_factory.mktemp("two") / "two.beton", IMAGES, IMAGES[::-1])


@pytest.fixture(scope="module")
def two_decoded(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("two") / "two.beton", twin(IMAGES), twin(IMAGES[::-1]))


@pytest.fixture
def fetched(gpus, monkeypatch):
    """Shapes of the tensors that were copied from a GPU."""
    shapes, fetch = [], SimulatedDevice.fetch

    def noting(device, tensor, stream):
        shapes.append(tuple(tensor.shape))
        return fetch(device, tensor, stream)

    monkeypatch.setattr(SimulatedDevice, "fetch", noting)
    return shapes


class Negative(Operation):
    """A user's operation on arrays, compiled."""

    def generate_code(self):
        def negative(images, memory):
            for row in range(images.shape[0]):
                for y in range(images.shape[1]):
                    for x in range(images.shape[2]):
                        for color in range(3):
                            images[row, y, x, color] = 255 - images[row, y, x, color]
            return images

        return negative

    def declare_state_and_memory(self, previous_state):
        return replace(previous_state, jit_mode=True), None


class Halved(torch.nn.Module):
    def forward(self, images):
        return images / 2


TAILS = {
    "nothing": [],
    "array": [RandomHorizontalFlip(), HALVES],
    "tensor": [HALVES, ToTensor(), ToTorchImage()],
    "floats": [ToTensor(), ToTorchImage(), Convert(torch.float32)],
    "own": [RandomHorizontalFlip(), Negative(), ToTensor(), ToTorchImage(), HALVES],
    "own, then there": [Cutout(3), Negative(), ToTensor(), THERE, ToTorchImage(), HALVES],
    "module": [ToTensor(), ToTorchImage(), Convert(torch.float32), Halved()],
    "module there": [HALVES, ToTensor(), THERE, ToTorchImage(), Halved()],
    "module, then there": [HALVES, ToTensor(), ToTorchImage(), Halved(), THERE],
    "there and back": [ToTensor(), THERE, ToTorchImage(), Halved(), ToDevice("cpu"), Halved()],
    "late normalizing": [NormalizeImage((1, 2, 3), (4, 5, 6), np.float64), ToTensor(), ToTorchImage()],
}
RETURNING = {"nothing", "array", "own", "own, then there", "module", "module, then there"}


@pytest.mark.parametrize("name", TAILS)
def test_a_pipeline_gives_the_same_on_a_gpu_and_on_the_cpu(gpus, fetched, path, decoded, name):
    loader = gpu_loader(path, [CROP, *TAILS[name]])
    batches = epochs(loader, 2)
    assert_same(batches, epochs(gpu_loader(decoded, [CROP, *TAILS[name]], device="cpu"), 2))
    assert len(fetched) == (6 if name in RETURNING else 0)


@pytest.mark.parametrize("name", TAILS)
def test_explain_names_the_decoder_and_where_batches_are_copied_back(gpus, path, capsys, name):
    loader = gpu_loader(path, [CROP, *TAILS[name]])
    loader.explain()
    text = capsys.readouterr().out
    loader.close()
    assert "images are decoded by Simulated GPU (cuda:0): device='cuda:0' was asked for" in text
    assert "7 JPEG engines, 56 images a call" in text
    assert ("(copy to the CPU)" in text) == (name in RETURNING)


@pytest.mark.parametrize("to_device", [THERE, ToDevice("cuda"), ToDevice("cuda:0", non_blocking=False)])
@pytest.mark.parametrize("choice", ["auto", "cuda:0", "cuda", 0, torch.device("cuda:0")])
def test_a_gpu_is_chosen_by_todevice_or_by_name(gpus, path, decoded, to_device, choice):
    pipeline = [CROP, RandomHorizontalFlip(), ToTensor(), to_device, ToTorchImage(), HALVES]
    loader = gpu_loader(path, pipeline, device=choice)
    assert loader.gpu is not None
    assert loader.gpu.device is gpus[0]
    assert_same(epochs(loader), epochs(gpu_loader(decoded, pipeline, device="cpu")))


def test_an_output_without_todevice_stays_on_the_cpu_beside_one_that_has_it(gpus, faults, path, decoded):
    more = {"again": PipelineSpec("image", transforms=[CROP, ToTensor()]), "number": [ToTensor(), THERE, Squeeze()]}
    results = []
    for file, device in ((path, "auto"), (decoded, "cpu")):
        results.append(epochs(gpu_loader(file, [CROP, ToTensor(), THERE], device=device, more=more)))
    for ours, theirs in zip(*results, strict=True):
        assert_same([ours[:2]], [theirs[:2]])
        # Of a JPEG the CPU makes something else than of its pixels.
        assert ours[2].shape == theirs[2].shape


def moved(monkeypatch):
    """Devices that tensors are moved to, by their first elements."""
    calls = []

    def apply(self, batch, draw=None):
        calls.append((str(self.device), tuple(batch.shape)))
        return batch.clone()

    monkeypatch.setattr(ToDevice, "apply", apply)
    return calls


def test_with_a_gpu_by_name_all_tensors_are_left_there_and_arrays_are_not(gpus, path, monkeypatch):
    calls = moved(monkeypatch)
    spec = {
        "number": [ToTensor(), Squeeze()],
        "array": PipelineSpec("number", transforms=[]),
        "pixels": PipelineSpec("image", decoder=CROP, transforms=[]),
    }
    batches = epochs(gpu_loader(path, [CROP, ToTensor()], more=spec, batch_size=24))
    assert [type(output) for output in batches[0]] == [torch.Tensor, torch.Tensor, torch.Tensor, np.ndarray]
    assert calls == [("cuda:0", (24,)), ("cuda:0", (24, 1))], "images are there already"


def num_decoded(faults):
    return len(faults.notes("image"))


def test_two_outputs_of_one_field_are_decoded_once_and_drawn_differently(gpus, faults, path, decoded):
    more = {
        "again": PipelineSpec("image", transforms=[CROP, Cutout(3), HALVES, ToTensor()]),
        "small": PipelineSpec("image", decoder=CenterCropRGBImageDecoder((5, 4), 1, "antialias"), transforms=[]),
    }
    pipeline = [CROP, RandomHorizontalFlip(), ToTensor(), ToTorchImage()]
    batches = epochs(gpu_loader(path, pipeline, more=more))
    assert num_decoded(faults) == len(IMAGES) / 4
    assert_same(batches, epochs(gpu_loader(decoded, pipeline, device="cpu", more=more)))


@pytest.mark.filterwarnings("ignore:.*do not follow them")
def test_two_fields_are_decoded_in_one_batch(gpus, faults, two, two_decoded):
    more = {"second": [CROP, Cutout(2), HALVES, ToTensor(), ToTorchImage()]}
    pipeline = [CROP, ToTensor()]
    batches = epochs(gpu_loader(two, pipeline, more=more))
    assert num_decoded(faults) == len(IMAGES) / 2
    assert_same(batches, epochs(gpu_loader(two_decoded, pipeline, device="cpu", more=more)))


def test_one_field_may_stay_on_the_cpu(gpus, two, two_decoded):
    results = []
    for file, device in ((two, "auto"), (two_decoded, "cpu")):
        more = {"second": [CROP, HALVES, ToTensor(), THERE]}
        results.append(epochs(gpu_loader(file, None, device=device, more=more)))
    assert_same(*results)


def test_a_loader_may_be_filtered_by_its_images_and_by_others(gpus, path):
    pipeline = [CROP, ToTensor()]
    loader = gpu_loader(path, pipeline)
    by_number = loader.filter("number", lambda number: number % 3 == 0)
    assert by_number.indices.tolist() == list(range(0, 24, 3))
    images = by_sample(loader)
    middle = float(np.median([image.float().mean() for image in images.values()]))
    loader.set_epoch(0)
    dark = loader.filter("image", lambda image: float(image.float().mean()) < middle)
    assert dark.indices.tolist() == [number for number in range(24) if images[number].float().mean() < middle]
    assert dark.gpu is not None
    dark_images = by_sample(dark)
    assert equal(dark_images, {number: images[number] for number in dark_images})
    for current in (loader, by_number, dark):
        current.close()


def test_a_loader_resumes_the_epoch_of_another(gpus, path):
    pipeline = [CROP, RandomHorizontalFlip(), HALVES, ToTensor()]
    expected = epochs(gpu_loader(path, pipeline, order="random"), 2)
    first = gpu_loader(path, pipeline, order="random")
    list(first)
    batches = iter(first)
    assert_same([next(batches)], expected[3:4])
    state = first.state_dict()
    first.close()
    second = gpu_loader(path, pipeline, order="random")
    second.load_state_dict(state)
    assert_same(epochs(second), expected[4:])


def test_several_iterators_of_one_loader_are_separate_epochs(gpus, faults, path):
    faults.slow_down(300)
    pipeline = [CROP, HALVES, ToTensor()]
    expected = epochs(gpu_loader(path, pipeline, order="random"), 3)
    loader = gpu_loader(path, pipeline, order="random")
    iterators = [iter(loader) for _ in range(3)]
    results = [list(row) for row in zip(*iterators, strict=True)]
    assert_same([row[number] for number in range(3) for row in results], expected)
    loader.close()


def test_threads_may_iterate_over_loaders_on_one_gpu_together(gpus, faults, path):
    faults.slow_down(300)
    pipeline = [CROP, HALVES, ToTensor()]
    expected = epochs(gpu_loader(path, pipeline, order="random"), 2)
    results = {}

    def consume(number):
        results[number] = epochs(gpu_loader(path, pipeline, order="random"), 2)

    run_at_once(consume, range(3))
    for number in range(3):
        assert_same(results[number], expected)


def test_loaders_on_two_gpus_keep_them_apart(gpus, faults, path, decoded):
    """Handles, streams and memory of one are never used with the other: the simulator looks at every call."""
    pipeline = [CROP, ToTensor(), HALVES]
    by_name = gpu_loader(path, [CROP, ToTensor(), ToDevice("cuda:1"), HALVES], device="auto")
    loaders = [gpu_loader(path, pipeline, device="cuda:0"), by_name]
    assert [loader.gpu.device.number for loader in loaders] == [0, 1]
    rows = list(zip(*loaders, strict=True))
    expected = epochs(gpu_loader(decoded, pipeline, device="cpu"))
    for number in (0, 1):
        assert_same([row[number] for row in rows], expected)
    for loader in loaders:
        loader.close()
    assert {note.device for note in faults.notes("call", "nvjpegDecodeBatched")} == {0, 1}


def test_without_todevice_auto_leaves_all_to_the_cpu_and_an_empty_selection_makes_no_batch(gpus, path):
    with gpu_loader(path, [CROP, ToTensor()], device="auto") as loader:
        assert (loader.gpu, gpus) == (None, {})
        assert loader.gpu_choice.reason == "no pipeline moves its batches to a GPU"
        list(loader)
    with gpu_loader(path, [CROP, ToTensor()], indices=[]) as loader:
        assert list(loader) == []


def test_a_small_files_fields_all_arrive(gpus, photos):
    loader = Loader(photos, 8, num_workers=1, pipelines={"image": augmented(), "note": None}, device="cuda:0")
    images, label, weight, info, vector = next(iter(loader))
    assert (images.shape, label.tolist(), tuple(vector.shape)) == (
        (8, 3, 24, 20),
        [[number * 10] for number in range(8)],
        (8, 2, 3),
    )
    assert (weight.dtype, info.dtype) == (torch.float64, torch.uint8)
    loader.close()
