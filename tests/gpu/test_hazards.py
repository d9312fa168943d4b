"""What the design of the GPU executor takes for granted, on the GPU at hand; `benchmarks.gpu.hazards` measures more."""

from __future__ import annotations

import pytest

from benchmarks.gpu.encoded import load_encoded
from benchmarks.gpu.hazards import graphs, order, presence, sentinels
from benchmarks.gpu.target import Target


@pytest.fixture
def target(gpu, nvjpeg):
    return Target(gpu.device, nvjpeg, gpu.faults)


@pytest.fixture
def encoded(target, photos):
    return load_encoded(target.device, photos.beton)


def test_the_jpeg_engines_can_be_reached(target):
    """Containers without the driver's `video` capability have a GPU with engines, and no way to them."""
    found = presence.are_the_engines_there(target)
    assert found.holds, found.figures


def test_nothing_is_written_before_its_turn_if_the_host_waits(target, encoded):
    found = order.does_it_write_early(target, encoded, trials=2 if target.is_simulated else 20)
    assert found.holds, found.verdict
    for name, measured in found.figures.items():
        assert "error" not in measured, (name, measured)
        assert measured["the host waits"]["valid"] == measured["the host waits"]["trials"], name
        # Otherwise nothing was asked.
        assert measured["the stream waits"]["valid"] == measured["the stream waits"]["trials"], name


def test_pixels_are_there_when_the_event_behind_the_call_is(target, encoded):
    found = order.is_it_done_when_the_stream_is(target, encoded, trials=2 if target.is_simulated else 30)
    assert found.holds, found.verdict
    assert all("error" not in measured for measured in found.figures.values()), found.figures


def test_pixels_never_change_unnoticed(gpu, photos):
    seconds = 1 if gpu.is_simulated else 8
    found = sentinels.is_every_image_written(photos.beton, seconds=seconds, batch_size=12)
    assert found.holds, found.verdict


@pytest.mark.parametrize("name", ["beton", "indexed"])
def test_graphs_can_be_captured_while_a_loader_works(gpu, photos, name):
    if gpu.is_simulated:
        pytest.skip("graphs are captured on a real GPU only")
    found = graphs.can_graphs_be_captured(getattr(photos, name), batch_size=48)
    assert found.holds, (found.verdict, found.figures["errors"])
