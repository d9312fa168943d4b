from __future__ import annotations

import json
import sys

import pytest

from gpubeton.cli import loops
from gpubeton.cli.advice import advise
from gpubeton.cli.environment import block_starts, measure_disk
from gpubeton.cli.loops import (
    examine_command,
    examine_file,
    examine_loader,
    make_loader,
    measure_rates,
    run_loader,
)
from gpubeton.errors import OptionError
from gpubeton.loader import Loader
from gpubeton.loader.gpus import _driver
from tests.golden_files import save
from tests.integrations.conftest import LABELS
from tests.small_files import write_photos

SHORT = {"size": 16, "batch_size": 4, "num_workers": 1}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("photos") / "photos.beton", 8)


def labels(path, **changes):
    only = {**LABELS, **dict.fromkeys(["image", "weight", "note", "info", "vector"])}
    return Loader(path, 4, pipelines=only, **changes)


def test_a_loop_over_a_file_gives_a_reading_of_everything(photos):
    reading = examine_file(photos, seconds=0.1, **SHORT)
    assert reading.stats.images > 0
    assert 0 < reading.places[0].size <= photos.stat().st_size
    assert reading.places[0].resident_share == 1.0  # it was just written; its holes come from no disk
    assert reading.other_cores is None or reading.other_cores >= 0
    assert (reading.facts.images[0].height, reading.facts.samples) == (16, 8)  # each once, though the loop repeats them
    assert reading.machine.cores >= 1
    assert advise(reading)[0].weight == "bottleneck"


def test_the_loop_sleeps_as_long_as_a_step_after_each_batch_but_the_last(photos, monkeypatch):
    slept = []
    monkeypatch.setattr(loops.time, "sleep", slept.append)
    reading = examine_loader(labels(photos), labels(photos), seconds=0.05, step_seconds=0.02)
    # The thread that makes batches sleeps for 0 seconds: it lets go of the GIL.
    assert [seconds for seconds in slept if seconds] == [0.02] * (reading.stats.batches - 1)


def test_a_command_is_run_and_all_of_its_loaders_are_examined(photos, capfd):
    code = (
        "from gpubeton.loader import Loader\n"
        "print('trains')\n"
        "only = dict.fromkeys(['image', 'weight', 'note', 'info', 'vector'])\n"
        f"train, val = (Loader({str(photos)!r}, 4, pipelines=only) for _ in range(2))\n"
        "for _ in range(3): list(train)\n"
        "list(val)\n"
        "raise SystemExit(7)\n"
    )
    returned, readings = examine_command([sys.executable, "-c", code])
    assert returned == 7
    assert sorted(reading.stats.images for reading in readings) == [8, 24]
    assert readings[0].facts.files == (str(photos),)
    assert capfd.readouterr().out == ""  # its messages are not the result


INTERRUPTS = "import os, signal\nos.kill(os.getppid(), signal.SIGINT)\nraise SystemExit(130)\n"


@pytest.mark.usefixtures("ctrl_c")
def test_a_command_interrupted_by_ctrl_c_is_examined_up_to_there(photos):
    code = (
        "from gpubeton.loader import Loader\n"
        "only = dict.fromkeys(['image', 'weight', 'note', 'info', 'vector'])\n"
        f"loader = Loader({str(photos)!r}, 4, pipelines=only)\n"
        "for _ in range(3): list(loader)\n"
        "loader.close()\n"
    )
    returned, (reading,) = examine_command([sys.executable, "-c", code + INTERRUPTS])
    assert (returned, reading.stats.images) == (130, 24)
    with pytest.raises(KeyboardInterrupt):
        examine_command([sys.executable, "-c", INTERRUPTS])


@pytest.mark.usefixtures("ctrl_c")
def test_a_command_that_does_not_hear_ctrl_c_is_ended():
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + INTERRUPTS.partition("raise")[0]
    with pytest.raises(KeyboardInterrupt):
        examine_command([sys.executable, "-c", deaf + "import time\ntime.sleep(200)"], seconds_to_end=0.2)


