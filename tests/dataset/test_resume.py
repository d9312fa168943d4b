from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpubeton._writing import FileBuilder
from gpubeton.dataset import Settings, convert, open_source
from gpubeton.errors import SampleError, StorageError
from tests.picture_folders import write_folder, write_picture

SETTINGS = Settings(page_size=1 << 21, write_mode="raw")


class Counting:
    """A source that notes which samples are taken, and may fail at one."""

    def __init__(self, source, fail_at=None):
        self._source, self._fail_at = source, fail_at
        self.taken = []
        self.kind, self.fields, self.class_names = source.kind, source.fields, source.class_names
        self.name, self.identity, self.passed_over = source.name, source.identity, source.passed_over
        self.input_files, self.unused, self.notes = source.input_files, source.unused, source.notes

    def __len__(self):
        return len(self._source)

    def __getitem__(self, index):
        if index == self._fail_at:
            raise RuntimeError("the plug was pulled")
        self.taken.append(index)
        return self._source[index]


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "photos", 30)


def interrupted(folder, path, at=17, **options):
    source = Counting(open_source(folder), at)
    with pytest.raises(SampleError, match="the plug was pulled"):
        convert(source, path, SETTINGS, num_workers=1, chunksize=4, **options)
    assert not path.exists()


def go_on(folder, path, **options):
    source = Counting(open_source(folder))
    done = convert(source, path, SETTINGS, num_workers=1, chunksize=4, **options)
    return done, source.taken


def uninterrupted(folder, tmp_path, **options):
    done = convert(open_source(folder), tmp_path / "whole.beton", SETTINGS, num_workers=1, **options)
    return done.path.read_bytes()


