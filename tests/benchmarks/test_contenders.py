from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import compare
from benchmarks.compare import Entry
from benchmarks.contenders.gpubeton_loader import make_loader
from benchmarks.contenders.process import ContenderError, ContenderProcess
from benchmarks.contenders.service import count_images
from benchmarks.contenders.work import MEAN, STD, Work
from benchmarks.corpus import IMAGENET_QUALITY, make_corpus, tars_of
from benchmarks.harness import pillow_loader
from benchmarks.harness.photos import list_photos
from benchmarks.harness.pillow_loader import PillowDataset
from benchmarks.harness.processes import memory_of, watched_memory
from gpubeton.format.dataset import open_dataset


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("data"), 32, Console(quiet=True))


def test_the_files_of_the_corpus_hold_the_images_of_the_folder(corpus):
    for path in (corpus.jpg, corpus.raw):
        assert open_dataset(path).num_samples == 32
    assert corpus.facts["jpg"]["images"] == corpus.facts["raw"]["images"] == 32
    raw = open_dataset(corpus.raw).column("image")
    assert max(raw["width"].max(), raw["height"].max()) == 256
    names = []
    for path in sorted(Path(tars_of(corpus)).iterdir()):
        with tarfile.open(path) as tar:
            names += tar.getnames()
    assert [Path(name).suffix for name in names] == [".jpg", ".cls"] * 32


def test_all_contenders_normalize_by_the_same_figures():
    assert pytest.approx(MEAN) == [255 * level for level in pillow_loader.MEAN]
    assert pytest.approx(STD) == [255 * level for level in pillow_loader.STD]


def test_a_race_runs_by_turns_and_names_the_contenders_left_out(corpus):
    missing = Entry("Missing", "work", "a_missing_package", "GPUBETON_MISSING_PYTHON")
    ours = next(entry for entry in compare.ENTRIES if entry.module == "gpubeton_loader")
    work = Work(corpus.jpg, corpus.folder, 32, 2, 1, batch_size=16)
    result = compare.run_race(Console(quiet=True), "jpg", work, corpus, 2, (ours, missing), cold=False)
    (name, contender), *rest = result["contenders"].items()
    assert rest == []
    assert name == "gpubeton, area"
    assert [lap["images"] for lap in contender["laps"]] == [64, 64]
    assert all(0 < lap["first_batch_seconds"] <= lap["wall_seconds"] for lap in contender["laps"])
    assert contender["warm_seconds"] > contender["laps"][0]["first_batch_seconds"]
    assert contender["memory_bytes"] > 16 * 3 * 224 * 224 * 2
    assert contender["versions"]["python"] == sys.version.split()[0]
    assert "GPUBETON_MISSING_PYTHON" in result["left_out"]["Missing"]


def test_a_first_run_finds_no_machine_code_of_an_earlier_one(corpus, monkeypatch):
    environments = []

    class Process(ContenderProcess):
        def __init__(self, *arguments):
            environments.append(arguments[4]["NUMBA_CACHE_DIR"] if len(arguments) > 4 else None)
            super().__init__(*arguments)

    monkeypatch.setattr(compare, "ContenderProcess", Process)
    usual = next(entry for entry in compare.ENTRIES if entry.module == "torch_tuned")
    work = Work(corpus.jpg, corpus.folder, 32, 2, 1, batch_size=16)
    result = compare.run_race(Console(quiet=True), "imagenet", work, corpus, 1, (usual,))
    assert result["contenders"][usual.name]["cold_seconds"] > 0
    assert result["corpus"] == corpus.facts["jpg"]
    first, later = environments
    assert first is not None
    assert not Path(first).exists()
    assert later is None


def test_photos_of_imagenets_bytes_are_a_separate_corpus(tmp_path, corpus):
    large = make_corpus(tmp_path, 32, Console(quiet=True), IMAGENET_QUALITY)
    assert 100_000 < large.facts["jpg"]["image_bytes"] / 32 < 125_000
    assert large.facts["jpg"]["median_width"] == corpus.facts["jpg"]["median_width"]
    assert large.raw == ""


def test_the_center_for_an_evaluation_is_the_same_with_pillow_and_with_our_loader(corpus):
    work = Work(corpus.jpg, corpus.folder, 32, 1, 1, 8, interpolation="antialias", crop="center")
    loader = make_loader(work, order="sequential", drop_last=False)
    dataset = PillowDataset([(path, 0) for path, _ in list_photos(Path(corpus.folder))], crop="center")
    ours = torch.cat([images for images, _ in loader]).float()
    theirs = torch.stack([image for image, _ in dataset])
    shifts = [0, -2, 2]
    near, *far = ((ours - theirs.roll(shift, 3)).abs().mean() for shift in shifts)
    assert near < 0.08  # of a standard deviation: torchvision rounds the size and the place, FFCV's crop does not
    assert near < 0.5 * min(far)


def test_memory_is_that_of_a_process_and_its_children():
    child = "memory = bytearray(64 << 20); print(flush=True); input()"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", parent], **pipes) as process:
        process.stdout.readline()
        assert 64 << 20 < memory_of(process.pid) < 200 << 20
        with watched_memory(process.pid) as seen:
            pass
        process.communicate("\n")
    assert max(seen) > 64 << 20
    assert memory_of(process.pid) == 0


def test_a_contender_that_ends_instead_of_answering_is_an_error():
    with pytest.raises(ContenderError, match=r"silent: .* status 0"):
        ContenderProcess("silent", sys.executable, "work", Work("", "", 1, 1, 1))


def test_an_epoch_that_is_left_early_is_ended():
    class Epoch:  # ends by `close` alone, as FFCV's
        ends = 0

        def __iter__(self):
            return self

        def __next__(self):
            return torch.zeros(3), None

        def close(self):
            self.ends += 1

    epoch = Epoch()
    counts = count_images(epoch)
    assert next(counts) == 3
    assert epoch.ends == 0
    counts.close()
    assert epoch.ends == 1
