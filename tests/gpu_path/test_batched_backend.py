from __future__ import annotations

import threading

import pytest

from gpubeton.errors import DeviceError, NvjpegError
from gpubeton.gpu.nvjpeg import Backend, State, load
from gpubeton.gpu.nvjpeg_backends import BatchedBackend
from tests.cpu.pictures import jpeg, noise, photo, pillow_jpeg
from tests.gpu_path.pieces import Pieces
from tests.simulator.active_device import device

__all__ = ["device"]

SMALL = [jpeg(photo(20 + number, 30, number)) for number in range(6)]
OTHERS = [jpeg(noise(17, 9 + number), sampling="4:4:4") for number in range(6)]
INITIALISE = "nvjpegDecodeBatchedInitialize"


@pytest.fixture
def pieces(device):
    return Pieces(device)


@pytest.fixture
def make(device, faults):
    """Makes lanes; closes them at the end."""
    made = []

    def make(backend=Backend.HARDWARE, **arguments):
        made.append(BatchedBackend(device, load().create(backend), most=8, **arguments))
        return made[-1]

    yield make
    for lane in made:
        lane.settle()
        lane.close()
    assert (faults.live("state"), faults.live("handle")) == (0, 0)


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("backend", [Backend.HARDWARE, Backend.GPU_HYBRID])
def test_a_piece_is_decoded_when_its_event_is_done(make, pieces, faults, backend, is_early):
    faults.early_write = is_early
    faults.slow_down(2000)
    lane = make(backend)
    begun = [(piece, lane.begin(piece)) for piece in (pieces.make(SMALL), pieces.make(OTHERS[:2]), pieces.make(SMALL))]
    for piece, (event, failed) in begun:
        event.synchronize()
        assert failed == {}
        assert pieces.state_of(piece) == ["decoded"] * len(piece.size)


def test_pieces_go_to_states_in_turn_and_do_not_wait_for_each_other(make, pieces, faults):
    faults.slow_down(50_000, least=50_000)
    lane = make(num_states=3)
    for _ in range(3):
        lane.begin(pieces.make(SMALL))
    calls = faults.notes("call", "nvjpegDecodeBatched")
    assert len({call.stream for call in calls}) == len({call.owner for call in calls}) == 3


def test_states_are_initialised_once_while_the_number_of_images_stays(make, pieces, faults):
    faults.slow_down(2000, least=1000)
    lane = make(num_states=3)
    for number in range(12):
        lane.begin(pieces.make(SMALL if number % 2 else OTHERS))
    assert faults.count(INITIALISE) == 3
    assert not [call for call in faults.notes("call", INITIALISE) if call.was_busy]


def test_a_state_is_initialised_anew_for_another_number_and_never_while_it_works(make, pieces, faults):
    faults.slow_down(2000)
    lane = make(num_states=2)
    for number in range(10):
        lane.begin(pieces.make(SMALL[: 1 + number % 5]))
    calls = faults.notes("call", INITIALISE)
    assert len(calls) >= 8
    assert not any(call.was_busy for call in calls)


def test_a_number_that_comes_back_finds_the_state_that_knows_it(make, pieces, faults):
    lane = make(num_states=3)
    for number in range(12):
        lane.begin(pieces.make(SMALL[:2] if number % 2 else SMALL))[0].synchronize()
    assert faults.count(INITIALISE) == 2


@pytest.mark.parametrize("is_early", [True, False])
def test_a_piece_that_is_refused_failed_as_a_whole_with_nvjpegs_reason(make, pieces, faults, is_early):
    faults.early_write = is_early
    lane = make()
    event, failed = lane.begin(pieces.make([*SMALL[:2], pillow_jpeg(photo(9, 9), progressive=True), SMALL[2]]))
    assert event is None
    assert sorted(failed) == [0, 1, 2, 3]
    assert all("nvjpegDecodeBatched" in reason and "JPEG_NOT_SUPPORTED" in reason for reason in failed.values())


def test_when_a_piece_has_failed_nothing_of_it_is_under_way(make, pieces, faults, device):
    """Images in front of the culprit may be: whoever repairs them writes to the same places."""
    faults.slow_down(20_000, least=20_000)
    lane = make(num_states=1)
    lane.begin(pieces.make([*SMALL[:2], pillow_jpeg(photo(9, 9), progressive=True)]))
    (stream,) = {call.stream for call in faults.notes("call", "nvjpegDecodeBatched")}
    (own,) = [one for one in device.streams if one.number == stream]
    assert own.is_idle


