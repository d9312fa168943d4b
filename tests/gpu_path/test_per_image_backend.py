from __future__ import annotations

import pytest

from gpubeton.gpu.nvjpeg import Backend, load
from gpubeton.gpu.nvjpeg_backends import PerImageBackend
from tests.cpu.pictures import jpeg, noise, photo, pillow_jpeg
from tests.gpu_path.pieces import Pieces
from tests.simulator.active_device import device

__all__ = ["device"]

ODD = [
    pillow_jpeg(photo(30, 40, 1), progressive=True),
    jpeg(photo(20, 33, 2), sampling="4:1:1"),
    jpeg(noise(9, 8), sampling="gray"),
    jpeg(photo(50, 21, 4)),
    pillow_jpeg(noise(16, 16), quality=60, restart_marker_blocks=1),
]


@pytest.fixture
def pieces(device):
    return Pieces(device)


@pytest.fixture
def lane(device, faults):
    lane = PerImageBackend(device, load().create(Backend.DEFAULT))
    yield lane
    lane.settle()
    lane.close()
    assert (faults.live("state"), faults.live("handle")) == (0, 0)


def test_all_images_of_a_piece_are_decoded_when_its_event_is_done(lane, pieces, faults):
    faults.slow_down(3000)
    piece = pieces.make(ODD)
    event, failed = lane.begin(piece)
    event.synchronize()
    assert (failed, pieces.state_of(piece)) == ({}, ["decoded"] * 5)


@pytest.mark.parametrize("slow", [0, 1])
def test_the_event_waits_for_every_state(lane, pieces, faults, slow):
    """Images of one piece are decoded with several states, each with a stream of its own."""
    lane.begin(pieces.make(ODD[:2]))[0].synchronize()
    calls = faults.notes("call", "nvjpegDecode")
    stream = next(one for one in lane._device.streams if one.number == calls[slow].stream)
    piece = pieces.make(ODD[:2])
    with faults.held(stream):
        event, _ = lane.begin(piece)
        assert not event.is_done
    event.synchronize()
    assert pieces.state_of(piece) == ["decoded"] * 2


def test_an_image_that_is_refused_is_named_and_the_others_are_decoded(lane, pieces):
    cmyk = pillow_jpeg(photo(9, 9), "CMYK")
    piece = pieces.make([ODD[0], cmyk, ODD[1], cmyk, ODD[2]])
    event, failed = lane.begin(piece)
    event.synchronize()
    assert sorted(failed) == [1, 3]
    assert all("nvjpegDecode" in reason for reason in failed.values())
    assert pieces.state_of(piece) == ["decoded", "untouched", "decoded", "untouched", "decoded"]


def test_a_piece_of_refused_images_alone_is_done_at_once(lane, pieces):
    event, failed = lane.begin(pieces.make([pillow_jpeg(photo(9, 9), "CMYK")] * 3))
    event.synchronize()
    assert sorted(failed) == [0, 1, 2]


def test_every_piece_has_an_event_of_its_own(lane, pieces):
    first, second = (lane.begin(pieces.make(ODD[:1])).event for _ in range(2))
    assert first is not second


def test_states_are_used_in_turn_and_waited_for(lane, pieces, faults):
    faults.slow_down(2000)
    lane.begin(pieces.make(ODD * 2))[0].synchronize()
    calls = faults.notes("call", "nvjpegDecode")
    assert len({call.owner for call in calls}) == 2
    assert not any(call.was_busy for call in calls)


def test_settling_waits_for_all_images(lane, pieces, faults):
    faults.slow_down(20_000, least=20_000)
    piece = pieces.make(ODD[:2])
    lane.begin(piece)
    lane.settle()
    assert pieces.state_of(piece) == ["decoded"] * 2