def test_a_loader_of_the_users_own_is_made_by_its_name(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_training.py").write_text(
        "from gpubeton.integrations import DataLoaderAdapter\n"
        "from gpubeton.loader import Loader\n"
        "only = dict.fromkeys(['image', 'weight', 'note', 'info', 'vector'])\n"
        f"def own(): return Loader({str(photos)!r}, 4, pipelines=only)\n"
        "def adapted(): return DataLoaderAdapter(own())\n"
        "def wrong(): return 3\n"
    )
    assert make_loader("my_training:own").batch_size == 4
    assert isinstance(make_loader("my_training:adapted"), Loader)
    for name, message in [
        ("my_training:wrong", "returned int"),
        ("my_training:none", "none"),
        ("no_such:x", "no_such"),
    ]:
        with pytest.raises(OptionError, match=message):
            make_loader(name)


def test_every_part_is_measured(photos):
    rates = {rate.name: rate for rate in measure_rates(photos, seconds=0.05, use_gpu=False, **SHORT)}
    assert list(rates) == ["read, disk", "decode and resize", "augment", "hand over", "end to end, CPU"]
    for name in ("decode and resize", "hand over", "end to end, CPU"):
        assert rates[name].images_per_second > 0, name
    assert rates["end to end, CPU"].images_per_cpu_second > 0
    assert json.dumps([rate.to_dict() for rate in rates.values()], allow_nan=False)


def test_a_disk_gives_as_many_images_as_it_gives_their_bytes(photos, monkeypatch):
    monkeypatch.setattr(loops, "measure_disk", lambda *_, **__: 1e9)
    rate = next(measure_rates(photos, seconds=0.05, **SHORT))
    assert rate.images_per_second > 2 * rate.bytes_per_second / (photos.stat().st_size / 8)


def test_a_file_without_images_is_measured_too(tmp_path):
    path = save("ndarrays", tmp_path)
    rates = {rate.name: rate for rate in measure_rates(path, seconds=0.05, **SHORT)}
    assert "decode and resize" not in rates
    assert rates["end to end, CPU"].images_per_second > 0
    with pytest.raises(OptionError, match="image"):
        next(measure_rates(path, field="image"))


def test_a_driver_is_read_and_that_of_wsl2_is_seen(tmp_path):
    version, wsl = tmp_path / "version", (tmp_path / "dxg", tmp_path / "libcuda.so.1")
    assert _driver(version, wsl) == ""
    wsl[1].touch()
    assert _driver(version, wsl) == ""
    wsl[0].touch()
    assert "WSL2" in _driver(version, wsl)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:13:13 UTC 2025\n")
    assert _driver(version, wsl) == "580.65.06"


def test_empty_blocks_of_a_file_are_not_used_to_measure_the_disk(tmp_path):
    path, block = tmp_path / "sparse", 1 << 20
    with open(path, "wb") as file:
        for start in (0, 6):
            file.seek(start * block)
            file.write(b"x" * 2 * block)
        file.truncate(64 * block)
    if path.stat().st_blocks * 512 > 32 * block:
        pytest.skip("the file system allocates empty blocks")
    assert sorted(block_starts(path)) == [0, block, 6 * block, 7 * block]
    with open(tmp_path / "empty", "wb") as file:
        file.truncate(2 * block)
    assert block_starts(tmp_path / "empty") == []
    assert measure_disk(tmp_path / "empty", seconds=0.01) is None


def test_a_run_takes_several_short_epochs_and_does_not_count_the_first_batch(photos):
    loader = labels(photos)
    run = run_loader(loader, seconds=0.05)
    assert run.images_per_second <= (run.stats.images - 4) / 0.05
    assert loader.stats().epoch >= 1
    assert run_loader(labels(photos, indices=[]), seconds=1).images_per_second == 0
