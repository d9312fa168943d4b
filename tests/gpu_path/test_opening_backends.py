from __future__ import annotations

import pytest

from gpubeton.errors import DeviceError
from gpubeton.gpu.gpu_options import GpuOptions
from gpubeton.gpu.nvjpeg import Backend, Flags, Library, load
from gpubeton.gpu.nvjpeg_backends import BatchedBackend, open_nvjpeg_backends
from gpubeton.plan.lanes import Lane
from tests.gpu_path.pieces import Pieces
from tests.gpu_path.test_batched_backend import SMALL
from tests.simulator.active_device import device

__all__ = ["device"]

CREATE = "nvjpegCreateEx"
PREALLOCATE = "nvjpegDecodeBatchedPreAllocate"


@pytest.fixture
def opened(device, faults):
    """Opens lanes; closes them at the end, when nothing may be left."""
    made = []

    def opened(largest=(40, 30), **options):
        made.append(open_nvjpeg_backends(device, load(), GpuOptions(**options), largest))
        return made[-1]

    yield opened
    for found in made:
        for lane in found.backends.values():
            lane.settle()
            lane.close()
    assert (faults.live("state"), faults.live("handle")) == (0, 0)


def test_a_gpu_with_engines_has_all_lanes_and_says_what_they_do(opened, faults):
    faults.engines = 7
    found = opened()
    assert list(found.backends) == [Lane.HARDWARE, Lane.SM, Lane.HYBRID]
    assert found.notes[Lane.HARDWARE] == "7 JPEG engines, 28 images a call"
    assert "64 images a call" in found.notes[Lane.SM]
    assert "with the CPU's help" in found.notes[Lane.HYBRID]
    backends = [note.backend for note in faults.notes("call", "nvjpegJpegStateCreate")]
    assert sorted(backends) == sorted([Backend.HARDWARE] * 3 + [Backend.GPU_HYBRID] * 2 + [Backend.DEFAULT] * 2)


@pytest.mark.parametrize(
    ("engines", "cores", "images_per_call", "most"), [(7, 1, 0, 28), (1, 8, 0, 32), (1, 1, 0, 4), (7, 1, 50, 50)]
)
def test_the_engines_get_enough_at_a_time(opened, faults, engines, cores, images_per_call, most):
    faults.engines, faults.cores = engines, cores
    found = opened(images_per_call=images_per_call)
    assert (found.backends[Lane.HARDWARE].most, found.backends[Lane.HARDWARE].least) == (most, 1)
    assert {note.images for note in faults.notes("call", PREALLOCATE)} == {most}


def test_the_processors_get_at_least_as_many_as_they_decode_without_the_cpu(opened):
    lane = opened(images_per_sm_call=90).backends[Lane.SM]
    assert (lane.most, lane.least) == (90, 51)


def test_memory_for_the_largest_image_is_there_from_the_beginning(opened, device, faults):
    lane = opened(largest=(25, 30)).backends[Lane.HARDWARE]
    pieces = Pieces(device)
    lane.begin(pieces.make(SMALL))[0].synchronize()
    assert faults.notes("grow") == []
    assert faults.count(PREALLOCATE) == 3


def test_the_largest_height_and_width_are_not_mixed_up(opened, monkeypatch):
    asked = []
    monkeypatch.setattr(BatchedBackend, "reserve", lambda _lane, width, height: asked.append((width, height)))
    opened(largest=(40, 30))
    assert asked == [(30, 40)]


def test_without_engines_the_other_lanes_do_it_and_the_reason_is_told(opened, faults):
    faults.engines = 0
    found = opened()
    assert list(found.backends) == [Lane.SM, Lane.HYBRID]
    assert "ARCH_MISMATCH" in found.notes[Lane.HARDWARE]
    assert "nvjpegCreateEx" in found.notes[Lane.HARDWARE]


@pytest.mark.parametrize("lanes", [("hardware",), ("sm",), ("hybrid",), ("sm", "hybrid")])
def test_lanes_that_are_not_wanted_are_not_opened(opened, faults, lanes):
    found = opened(lanes=lanes)
    assert [lane.name.lower() for lane in found.backends] == list(lanes)
    assert faults.count(CREATE) == len(lanes)
    assert sorted(lane.name.lower() for lane, note in found.notes.items() if note == "not wanted") == sorted(
        {"hardware", "sm", "hybrid"} - set(lanes)
    )


@pytest.mark.parametrize("lanes", [(), ("hardware",)])
def test_no_lane_at_all_is_an_error_with_the_reason_of_each(opened, faults, lanes):
    faults.engines = 0
    with pytest.raises(DeviceError, match=r"Simulated GPU \(cuda:0\): nvJPEG cannot decode there") as caught:
        opened(lanes=lanes)
    assert str(caught.value).count("not wanted") == 3 - len(lanes)
    assert ("hardware: nvjpegCreateEx" in str(caught.value)) == bool(lanes)


@pytest.mark.parametrize(
    ("smooth", "version", "flag"), [(True, 130001, 1), (True, 120100, 1), (True, 120000, 0), (False, 130001, 0)]
)
def test_chroma_is_interpolated_where_nvjpeg_can(opened, faults, monkeypatch, smooth, version, flag):
    faults.version = version
    seen, create = [], Library.create

    def noting(library, backend, flags):
        seen.append(flags)
        return create(library, backend, flags)

    monkeypatch.setattr(Library, "create", noting)
    opened(smooth_chroma=smooth)
    assert seen == [Flags.UPSAMPLING_WITH_INTERPOLATION if flag else Flags.NONE] * 3


@pytest.mark.parametrize(
    ("function", "missing", "after"),
    [
        (CREATE, Lane.HARDWARE, 0),
        (CREATE, Lane.SM, 1),
        (CREATE, Lane.HYBRID, 2),
        ("nvjpegGetHardwareDecoderInfo", Lane.HARDWARE, 0),
        ("nvjpegJpegStateCreate", Lane.HARDWARE, 0),
        ("nvjpegJpegStateCreate", Lane.HARDWARE, 2),
        ("nvjpegJpegStateCreate", Lane.SM, 4),
        ("nvjpegJpegStateCreate", Lane.HYBRID, 6),
        (PREALLOCATE, Lane.HARDWARE, 0),
        (PREALLOCATE, Lane.HARDWARE, 2),
    ],
)
def test_a_lane_that_fails_half_way_is_missing_and_leaves_nothing_behind(opened, faults, function, missing, after):
    faults.fail_call(function, 5, after=after, times=1)
    found = opened()
    assert set(found.backends) == {Lane.HARDWARE, Lane.SM, Lane.HYBRID} - {missing}
    assert function in found.notes[missing]
    expected = {Lane.HARDWARE: 3, Lane.SM: 2, Lane.HYBRID: 2}
    assert faults.live("handle") == 2
    assert faults.live("state") == sum(expected.values()) - expected[missing]