def test_finished_chunks_are_not_made_again_and_the_file_is_the_same(folder, tmp_path):
    path = tmp_path / "a.beton"
    interrupted(folder, path)
    done, taken = go_on(folder, path)
    assert (done.resumed, taken) == (16, list(range(16, 30)))
    assert path.read_bytes() == uninterrupted(folder, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.beton", "photos", "whole.beton"]


def test_a_disk_that_is_full_when_a_writer_goes_on_loses_nothing(folder, tmp_path, monkeypatch):
    path = tmp_path / "a.beton"
    interrupted(folder, path)

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(StorageError):
            go_on(folder, path)
    done, taken = go_on(folder, path)
    assert (done.resumed, taken) == (16, list(range(16, 30)))
    assert path.read_bytes() == uninterrupted(folder, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.beton", "photos", "whole.beton"]


def test_fresh_discards_finished_chunks(folder, tmp_path):
    interrupted(folder, tmp_path / "a.beton")
    done, taken = go_on(folder, tmp_path / "a.beton", fresh=True)
    assert (done.resumed, len(taken)) == (0, 30)


def test_other_settings_discard_finished_chunks(folder, tmp_path):
    interrupted(folder, tmp_path / "a.beton")
    done = convert(open_source(folder), tmp_path / "a.beton", Settings(page_size=1 << 21), num_workers=1)
    assert (done.resumed, done.began_anew) == (0, True)
    small = Settings(page_size=1 << 21)
    again = convert(open_source(folder), tmp_path / "a.beton", small, num_workers=1, overwrite=True)
    assert not again.began_anew


def test_finished_chunks_are_kept_with_and_without_entry_points(folder, tmp_path):
    interrupted(folder, tmp_path / "a.beton")
    without = replace(SETTINGS, index=False)
    done = convert(open_source(folder), tmp_path / "a.beton", without, num_workers=1, chunksize=4)
    assert (done.resumed, done.began_anew) == (16, False)


@pytest.mark.parametrize("change", ["written", "added", "removed", "shuffled", "limited"])
def test_a_changed_source_is_converted_from_the_beginning(change, folder, tmp_path):
    path, settings = tmp_path / "a.beton", SETTINGS
    interrupted(folder, path)
    cats = sorted((folder / "cat").iterdir())
    match change:
        case "written":
            write_picture(cats[6], 99, 30, 31)
        case "added":
            write_picture(folder / "cat" / "0000a.png", 98)
        case "removed":
            cats[3].unlink()
        case "shuffled":
            settings = replace(settings, shuffle=True, seed=3)
        case "limited":
            settings = replace(settings, limit=25)
    source = Counting(open_source(folder))
    done = convert(source, path, settings, num_workers=1, chunksize=4)
    assert (done.resumed, done.began_anew, len(source.taken)) == (0, True, done.samples)
    whole = convert(open_source(folder), tmp_path / "whole.beton", settings, num_workers=1)
    assert path.read_bytes() == whole.path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.beton", "photos", "whole.beton"]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_replacing_or_leaving_out_the_bad_image_keeps_the_finished_chunks(on_error, folder, tmp_path):
    path, bad = tmp_path / "a.beton", sorted((folder / "dog").iterdir())[8]  # sample 18
    bad.write_bytes(b"no image")
    interrupted(folder, path, 18)
    if on_error == "raise":
        write_picture(bad, 99)
    done, taken = go_on(folder, path, on_error=on_error)
    assert (done.resumed, done.began_anew, taken) == (16, False, list(range(16, 30)))
    assert len(done.skipped) == (on_error == "skip")
    assert path.read_bytes() == uninterrupted(folder, tmp_path, on_error=on_error)


def test_a_bad_image_that_was_left_out_raises_its_error_when_none_may_be(folder, tmp_path):
    path = tmp_path / "a.beton"
    min((folder / "cat").iterdir()).write_bytes(b"no image")
    stopped_at_the_end(path, folder, on_error="skip")
    with pytest.raises(SampleError):
        go_on(folder, path)


def change(folder, rng):
    """Remove, add, change or spoil some images."""
    files = sorted(folder.glob("*/*"))
    for file in rng.choice(files, 3, replace=False):
        match rng.integers(4):
            case 0 if len(list(file.parent.iterdir())) > 2:
                file.unlink()
            case 1:
                write_picture(file.with_stem(f"{file.stem}{rng.integers(9)}"), int(rng.integers(99)))
            case 2:
                write_picture(file, int(rng.integers(99)), 20 + int(rng.integers(20)))
            case 3:
                file.write_bytes(b"no image")


@pytest.mark.parametrize("seed", range(12))
def test_any_changes_and_interruptions_give_the_bytes_of_a_fresh_conversion(seed, folder, tmp_path):
    rng, path = np.random.default_rng(seed), tmp_path / "a.beton"
    settings = replace(SETTINGS, write_mode=("raw", "jpg", "proportion")[seed % 3])
    for _ in range(4):
        stop = int(rng.integers(30))

        def report(done, _, stop=stop):
            if done > stop:
                raise KeyboardInterrupt

        options = {"num_workers": int(rng.integers(1, 3)), "chunksize": int(rng.integers(1, 8))}
        order = {"shuffle": bool(rng.integers(2)), "limit": (None, 20)[rng.integers(2)]}
        settings = replace(settings, **order)
        with contextlib.suppress(KeyboardInterrupt, SampleError):
            on_error = ("raise", "skip")[rng.integers(2)]
            convert(open_source(folder), path, settings, on_error=on_error, on_progress=report, **options)
            path.unlink()
        change(folder, rng)
    done = convert(open_source(folder), path, settings, on_error="skip", num_workers=1)
    whole = convert(open_source(folder), tmp_path / "whole.beton", settings, on_error="skip", num_workers=1)
    assert (done.skipped, done.changed) == (whole.skipped, whole.changed)
    assert path.read_bytes() == whole.path.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.beton", "photos", "whole.beton"]


def stopped_at_the_end(path, folder, **options):
    """Do everything but complete the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileBuilder, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            convert(open_source(folder), path, SETTINGS, num_workers=1, chunksize=4, **options)


@pytest.mark.parametrize("change", ["smaller", "bad"])
def test_nothing_is_left_of_samples_that_are_smaller_or_bad_now(change, folder, tmp_path):
    path, last = tmp_path / "a.beton", max((folder / "eel").iterdir())
    stopped_at_the_end(path, folder, on_error="skip")
    if change == "smaller":
        write_picture(last, 99, 5, 6)
    else:
        last.write_bytes(b"no image")
    done, _ = go_on(folder, path, on_error="skip")
    assert (done.samples, done.resumed, done.began_anew) == (30 - (change == "bad"), 0, True)
    assert path.read_bytes() == uninterrupted(folder, tmp_path, on_error="skip")


@pytest.mark.parametrize("where", ["metadata", "region"])
def test_bytes_that_did_not_reach_the_disk_are_made_again(where, folder, tmp_path):
    path = tmp_path / "a.beton"
    interrupted(folder, path)
    unfinished = tmp_path / ".a.beton.unfinished"
    first_row, row_size, first_page = 24 + 2 * 1041, 24, 1 << 21
    size = 24 * 32 * 3
    at = first_row + 9 * row_size if where == "metadata" else first_page + 9 * size
    with unfinished.open("r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * 16)
    done, taken = go_on(folder, path)
    assert (done.resumed, done.began_anew, taken) == (8, False, list(range(8, 30)))
    assert path.read_bytes() == uninterrupted(folder, tmp_path)


def test_a_journal_cut_in_a_line_counts_up_to_there(folder, tmp_path):
    path, journal = tmp_path / "a.beton", tmp_path / ".a.beton.journal"
    interrupted(folder, path)
    journal.write_bytes(journal.read_bytes()[:-20])
    done, _ = go_on(folder, path)
    assert done.resumed == 12
    assert path.read_bytes() == uninterrupted(folder, tmp_path)


def test_samples_that_were_left_out_stay_left_out(folder, tmp_path):
    (folder / "cat" / "0000a.jpg").write_bytes(b"bad")
    whole = convert(open_source(folder), tmp_path / "whole.beton", SETTINGS, on_error="skip", num_workers=1)
    path = tmp_path / "a.beton"
    stopped_at_the_end(path, folder, on_error="skip")
    done, taken = go_on(folder, path, on_error="skip")
    assert (done.resumed, taken) == (31, [])
    assert done.skipped == whole.skipped
    assert path.read_bytes() == whole.path.read_bytes()


PROGRAM = """
import sys, time
from gpubeton.dataset import Settings, convert, open_source
from gpubeton._sources import file_sources as module
slow = module.FolderSource.__getitem__
module.FolderSource.__getitem__ = lambda self, index: (time.sleep(300 if index >= 20 else 0), slow(self, index))[1]
settings = Settings(page_size=1 << 21, write_mode="raw")
convert(open_source(sys.argv[1]), sys.argv[2], settings, num_workers=2, chunksize=4)
"""


def test_after_a_kill_in_the_middle_the_next_run_gives_the_same_file(folder, tmp_path):
    path, journal = tmp_path / "a.beton", tmp_path / ".a.beton.journal"
    root = Path(__file__).resolve().parents[2]
    child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), str(path)], cwd=root, start_new_session=True)
    while not journal.exists() or journal.read_bytes().count(b"\n") < 4:
        assert child.poll() is None
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert not path.exists()
    done, taken = go_on(folder, path)
    assert done.resumed >= 8
    assert taken == list(range(done.resumed, 30))
    assert path.read_bytes() == uninterrupted(folder, tmp_path)
