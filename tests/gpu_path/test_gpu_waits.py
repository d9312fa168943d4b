"""Every wait of the GPU path is needed: with one of them taken away, a run goes wrong.

Each scenario makes one queue slow, and looks for wrong pixels, canaries that survived although nothing was skipped,
misuse that the simulator has seen, and work that is still under way where none may be. With all waits there is nothing
of it. The hardware decoder writes when it is called (as on Hopper), or in the stream's order.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.gpu_path.image_samples import gpu_loader, twin, write_images
from tests.gpu_path.wait_scenarios import (
    AUGMENT,
    BATCH_OPS,
    DELAYS,
    ENGINES,
    FOREIGN,
    JPEGS,
    MIXED,
    RAWS,
    SEND,
    Bench,
    a_repair,
    a_request_fails,
    a_state_is_used_again,
    an_epoch,
    canaries_come_late,
    closing_equipment,
    images_stay,
    leaving,
    memory_of_batches_had_an_owner,
    one_of_the_epochs_streams,
    the_feeder_ends,
    windows_grow,
    workers_are_slow,
)
from tests.gpu_path.waits import take_away, wait_points
from tests.simulator.device import SimulatedDevice

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of JPEGs, raw images and those of the CPU, and their images."""
    folder = tmp_path_factory.mktemp("files")
    images = {"jpegs": JPEGS, "raws": RAWS, "foreign": FOREIGN}
    return {name: (write_images(folder / f"{name}.beton", image), image) for name, image in images.items()}


@pytest.fixture(scope="module")
def expected(files, tmp_path_factory):
    """What the CPU makes of the same pixels: a function of the file's name and the pipeline."""
    results = {}

    def expected(name, pipeline, *, by_the_cpu=False):
        key = name, pipeline is MIXED, by_the_cpu
        if key not in results:
            images = files[name][1] if by_the_cpu else twin(files[name][1])
            path = write_images(tmp_path_factory.mktemp("twins") / "twin.beton", images)
            # This torch may know no GPU, and there is nothing to be moved.
            loader = gpu_loader(path, pipeline[:-1], device="cpu", batch_size=4)
            results[key] = [batch[0] for batch in loader]
            loader.close()
        return results[key]

    return expected


@pytest.fixture
def bench(gpus, faults, files, expected, monkeypatch):
    return Bench(gpus, faults, files, expected, monkeypatch)


LEAVING_EARLY = partial(leaving, slow=ENGINES, fails=True)

#: For each wait what shows that it is missing: scenarios, some of them in one way of hardware to write alone.
CASES = {
    "batch memory free": [memory_of_batches_had_an_owner],
    "batch issued": [partial(an_epoch, slow=[SEND])],
    "batch done": [partial(an_epoch, slow=[AUGMENT])],
    "mix table free": [partial(an_epoch, slow=[BATCH_OPS], pipeline=MIXED, batches_ahead=3)],
    "handed over": [partial(an_epoch, slow=[BATCH_OPS], pipeline=MIXED)],
    "canaries written": [canaries_come_late],
    "pixels sent": [
        partial(an_epoch, slow=[SEND], name="raws", raw="bytes"),
        partial(an_epoch, slow=[SEND], name="raws", raw="bytes", os_cache=False),
        partial(an_epoch, slow=[SEND], name="raws", raw="cpu"),
    ],
    "images decoded": [partial(an_epoch, slow=ENGINES)],
    "decoded again": [partial(a_repair, slow=ENGINES)],
    "made again": [partial(a_repair, slow=[BATCH_OPS], every_time=True)],
    "repair finished": [partial(a_repair, slow=[BATCH_OPS], every_time=True)],
}

LANE_CASES = {
    "cpu images made": workers_are_slow,
    "state free": a_state_is_used_again,
    "failed batch stopped": a_request_fails,
    "half decoded": a_request_fails,
    "executor closing": partial(leaving, slow=[AUGMENT]),
    "streams idle": partial(one_of_the_epochs_streams, name=SEND),
    "backends idle": LEAVING_EARLY,
    "states idle": LEAVING_EARLY,
    "resources closing": closing_equipment,
    "feeder ended": the_feeder_ends,
    "windows unused": windows_grow,
    "piece sent": images_stay,
}


EARLY, IN_ORDER = True, False

#: Simulated engines that write in the stream's order look at all images before they begin with the first; those that
#: write early are through with an image when the call returns.
NEVER_SEEN = [("failed batch stopped", IN_ORDER), ("images decoded", EARLY), ("decoded again", EARLY)]


def test_every_wait_has_a_test_here():
    assert wait_points().keys() == {*CASES, *LANE_CASES}


def ids(value):
    if isinstance(value, bool):
        return "early" if value is EARLY else "in order"
    return value.replace(" ", "-") if isinstance(value, str) else None


def is_seen(scenario, bench, delays):
    """Whether a scenario shows anything, in one of these times."""
    for bench.delay in delays:
        bench.gpus.clear()
        bench.findings.clear()
        with bench.monkeypatch.context() as bench.changes:
            scenario(bench)
        bench.faults.slow_down(0)
        bench.faults.forget_notes()
        if bench.seen():
            return True
    return False


@pytest.mark.parametrize(
    ("wait", "scenario", "is_early"),
    [
        (wait, scenario, is_early)
        for wait, case in CASES.items()
        for scenario in case
        for is_early in (EARLY, IN_ORDER)
        if (wait, is_early) not in NEVER_SEEN
    ],
    ids=ids,
)
def test_without_a_wait_batches_go_wrong_and_with_it_they_are_right(bench, faults, wait, scenario, is_early):
    faults.early_write = is_early
    assert not is_seen(scenario, bench, DELAYS[:1]), bench.findings
    faults.stray_work = True
    take_away(bench.monkeypatch, wait)
    assert is_seen(scenario, bench, DELAYS), f"without {wait}"


@pytest.mark.parametrize(
    ("wait", "scenario", "is_early"),
    [
        (wait, scenario, is_early)
        for wait, scenario in LANE_CASES.items()
        for is_early in (EARLY, IN_ORDER)
        if (wait, is_early) not in NEVER_SEEN
    ],
    ids=ids,
)
def test_without_a_wait_work_meets_other_work_and_with_it_none_does(bench, faults, wait, scenario, is_early):
    faults.early_write = is_early

    def on_a_device(bench):
        bench.gpus[0] = device = SimulatedDevice(0)
        with device.active():
            scenario(bench, device)

    assert not is_seen(on_a_device, bench, DELAYS[:1]), bench.findings
    faults.stray_work = True
    take_away(bench.monkeypatch, wait)
    assert is_seen(on_a_device, bench, DELAYS), f"without {wait}"
