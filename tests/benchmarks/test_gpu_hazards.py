"""The questions that are asked of a GPU, asked of one whose answers are known."""

from __future__ import annotations

import pytest
import simplejpeg

from benchmarks.gpu.encoded import load_encoded
from benchmarks.gpu.hazards import graphs, limits, order, pixels, presence, rates, sentinels
from benchmarks.gpu.hazards.ways import WAYS, Batched, Kind
from benchmarks.gpu.nvjpeg_steps import Backend
from benchmarks.gpu.photos import make_photos
from benchmarks.gpu.simulation import VARIABLE
from benchmarks.gpu.target import open_target
from gpubeton.gpu import feeder
from gpubeton.gpu.gpu_options import GpuOptions
from gpubeton.gpu.nvjpeg_backends import open_nvjpeg_backends
from gpubeton.plan.lanes import Lane

SOFTWARE = {"batch, processors", "one by one"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return make_photos(tmp_path_factory.mktemp("photos"), 12, 90)


@pytest.fixture
def target(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    with open_target() as target:
        target.faults.take_misuses()
        target.faults.decoder = simplejpeg.decode_jpeg
        yield target
        assert target.faults.misuses() == []


@pytest.fixture
def encoded(target, photos):
    return load_encoded(target.device, photos.beton)


def decoding_in(stream):
    """A way that decodes in another stream than the one that was asked for, which is wrong."""

    class Wrong(Batched):
        def decode(self, piece, targets, _):
            super().decode(piece, targets, stream)
            self.stack.callback(stream.synchronize)  # before the memory is freed: the simulator would end the process

    def make(target, stack):
        way = stack.enter_context(Wrong(target, Backend.GPU_HYBRID))
        way.stack = stack
        return way

    return {"wrong": Kind(make, False, 4)}


def test_engines_are_counted_and_missed(target):
    found = presence.are_the_engines_there(target)
    assert (found.holds, found.verdict) == (True, "7 engines of 1 cores")
    target.faults.engines = 0
    found = presence.are_the_engines_there(target)
    assert found.holds is False
    assert found.figures["HARDWARE"].startswith("nvjpegCreateEx: status 7")
    assert found.figures["GPU_HYBRID"] == {"engines": 0, "cores_of_each": 0}


def test_threads_call_the_engines_at_once_and_their_rates_are_added(target, encoded):
    found = limits.do_threads_help(target, encoded, seconds=0.05, images=(1, 4), threads=(1, 2))
    assert [*found.figures] == [f"{images} images, {threads} threads" for images in (1, 4) for threads in (1, 2)]
    assert all(
        own["images_per_second"] > 0 and own["call_microseconds_per_image"] > 0 for own in found.figures.values()
    )


def test_memory_that_is_allocated_before_is_counted_or_its_error_is(target):
    sizes = [f"{width} x {height}" for width, height in limits.SIZES]
    assert [*limits.what_does_allocating_before_take(target).figures] == sizes


def test_early_writing_is_seen_where_it_happens_and_host_waits_prevent_it(target, encoded):
    found = order.does_it_write_early(target, encoded, trials=2, milliseconds=200)
    for name, measured in found.figures.items():
        early = 0 if name in SOFTWARE else 2
        assert measured["the stream waits"] == {"trials": 2, "valid": 2, "early": early}
        assert measured["the host waits"] == {"trials": 2, "valid": 2, "early": 0}
    assert set(found.figures) == set(WAYS)
    assert found.holds
    target.faults.early_write = False
    found = order.does_it_write_early(target, encoded, trials=2, milliseconds=200)
    assert "turn: nothing" in found.verdict


def test_a_write_that_comes_after_all_is_a_fault(target, encoded):
    other = target.device.make_stream()
    target.faults.slow_down(150_000, least=150_000, stream=other)
    ways = decoding_in(other)
    found = order.does_it_write_early(target, encoded, trials=3, milliseconds=300, ways=ways)
    assert found.holds is False
    assert "EVEN IF THE HOST WAITS: wrong" in found.verdict
    found = order.is_it_done_when_the_stream_is(target, encoded, trials=2, ways=ways)
    assert found.holds is False
    assert found.figures["wrong"]["a stream waits"]["whole"] < 8


def test_what_is_behind_the_call_sees_all_pixels(target, encoded):
    target.faults.slow_down(2000)
    found = order.is_it_done_when_the_stream_is(target, encoded, trials=2)
    assert found.holds
    for name, kind in WAYS.items():
        for own in found.figures[name].values():
            assert own == {"trials": 2, "images": 2 * kind.images, "whole": 2 * kind.images}


def test_a_backend_that_is_missing_is_no_answer(target, encoded):
    target.faults.engines = 0
    found = order.is_it_done_when_the_stream_is(target, encoded, trials=1)
    assert "status 7" in found.figures["batch, engines"]["error"]
    assert found.holds
    target.faults.fail_call("nvjpegCreateEx", 6)
    assert order.is_it_done_when_the_stream_is(target, encoded, trials=1).holds is False


def test_images_that_were_not_written_are_counted(target, photos):
    target.faults.skip_image(every=5, batched=True, backend=Backend.HARDWARE, times=6)
    found = sentinels.is_every_image_written(photos.beton, images=60, batch_size=6)
    assert (found.figures["images"], found.figures["repaired"]) == (60, 6)
    assert found.holds, "the CPU's pixels are the simulated engines'"


def test_pixels_that_change_unnoticed_are_a_fault(target, photos, monkeypatch):
    # Without canaries a skipped image shows the pixels that were there before.
    monkeypatch.setattr(feeder, "write_canaries", lambda *_: None)
    target.faults.skip_image(every=7, batched=True, backend=Backend.HARDWARE)
    found = sentinels.is_every_image_written(photos.beton, images=60, batch_size=6)
    assert found.figures["repaired"] == 0
    assert found.figures["batches_not_the_same"] > 0
    assert found.holds is False


def test_at_least_one_batch_is_seen_twice(target, photos):
    found = sentinels.is_every_image_written(photos.beton, seconds=0, batch_size=6)
    assert found.figures["batches"] == 3
    assert found.holds


@pytest.mark.parametrize("name", ["beton", "indexed"])
def test_a_graph_is_captured_at_each_batch_of_an_epoch(target, photos, name):
    captured = []
    found = graphs.can_graphs_be_captured(
        getattr(photos, name), batch_size=4, epochs=2, capture=lambda: captured.append(1) or len(captured) != 5
    )
    assert len(captured) == found.figures["captures"] == found.figures["batches"] == 2 * 3
    assert (found.figures["wrong_replays"], found.holds) == (1, False)
    found = graphs.can_graphs_be_captured(getattr(photos, name), batch_size=4, capture=lambda: True)
    assert found.holds


def test_a_capture_that_fails_ends_its_epoch_and_not_the_check(target, photos):
    def fail():
        raise RuntimeError("operation not permitted when stream is capturing")

    found = graphs.can_graphs_be_captured(photos.beton, batch_size=4, epochs=2, capture=fail)
    assert (len(found.figures["errors"]), found.figures["batches"], found.holds) == (2, 0, False)
    assert "not permitted" in found.figures["errors"][0]


def test_batches_that_a_capture_spoils_are_counted(target, photos):
    def spoil():
        target.faults.decoder = lambda data: simplejpeg.decode_jpeg(data, colorspace="BGR")
        return True

    found = graphs.can_graphs_be_captured(photos.beton, batch_size=4, epochs=2, capture=spoil)
    assert found.figures["batches_not_the_same"] >= 3
    assert found.holds is False


def test_every_backend_is_compared_with_the_cpu(target, encoded):
    contents = [encoded.content(number) for number in range(2)]
    found = pixels.do_pixels_agree(target, contents, images=2)
    assert found.holds
    assert "interpolated by: engines, processors, one by one" in found.verdict
    assert found.figures["420, engines, interpolated"]["interpolated"]["most"] == 0
    assert found.figures["420, engines, interpolated"]["repeated"]["most"] > 0


def test_swapped_colors_are_far_from_the_cpu(target, encoded):
    target.faults.decoder = lambda data: simplejpeg.decode_jpeg(data, colorspace="BGR")
    found = pixels.do_pixels_agree(target, [encoded.content(0)], images=1)
    assert found.holds is False
    assert "420, engines, interpolated" in found.verdict


def test_rates_are_measured_for_every_way_to_ask(target, encoded, photos):
    found = rates.how_many_at_once(target, encoded, seconds=0.01, images=(1, 8))
    assert set(found.figures) == {f"{images} images, {states} calls" for images in (7, 56) for states in (1, 2, 3, 4)}
    for own in found.figures.values():
        assert own["images_per_second"] > 0
        assert 0 < own["call_seconds"] <= own["wall_seconds"]
    found = rates.is_step_by_step_faster(target, encoded, seconds=0.01)
    assert min(own["images_per_second"] for own in found.figures.values()) > 0
    found = rates.do_processors_help(target, encoded, seconds=0.05, images=(64,))
    assert found.figures["matrix products"]["beside the engines"]["products_per_second"] > 0
    found = rates.does_pinned_memory_help(target, encoded, photos.beton, seconds=0.01)
    assert len(found.figures) == 4
    found = rates.do_scale_and_region_help(target, encoded, seconds=0.01)
    assert all(own["images_per_second"] > 0 for own in found.figures.values())


def test_the_default_that_the_rates_name_is_that_of_the_program(target, encoded):
    with target.device.active():
        opened = open_nvjpeg_backends(target.device, target.library, GpuOptions(), (64, 64))
    backend = opened.backends[Lane.HARDWARE]
    backend.close()
    found = rates.how_many_at_once(target, encoded, seconds=0.01, images=(8,))
    usual = f"{backend.most} images, {backend.num_states} calls"
    assert f"the default ({usual}) reaches {found.figures[usual]['images_per_second']:,.0f}," in found.verdict


def test_without_engines_the_rates_of_the_rest_are_measured(target, encoded):
    target.faults.engines = 0
    found = rates.do_processors_help(target, encoded, seconds=0.05, images=(64,))
    assert "status 7" in found.figures["matrix products"]["beside the engines"]["error"]
    assert found.figures["64 images, 2 calls"]["images_per_second"] > 0
    assert "error" in rates.is_step_by_step_faster(target, encoded, seconds=0.01).figures["step by step"]
