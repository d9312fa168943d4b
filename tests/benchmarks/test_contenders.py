from __future__ import annotations

import sys

import pytest
from rich.console import Console

from benchmarks import compare
from benchmarks.compare import Entry
from benchmarks.contenders.process import ContenderError, ContenderProcess
from benchmarks.contenders.work import MEAN, STD, Work
from benchmarks.corpus import make_corpus
from benchmarks.harness import pillow_loader
from gpubeton.format.dataset import open_dataset


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("data"), 32, Console(quiet=True))


def test_work_survives_a_pipe():
    work = Work("a.beton", "photos", 100, 3, 2, interpolation="antialias")
    assert Work.from_json(work.to_json()) == work
    assert work.batches == 2


def test_all_contenders_normalize_by_the_same_figures():
    assert pytest.approx(MEAN) == [255 * level for level in pillow_loader.MEAN]
    assert pytest.approx(STD) == [255 * level for level in pillow_loader.STD]


def test_both_files_of_the_corpus_hold_the_images_of_the_folder(corpus):
    for path in (corpus.jpg, corpus.raw):
        assert open_dataset(path).num_samples == 32
    assert corpus.facts["jpg"]["images"] == corpus.facts["raw"]["images"] == 32
    raw = open_dataset(corpus.raw).column("image")
    assert max(raw["width"].max(), raw["height"].max()) == 256


def test_a_race_runs_by_turns_and_names_the_contenders_left_out(corpus):
    missing = Entry("Missing", "work", "a_missing_package", "GPUBETON_MISSING_PYTHON")
    ours = next(entry for entry in compare.ENTRIES if entry.module == "gpubeton_loader")
    work = Work(corpus.jpg, corpus.folder, 32, 2, 1, batch_size=16)
    result = compare.run_race(Console(quiet=True), "jpg", work, corpus, 2, (ours, missing))
    (name, contender), *rest = result["contenders"].items()
    assert rest == []
    assert name == "gpubeton, area"
    assert [lap["images"] for lap in contender["laps"]] == [64, 64]
    assert contender["versions"]["python"] == sys.version.split()[0]
    assert "GPUBETON_MISSING_PYTHON" in result["left_out"]["Missing"]


def test_a_contender_that_ends_instead_of_answering_is_an_error():
    with pytest.raises(ContenderError, match=r"silent: .* status 0"):
        ContenderProcess("silent", sys.executable, "work", Work("", "", 1, 1, 1))
