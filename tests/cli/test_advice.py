"""Advice from made-up measurements."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubeton._machine import Machine
from gpubeton.cli.advice import Measurements, advise, stage_limits
from gpubeton.cli.environment import FilePlace
from gpubeton.loader import LoaderStats
from gpubeton.loader.describe import ImageSummary, LoaderInfo
from gpubeton.loader.gpus import GpuState

GIB = 1 << 30
IMAGE = ImageSummary("image", 400, 500, 50_000, 1.0, 224, 224)
FACTS = LoaderInfo(files=("a.beton",), samples=100_000, batch_size=100, num_workers=4, images=(IMAGE,))
# 1000 images in 10 s, of which the loop waits for 6: the workers are busy all the time.
STATS = LoaderStats(
    epoch=0,
    batches=10,
    images=1000,
    seconds=10.0,
    waiting_seconds=6.0,
    first_wait_seconds=0.5,
    plan_seconds=0.1,
    submit_seconds=0.1,
    decode_seconds=8.0,
    tail_seconds=0.5,
    num_workers=4,
    worker_seconds=38.0,
    worker_cpu_seconds=37.0,
    stored_bytes=50_000_000,
)
MEASURED = Measurements(STATS, FACTS, Machine(cores=4, memory_bytes=8 * GIB), (FilePlace("a.beton", 5 * GIB, "ext4"),))


def changed(stats=None, facts=None, machine=None, place=None, **others):
    return replace(
        MEASURED,
        stats=replace(STATS, **stats or {}),
        facts=replace(FACTS, **facts or {}),
        machine=replace(MEASURED.machine, **machine or {}),
        places=(replace(MEASURED.places[0], **place or {}),),
        **others,
    )


def named(measured):
    return {finding.name: finding for finding in advise(measured)}


def test_a_loop_that_does_not_wait_has_its_step_as_bottleneck_and_one_without_a_batch_no_advice():
    first, *rest = advise(changed({"waiting_seconds": 0.2}))
    assert (first.name, first.weight, first.gain) == ("step", "bottleneck", 1.0)
    assert not [finding for finding in rest if finding.weight == "advice"]
    assert [finding.name for finding in advise(changed({"batches": 0}))] == ["nothing"]


def test_busy_workers_are_the_bottleneck_and_more_of_them_the_advice():
    findings = named(changed(machine={"cores": 8}))
    assert findings["workers"].weight == "bottleneck"
    assert findings["workers"].gain == 2.5  # 10 s, of which 4 s are the step
    assert findings["more_workers"].change == "num_workers=8."
    # Twice the workers do 2 x 1000 images in 9.5 s.
    assert findings["more_workers"].gain == pytest.approx(2 * 1000 / 9.5 / 100)


def test_no_more_workers_are_advised_than_the_container_may_use():
    findings = named(changed(machine={"cores": 64, "core_limit": 4.0}))
    assert not findings.keys() & {"more_workers", "fewer_workers"}
    findings = named(changed(machine={"cores": 64, "core_limit": 2.5}, facts={"num_workers": 64}))
    assert findings["fewer_workers"].change == "num_workers=2."
    assert "64 workers" in findings["fewer_workers"].text


def test_a_gpu_that_is_not_used_and_missing_entry_points_are_named():
    assert named(changed(gpu=GpuState("H100", is_present=True)))["gpu_route"].gain == 2.5
    assert "gpu_route" not in named(MEASURED)
    result = named(changed(facts={"device": "T4 (cuda:0)", "lacks_entries": True}))["no_entry_points"]
    assert "T4 (cuda:0)" in result.text
    assert "gpubeton index FILE" in result.change
    assert "no_entry_points" not in named(changed(facts={"device": "T4 (cuda:0)"}))


def test_images_much_larger_than_the_crops_are_named_with_a_sufficient_size():
    large = replace(IMAGE, stored_height=1344.0, stored_width=1800.0)
    findings = named(changed(facts={"images": (large,)}))
    assert "max_resolution=448" in findings["smaller_images"].change
    assert findings["smaller_images"].gain == 2.5  # nine times as fast to decode, but then the step is the limit
    assert "smaller_images" not in named(MEASURED)


def test_raw_pixels_are_advised_where_they_fit_into_memory():
    assert "raw" not in named(MEASURED)  # 100,000 images: 50 GiB
    findings = named(changed(facts={"samples": 5_000}))
    assert findings["raw"].gain == 2.5
    assert "raw" not in named(changed(facts={"samples": 5_000, "images": (replace(IMAGE, jpeg_share=0.0),)}))


def test_slow_reading_is_distinguished_from_slow_decoding():
    slow = {"read_seconds": 8.0, "decode_seconds": 0.5, "worker_seconds": 5.0, "worker_cpu_seconds": 5.0}
    findings = named(changed(slow, {"os_cache": False}, place={"is_network": True, "file_system": "nfs4"}))
    assert findings["reading"].weight == "bottleneck"
    assert "os_cache=True" in findings["memory"].change
    assert "/dev/shm" in findings["local"].change
    findings = named(changed(slow, {"os_cache": False}, {"memory_bytes": GIB}))
    assert "memory" not in findings


def test_stalled_workers_wait_for_pages_or_for_cores():
    stalled = {"worker_cpu_seconds": 10.0}
    pages = named(changed(stalled, place={"resident_share": 0.2}, machine={"memory_bytes": GIB}))
    assert pages["pages"].weight == "bottleneck"
    assert "os_cache=False" in pages["read_ahead"].change
    again = {**stalled, "stored_bytes": 100 * GIB}  # twenty times over the file, which fits into memory
    assert "cores" in named(changed(again, place={"resident_share": 0.2}))
    assert "pages" in named(changed(again, place={"resident_share": 0.2}, machine={"memory_bytes": GIB}))
    cores = named(changed(stalled, {"num_workers": 16}, place={"resident_share": 1.0}))
    assert cores["cores"].weight == "bottleneck"
    assert cores["fewer_workers"].change == "num_workers=4."


def test_a_busy_machine_is_blamed_and_not_the_disk():
    # The file was cold when it began, and the disk could have read all of it in 0.1 s.
    place = {"size": 100_000_000, "resident_share": 0.0}
    stalled = {"worker_cpu_seconds": 10.0, "stored_bytes": 300_000_000}
    findings = named(changed(stalled, place=place, disk_bytes_per_second=1e9, other_cores=2.0))
    assert findings["cores"].weight == "bottleneck"
    assert findings["other_programs"].weight == "advice"
    assert "2.0 of 4 cores" in findings["other_programs"].text
    # With all cores twice 1000 images in 9.5 s; the loop does at most 2.5 times as many as now.
    assert findings["other_programs"].gain == pytest.approx(2 * 1000 / 9.5 / 100)
    all_cores = changed(stalled, place=place, disk_bytes_per_second=1e9, other_cores=4.0)
    assert named(all_cores)["other_programs"].gain == 2.5
    assert advise(all_cores)[1].name == "other_programs"
    assert "memory" not in findings
    slow = named(changed(stalled, place=place, disk_bytes_per_second=2e7, other_cores=2.0))
    assert slow["pages"].weight == "bottleneck"
    assert (slow["other_programs"].weight, slow["other_programs"].gain) == ("notice", None)
    assert "pages" in named(changed(stalled, place={**place, "is_network": True}, disk_bytes_per_second=1e9))


def test_a_thread_that_gets_no_core_is_not_helped_by_more_batches_ahead():
    idle = {"worker_seconds": 12.0, "worker_cpu_seconds": 12.0}
    assert named(changed(idle, other_cores=0.1))["starved"].weight == "bottleneck"
    findings = named(changed(idle, other_cores=3.0))
    assert findings["cores"].weight == "bottleneck"
    assert not findings.keys() & {"ahead", "starved"}


def test_a_setting_in_use_is_not_advised_and_no_gain_promised_where_a_loop_has_no_step():
    cold = {"worker_cpu_seconds": 10.0}
    change = named(changed(cold, place={"resident_share": 0.2}))["memory"].change
    assert "os_cache" not in change
    assert "Read it once" in change
    never = named(changed({**cold, "waiting_seconds": 9.9}, place={"resident_share": 0.2}))
    assert (never["pages"].gain, never["memory"].gain) == (None, None)


def test_operations_that_are_not_fused_are_named_if_they_are_the_limit():
    slow = {"tail_seconds": 8.5, "decode_seconds": 0.2, "worker_seconds": 10.0, "worker_cpu_seconds": 10.0}
    findings = named(changed(slow, {"unfused": ("image: RandAugment()",)}))
    assert findings["thread"].weight == "bottleneck"
    assert "RandAugment" in findings["fuse"].text
    assert findings["fuse"].gain == 2.5
    busy = named(changed(slow, {"unfused": ("image: RandAugment()",)}, other_cores=3.0))
    assert (busy["cores"].weight, busy["other_programs"].weight) == ("bottleneck", "advice")
    assert busy["fuse"].gain == 2.5


def test_workers_that_are_not_busy_need_more_batches_ahead():
    findings = named(changed({"worker_seconds": 12.0, "worker_cpu_seconds": 12.0}))
    assert findings["starved"].weight == "bottleneck"
    assert findings["ahead"].change == "batches_ahead=6."


def test_short_epochs_wait_for_their_first_batch():
    (finding,) = advise(changed({"waiting_seconds": 2.0, "first_wait_seconds": 1.9}))
    assert (finding.name, finding.weight) == ("first_batch", "bottleneck")
    assert "1.9 s" in finding.text


def test_findings_outside_the_loop_are_notes():
    gpu = GpuState("T4", routes={"hardware": "missing: no engines"})
    findings = named(
        changed(
            {"waiting_seconds": 0.0},
            machine={"memory_bytes": GIB},
            place={"resident_share": 0.1},
            facts={"device": "T4 (cuda:0)"},
            gpu=gpu,
        )
    )
    assert {"larger_than_memory", "route"} <= set(findings)
    assert findings["route"].text == "T4: no JPEG engines: no engines."
    assert "self_test" not in findings
    tested = GpuState("H100", routes={"hardware": "missing: closed"}, self_test={"cpu": "", "hardware": "7 differ"})
    assert named(changed(gpu=tested))["self_test"].text == "H100 fails the self-test: hardware: 7 differ."
    assert "route" not in named(changed(gpu=tested))
    passed = GpuState("H100", self_test={"cpu": "", "entries": ""})
    assert "self_test" not in named(changed(gpu=passed))
    unusable = GpuState(reason="no CuPy", is_present=True)
    assert "no CuPy" in named(changed(gpu=unusable))["gpu_unusable"].text


seconds = st.floats(0, 10)


@given(seconds, seconds, seconds, seconds, seconds, st.floats(0, 40), st.integers(1, 64), st.booleans())
def test_all_readings_have_one_bottleneck_and_no_gain_beyond_never_waiting(
    waiting, read, decode, tail, first, worker, cores, os_cache
):
    stats = {
        "waiting_seconds": waiting,
        "read_seconds": read,
        "decode_seconds": decode,
        "tail_seconds": tail,
        "first_wait_seconds": min(first, waiting),
        "worker_seconds": worker,
        "worker_cpu_seconds": worker / 2,
    }
    measured = changed(stats, {"os_cache": os_cache}, {"cores": cores}, {"resident_share": 0.5})
    findings = advise(measured)
    assert [finding.weight for finding in findings].count("bottleneck") == 1
    assert findings[0].weight == "bottleneck"
    most = 10 / max(10 - waiting, 0.1)
    assert all(1 <= finding.gain <= most * (1 + 1e-9) for finding in findings if finding.gain is not None)


def test_limits_are_the_rates_of_each_stage_alone():
    limits = stage_limits(STATS)
    assert limits["step"] == pytest.approx(250)
    assert limits["workers"] == pytest.approx(1000 / 9.5)
    assert limits["thread"] == pytest.approx(1000 / 0.7)
    assert min(limits.values()) == limits["workers"]