def test_a_lane_works_on_after_a_piece_that_failed(make, pieces, faults):
    faults.slow_down(1000)
    lane = make(num_states=2)
    bad = pieces.make([*SMALL[:5], pillow_jpeg(photo(9, 9), progressive=True)])
    good = []
    for _ in range(5):
        good.append(pieces.make(SMALL))
        assert lane.begin(good[-1]).failed == {}
        assert len(lane.begin(bad).failed) == 6
    lane.settle()
    assert all(pieces.state_of(piece) == ["decoded"] * 6 for piece in good)


@pytest.mark.parametrize("status", [1, 5, 6, 8])
@pytest.mark.parametrize("function", [INITIALISE, "nvjpegDecodeBatched"])
def test_a_call_that_fails_once_costs_one_piece(make, pieces, faults, function, status):
    lane = make(num_states=1)
    faults.fail_call(function, status, after=1, times=1)
    assert lane.begin(pieces.make(SMALL)).failed == {}
    # Another number, so that the state has to be initialised.
    assert set(lane.begin(pieces.make(SMALL[:3])).failed) == {0, 1, 2}
    piece = pieces.make(SMALL[:3])
    event, failed = lane.begin(piece)
    event.synchronize()
    assert (failed, pieces.state_of(piece)) == ({}, ["decoded"] * 3)


def test_an_error_of_the_gpu_is_no_refusal(make, pieces, faults, device):
    """It is not the images' fault, and would come again with each of them."""
    lane = make(num_states=1)
    faults.fail_call("nvjpegDecodeBatched", 6)  # what nvJPEG says of an error that somebody else has made
    faults.fail_device()
    with pytest.raises(DeviceError) as caught:
        lane.begin(pieces.make(SMALL))
    assert not isinstance(caught.value, NvjpegError)
    faults.fail_device(status=0)


def test_an_error_of_our_own_is_no_refusal(make, pieces, monkeypatch):
    """Otherwise it would never be found: the CPU would make the images, and all would look well."""
    lane = make(num_states=1)

    def failing(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(State, "decode_batched", failing)
    with pytest.raises(ZeroDivisionError):
        lane.begin(pieces.make(SMALL))


def test_width_and_height_are_nvjpegs_in_this_order(make, monkeypatch):
    asked = []
    monkeypatch.setattr(State, "preallocate", lambda _state, *size: asked.append(size))
    make(num_states=2).reserve(width=30, height=40)
    assert asked == [(8, 30, 40)] * 2


def test_memory_for_the_largest_images_is_allocated_ahead_for_every_state(make, faults, pieces):
    lane = make(num_states=3)
    lane.reserve(width=30, height=40)
    calls = faults.notes("call", "nvjpegDecodeBatchedPreAllocate")
    assert [call.images for call in calls] == [8] * 3
    assert len({call.owner for call in calls}) == 3
    for _ in range(4):
        lane.begin(pieces.make([jpeg(noise(40, 30))] * 8))
    assert faults.notes("grow") == []
    lane.begin(pieces.make([jpeg(noise(41, 30))]))[0].synchronize()
    assert len(faults.notes("grow")) == 1, "the journal sees it where it happens"


def test_threads_may_use_a_lane_together(make, pieces, faults, device):
    """The feeder, and whoever repairs images of the batch before."""
    faults.slow_down(500)
    lane = make(num_states=2)
    own = [pieces.make(SMALL[: 1 + number % 3]) for number in range(24)]
    failed = []

    def work(mine):
        with device.active():
            for piece in mine:
                event, refused = lane.begin(piece)
                event.synchronize()
                failed.extend(refused)

    threads = [threading.Thread(target=work, args=(own[number::3],)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert all(pieces.state_of(piece) == ["decoded"] * len(piece.size) for piece in own)


def test_settling_waits_for_all_pieces(make, pieces, faults):
    faults.early_write = False
    faults.slow_down(20_000, least=20_000)
    lane = make(num_states=3)
    own = [pieces.make(SMALL) for _ in range(3)]
    for piece in own:
        lane.begin(piece)
    lane.settle()
    assert [pieces.state_of(piece) for piece in own] == [["decoded"] * 6] * 3


@pytest.mark.parametrize("is_urgent", [True, False])
def test_the_processors_lane_gives_way_to_others(make, pieces, faults, device, is_urgent):
    lane = make(Backend.GPU_HYBRID, num_states=2, is_urgent=is_urgent)
    lane.begin(pieces.make(SMALL))
    (stream,) = {call.stream for call in faults.notes("call", "nvjpegDecodeBatched")}
    assert [one.is_urgent for one in device.streams if one.number == stream] == [is_urgent]
