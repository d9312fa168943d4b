"""With ``deterministic=False`` the engines and our own decoder share images, by the times that they took."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from gpubeton.errors import BadImageError
from gpubeton.gpu.entry_decoder import EntryDecoder
from gpubeton.gpu.nvjpeg_backends import BatchedBackend
from tests.cpu.pictures import jpeg, photo
from tests.gpu_path.test_entry_decoder import indexed, loader_of
from tests.gpu_path.test_gpu_loader import PIPELINES
from tests.gpu_path.zoo import BASELINE, ZOO, bytes_of, epochs, gpu_loader, stored, twin, write_images
from tests.simulator.device import SimulatedDevice

IMAGES = [stored(jpeg(photo(40 + number, 60 - number, number))) for number in range(16)]
BOTH = {"lanes": ("hardware", "own"), "batch_size": 16, "num_workers": 1}


@pytest.fixture
def shares(monkeypatch):
    """For each batch the images that the engines and our decoder made."""
    counts = {"engines": [], "own": []}
    begin, launch = BatchedBackend.begin, EntryDecoder.launch

    def beginning(backend, request):
        counts["engines"].append(len(request.address))
        return begin(backend, request)

    def launching(decoder, images, *others):
        counts["own"].append(len(images.rows))
        launch(decoder, images, *others)

    monkeypatch.setattr(BatchedBackend, "begin", beginning)
    monkeypatch.setattr(EntryDecoder, "launch", launching)
    return counts


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return indexed(tmp_path_factory.mktemp("plain") / "plain.beton", IMAGES)


@pytest.fixture
def times(monkeypatch):
    """What the lanes of every device take, in milliseconds, by the names of streams."""
    planted = {}
    make = SimulatedDevice.__init__

    def making(device, number=0):
        make(device, number)
        device.times = planted

    monkeypatch.setattr(SimulatedDevice, "__init__", making)
    return planted


def assert_each_is_made_by_one_of(found, *expected):
    """Each image of all batches is to the bit what one of some loaders makes of it."""
    for batch, *others in zip(found, *expected, strict=True):
        for image, *wanted in zip(batch[0], *(other[0] for other in others), strict=True):
            assert any(np.array_equal(bytes_of(image), bytes_of(other)) for other in wanted)


def both_ways(path, images, tmp_path, **changes):
    """What our decoder and the CPU make, and what the engines make."""
    raws = write_images(tmp_path / "raws.beton", twin(images))
    loaders = (
        loader_of(path, PIPELINES["half"], device="cpu", **changes),
        gpu_loader(raws, PIPELINES["half"], device="cpu", **changes),
    )
    return [epochs(loader) for loader in loaders]


@pytest.mark.parametrize(("slow", "fast"), [("engines", "own"), ("own", "engines")])
def test_a_slow_lane_gets_fewer_images_and_both_are_used(gpus, plain, shares, times, slow, fast, tmp_path):
    times |= {"engines": 1.0, "augment": 1.0, "augment" if slow == "own" else slow: 9.0}
    found = epochs(loader_of(plain, PIPELINES["half"], deterministic=False, batches_ahead=1, **BOTH), 6)
    assert shares[slow][0] == shares[fast][0] == 8
    assert shares[slow] == sorted(shares[slow], reverse=True)
    assert shares[slow][-1] == 1
    assert [sum(both) for both in zip(*shares.values(), strict=True)] == [16] * 6
    assert_each_is_made_by_one_of(found[:1], *both_ways(plain, IMAGES, tmp_path, batch_size=16))


def test_lanes_of_the_same_speed_share_evenly(gpus, plain, shares):
    epochs(loader_of(plain, PIPELINES["half"], deterministic=False, **BOTH), 4)
    assert shares["engines"] == shares["own"] == [8] * 4


def test_a_deterministic_loader_shares_nothing(gpus, plain, shares):
    epochs(loader_of(plain, PIPELINES["half"], **BOTH), 2)
    assert shares == {"engines": [], "own": [16, 16]}


def test_of_other_kinds_of_images_each_has_its_usual_lane(gpus, shares, tmp_path):
    path = indexed(tmp_path / "zoo.beton", ZOO)
    found = epochs(loader_of(path, PIPELINES["half"], deterministic=False, **(BOTH | {"batch_size": 100})))
    assert sum(shares["engines"]) + sum(shares["own"]) == len(BASELINE)
    assert shares["engines"]
    assert_each_is_made_by_one_of(found, *both_ways(path, ZOO, tmp_path, batch_size=100))


def test_an_image_that_its_lane_cannot_decode_is_the_cpus(gpus, faults, plain, monkeypatch, tmp_path):
    """The engines refuse one, and our decoder finds another damaged."""
    faults.fail_image(6, data=IMAGES[1].data)
    launch = EntryDecoder.launch

    def launching(decoder, images, own, out, stream):
        launch(decoder, images, own, out, stream)
        stream.synchronize()
        status = images.places[images.number, "jpeg status"]
        ctypes.c_int32.from_address(status + 4 * images.rows.tolist().index(14)).value = 1

    monkeypatch.setattr(EntryDecoder, "launch", launching)
    loader = loader_of(plain, PIPELINES["half"], deterministic=False, **BOTH)
    (found,) = loader
    assert loader.gpu._free[0].refused == {("image", 1), ("image", 14)}
    loader.close()
    wanted = both_ways(plain, IMAGES, tmp_path, batch_size=16)
    assert_each_is_made_by_one_of([found], *wanted)
    for number in (1, 14):
        assert np.array_equal(bytes_of(found[0][number]), bytes_of(wanted[0][0][0][number]))


def test_an_image_that_nothing_decodes_is_reported_by_its_number(gpus, shares, tmp_path):
    images = [*IMAGES[:3], stored(IMAGES[3].data[:200], (43, 57)), *IMAGES[4:]]
    path = indexed(tmp_path / "cut.beton", images)
    loader = loader_of(path, PIPELINES["half"], deterministic=False, **BOTH)
    with pytest.raises(BadImageError, match="3"):
        list(loader)
    loader.close()
