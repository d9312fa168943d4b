"""How the feeder shares a batch between routes, and cuts it into calls."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.transforms import ToTensor
from tests.cpu.pictures import jpeg, noise, photo, pillow_jpeg
from tests.gpu_path.image_samples import assert_same, epochs, gpu_loader, raw, stored, twin, write_images
from tests.simulator.faults import hash_of

PIPELINE = [CenterCropRGBImageDecoder((6, 7), 1, "bilinear"), ToTensor()]
SMALL = [stored(jpeg(photo(12 + number % 5, 18 - number % 7, number))) for number in range(256)]
BATCHED = "nvjpegDecodeBatched"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("small") / "small.beton", SMALL)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    decoded = write_images(tmp_path_factory.mktemp("decoded") / "decoded.beton", twin(SMALL))
    return epochs(gpu_loader(decoded, PIPELINE, device="cpu", batch_size=128), 2)


def calls_of(faults):
    return [call.images for call in faults.notes("call", BATCHED)]


def test_a_batch_is_cut_into_the_fewest_calls_that_keep_all_engines_busy(gpus, faults, path, expected):
    assert_same(epochs(gpu_loader(path, PIPELINE, batch_size=128)), expected[:2])
    assert calls_of(faults) == [42, 43, 43] * 2


def test_images_of_one_call_are_of_one_sampling_and_the_largest_come_first(gpus, faults, tmp_path):
    samplings = ["4:2:0", "4:4:4", "gray"]
    images = [stored(jpeg(noise(10, 10 + number), sampling=samplings[number % 3])) for number in range(24)]
    path = write_images(tmp_path / "samplings.beton", images)
    epochs(gpu_loader(path, PIPELINE, batch_size=24, images_per_call=8))
    numbers = {hash_of(image.data): number for number, image in enumerate(images)}
    decoded = [numbers[note.owner] for note in faults.notes("image", BATCHED)]
    pieces = [decoded[start : start + 8] for start in (0, 8, 16)]
    assert sorted({number % 3 for number in piece} == {piece[0] % 3} for piece in pieces) == [True] * 3
    sizes = [[len(images[number].data) for number in piece] for piece in pieces]
    assert sizes == [sorted(size, reverse=True) for size in sizes]


def test_a_batch_of_every_route_needs_one_call(gpus, faults, tmp_path):
    images = [
        *(stored(jpeg(photo(20, 20, number))) for number in range(4)),
        *(stored(pillow_jpeg(photo(20, 20, number), progressive=True)) for number in range(2)),
        stored(pillow_jpeg(photo(20, 20), "CMYK")),
        raw(photo(20, 20)),
    ]
    path = write_images(tmp_path / "routes.beton", images)
    epochs(gpu_loader(path, PIPELINE))
    assert calls_of(faults) == [4]


def test_bytes_of_a_call_are_in_place_before_it_and_stay_until_it_is_done(gpus, faults, path, expected):
    """The simulator compares the bytes at the call with the bytes at its turn in the stream."""
    faults.pinned_input = True
    faults.early_write = False
    faults.slow_down(2000)
    for os_cache in (True, False):
        loader = gpu_loader(path, PIPELINE, batch_size=128, images_per_call=5, os_cache=os_cache)
        assert_same(epochs(loader), expected[:2])
    assert np.unique([note.status for note in faults.notes("call", BATCHED)]).tolist() == [0]
