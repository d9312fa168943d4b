"""How the feeder shares a batch between lanes, and cuts it into calls."""

from __future__ import annotations

import numpy as np
import pytest

from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.gpu.feeder import LoadBalancer
from gpubeton.gpu.nvjpeg import Backend
from gpubeton.plan.lanes import Lane
from gpubeton.transforms import ToTensor
from tests.cpu.pictures import jpeg, noise, photo, pillow_jpeg
from tests.gpu_path.zoo import assert_same, epochs, gpu_loader, raw, stored, twin, write_images
from tests.simulator.faults import hash_of

pytestmark = pytest.mark.timeout(600)  # the first to make an image on the CPU waits until that is compiled

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


def calls_of(faults, backend):
    return [call.images for call in faults.notes("call", BATCHED) if call.backend == backend]


def make_engines_slow(gpus, faults):
    for number in range(3):
        faults.slow_down(3000, least=3000, stream=gpus[0].stream(f"hardware {number}"))


@pytest.mark.parametrize("os_cache", [True, False])
def test_both_lanes_share_a_batch_and_every_image_arrives(gpus, faults, path, expected, os_cache):
    loader = gpu_loader(path, PIPELINE, batch_size=128, deterministic=False, os_cache=os_cache)
    make_engines_slow(gpus, faults)
    assert_same(epochs(loader, 2), expected)
    processors = calls_of(faults, Backend.GPU_HYBRID)
    assert processors
    assert min(processors) >= 51, "fewer are decoded with the CPU's help"
    assert sum(processors) + sum(calls_of(faults, Backend.HARDWARE)) == 512


@pytest.mark.parametrize("is_skipped", [True, False])
def test_images_that_either_lane_leaves_out_or_refuses_are_repaired(gpus, faults, path, expected, is_skipped):
    inject = faults.skip_image if is_skipped else (lambda **which: faults.fail_image(8, **which))
    inject(every=40 if is_skipped else 200, batched=True)
    loader = gpu_loader(path, PIPELINE, batch_size=128, deterministic=False)
    make_engines_slow(gpus, faults)
    assert_same(epochs(loader, 2), expected)


def test_whoever_wants_the_same_pixels_always_has_the_engines_decode_all(gpus, faults, path, expected):
    loader = gpu_loader(path, PIPELINE, batch_size=128, deterministic=True)
    make_engines_slow(gpus, faults)
    assert_same(epochs(loader), expected[:2])
    assert calls_of(faults, Backend.GPU_HYBRID) == []
    assert calls_of(faults, Backend.HARDWARE) == [16] * 16


def test_small_batches_are_the_engines_alone(gpus, faults, path):
    loader = gpu_loader(path, PIPELINE, batch_size=50, deterministic=False)
    make_engines_slow(gpus, faults)
    epochs(loader)
    assert calls_of(faults, Backend.GPU_HYBRID) == []


def test_the_split_is_told_of_every_piece_and_of_none_alone(gpus, faults, path, monkeypatch):
    begun = []
    original = LoadBalancer.begun
    monkeypatch.setattr(LoadBalancer, "begun", lambda split, *piece: (begun.append(piece), original(split, *piece))[1])
    loader = gpu_loader(path, PIPELINE, batch_size=128, deterministic=False)
    epochs(loader)
    assert {lane for lane, _, _ in begun} <= {Lane.HARDWARE, Lane.SM}
    assert sum(nbytes for _, nbytes, _ in begun) == sum(len(image.data) for image in SMALL)
    assert len(begun) == len(faults.notes("call", BATCHED))


def test_images_of_one_call_are_of_one_sampling_and_the_largest_come_first(gpus, faults, tmp_path):
    samplings = ["4:2:0", "4:4:4", "gray"]
    images = [stored(jpeg(noise(10, 10 + number), sampling=samplings[number % 3])) for number in range(24)]
    path = write_images(tmp_path / "samplings.beton", images)
    epochs(gpu_loader(path, PIPELINE, batch_size=24, images_per_call=8))
    known = {hash_of(image.data): number for number, image in enumerate(images)}
    decoded = [known[note.owner] for note in faults.notes("image", BATCHED)]
    pieces = [decoded[start : start + 8] for start in (0, 8, 16)]
    assert sorted({number % 3 for number in piece} == {piece[0] % 3} for piece in pieces) == [True] * 3
    sizes = [[len(images[number].data) for number in piece] for piece in pieces]
    assert sizes == [sorted(own, reverse=True) for own in sizes]


def test_a_batch_of_every_lane_needs_one_call_for_each_that_is_batched(gpus, faults, tmp_path):
    images = [
        *(stored(jpeg(photo(20, 20, number))) for number in range(4)),
        *(stored(pillow_jpeg(photo(20, 20, number), progressive=True)) for number in range(2)),
        stored(pillow_jpeg(photo(20, 20), "CMYK")),
        raw(photo(20, 20)),
    ]
    path = write_images(tmp_path / "lanes.beton", images)
    epochs(gpu_loader(path, PIPELINE))
    assert calls_of(faults, Backend.HARDWARE) == [4]
    assert len(faults.notes("call", "nvjpegDecode")) == 2


def test_bytes_of_a_call_are_in_place_before_it_and_stay_until_it_is_done(gpus, faults, path, expected):
    """The simulator compares what a decoder was given with what it finds at its turn."""
    faults.pinned_input = True
    faults.early_write = False
    faults.slow_down(2000)
    for os_cache in (True, False):
        loader = gpu_loader(path, PIPELINE, batch_size=128, images_per_call=5, os_cache=os_cache)
        assert_same(epochs(loader), expected[:2])
    assert np.unique([note.status for note in faults.notes("call", BATCHED)]).tolist() == [0]
