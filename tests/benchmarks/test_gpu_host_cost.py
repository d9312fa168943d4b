from __future__ import annotations

import json
import threading
import time

from PIL import Image

from benchmarks.gpu import host_cost, photos
from benchmarks.gpu.simulation import simulated_gpu
from benchmarks.harness.photos import list_photos
from gpubeton._gpu import cuda
from gpubeton.format.dataset import open_dataset
from gpubeton.transforms import ToDevice


def test_the_hosts_cost_is_measured_for_every_case_and_size_of_file(tmp_path):
    host_cost.main(images=24, batches=3, rounds=2, batch_size=4, data=tmp_path, results=tmp_path / "results")
    (path,) = (tmp_path / "results").iterdir()
    result = json.loads(path.read_text())
    assert result["kind"] == "host_cost"
    assert result["simulated"] is True
    small, large = result["corpora"]
    assert small["mean_bytes"] < large["mean_bytes"]
    for corpus in (small, large):
        assert set(corpus["cases"]) == {case.name for case in host_cost.CASES}
        for rounds in corpus["cases"].values():
            assert [spent["images"] for spent in rounds] == [12, 12]
            for spent in rounds:
                # Some kernels count a thread's time in ticks of 10 ms, so a short round may read as nothing.
                assert spent["by_thread"].keys() >= {"gpubeton-feeder", "others"}
                assert min(spent["by_thread"].values()) >= 0


def test_the_time_of_threads_is_summed_under_their_name_without_the_number():
    busy, done = threading.Event(), threading.Event()

    def work():
        while time.thread_time() == 0:
            pass
        busy.set()
        done.wait()

    worker = threading.Thread(target=work, name="gpubeton-test-7")
    worker.start()
    busy.wait()
    assert host_cost.time_by_thread()["gpubeton-test"] > 0
    done.set()
    worker.join()


def test_nothing_is_left_of_the_simulated_gpu(monkeypatch):
    before = cuda.open_device, ToDevice.apply
    with simulated_gpu() as faults:
        assert cuda.open_device("cuda:1").number == 1
        assert faults.pixels
    assert (cuda.open_device, ToDevice.apply) == before


def test_photos_are_stored_as_they_are_and_made_once(tmp_path):
    result = photos.make_photos(tmp_path, 12, 90)
    files = [path for path, _ in list_photos(tmp_path / "photos-12-q90")]
    times = [path.stat().st_mtime_ns for path in files]
    assert open_dataset(result.beton).num_samples == result.facts["images"] == 12
    assert result.facts["source"] == "photographs"
    assert result.facts["mean_bytes"] == round(sum(path.stat().st_size for path in files) / 12)
    assert photos.make_photos(tmp_path, 12, 90) == result
    assert [path.stat().st_mtime_ns for path in files] == times


def test_without_photographs_textures_are_computed(tmp_path, monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("no photographs")

    monkeypatch.setattr(photos, "write_photos", missing)
    result = photos.make_photos(tmp_path, 6, 95)
    assert result.facts["source"] == "computed textures (no photographs)"
    # They have to cost a decoder about what photographs do.
    assert 0.2 < result.facts["mean_bytes"] / result.facts["mean_pixels"] < 1
    for path, _ in list_photos(tmp_path / "textures-6-q95"):
        with Image.open(path) as image:
            assert image.layer[0][1:3] == (2, 2)  # 4:2:0
