from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpubeton._writing import ResumableFile
from gpubeton.cli.app import app
from gpubeton.dataset import Settings, convert, copy_samples, open_source
from gpubeton.errors import OptionError, StorageError
from gpubeton.fields import IntField
from gpubeton.reader import Reader
from gpubeton.writer import DatasetWriter
from tests.picture_folders import write_folder, write_tars
from tests.small_files import write_photos

SMALL = Settings(page_size=1 << 21)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with photos, and with a file of some of them."""
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "photos", 6)
    write_photos(tmp_path / "a.beton", 6)
    return tmp_path


COMMANDS = [
    "convert photos OUT --workers 1",
    "subset a.beton OUT --count 2",
    "merge a.beton a.beton -o OUT",
    "split a.beton OUT=2 other.beton=rest",
    "split a.beton other.beton=2 OUT=rest",
    "view a.beton OUT --count 2",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_replace_a_file_only_with_overwrite(command, here):
    out = here / ("keep.png" if command.startswith("view") else "keep.beton")
    words = command.replace("OUT", out.name).split()
    assert run(*words).exit_code == 0
    out.write_bytes(b"a letter of mine")
    (here / "other.beton").unlink(missing_ok=True)
    refused = run(*words)
    assert refused.exit_code == 2
    assert (out.name in refused.stderr, "--overwrite" in refused.stderr) == (True, True)
    assert (out.read_bytes(), (here / "other.beton").exists()) == (b"a letter of mine", False)
    assert run(*words, "--overwrite").exit_code == 0
    assert out.read_bytes() != b"a letter of mine"


@pytest.mark.parametrize("command", [command for command in COMMANDS if "a.beton" in command and "view" not in command])
@pytest.mark.parametrize("name", ["a.beton", "link.beton", "hard.beton", "./photos/../a.beton"])
def test_no_command_replaces_its_input_by_any_name_even_with_overwrite(command, name, here):
    (here / "link.beton").symlink_to("a.beton")
    os.link("a.beton", "hard.beton")
    before = (here / "a.beton").read_bytes()
    refused = run(*command.replace("OUT", name).split(), "--overwrite")
    assert (refused.exit_code, "is an input" in refused.stderr) == (2, True)
    assert (here / "a.beton").read_bytes() == before
    assert not (here / "other.beton").exists()


def test_a_glob_of_two_tar_files_destroys_none_of_them_and_the_message_shows_how_to_name_both(here):
    write_tars(here / "tars", 2)
    (here / "tars" / "000.tar").rename("u.tar")
    (here / "tars" / "001.tar").rename("v.tar")
    before = (here / "v.tar").read_bytes()
    refused = run("convert", "u.tar", "v.tar")
    assert (refused.exit_code, "train-{000..146}.tar" in refused.stderr) == (2, True)
    assert run("convert", "{u,v}.tar", "v.tar", "--overwrite").exit_code == 2
    assert (here / "v.tar").read_bytes() == before


def test_a_conversion_replaces_no_photo_or_table_that_it_reads(here):
    photo = next((here / "photos" / "cat").iterdir())
    (here / "t.csv").write_text(f"path,label\n{photo},0\n")
    for source, out in (("photos", photo), ("t.csv", photo), ("t.csv", here / "t.csv")):
        before = out.read_bytes()
        with pytest.raises(OptionError, match="is an input"):
            convert(open_source(source), out, SMALL, num_workers=1, overwrite=True)
        assert out.read_bytes() == before


def test_an_interrupted_conversion_continues_without_overwrite(here):
    def stop(done, _):
        if done >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(open_source("photos"), "b.beton", SMALL, num_workers=1, chunksize=2, on_progress=stop)
    assert convert(open_source("photos"), "b.beton", SMALL, num_workers=1, chunksize=2).resumed == 2


def test_a_file_that_another_process_completed_meanwhile_is_kept(here):
    (here / "b.beton").write_bytes(b"complete")
    with pytest.raises(OptionError):
        ResumableFile("b.beton", "key", overwrite=False)
    assert [path.name for path in here.glob(".b*")] == []


def test_a_file_that_appears_while_a_copy_is_made_is_kept(here):
    def appear(*_):
        Path("b.beton").write_bytes(b"new")

    with pytest.raises(OptionError):
        copy_samples("a.beton", "b.beton", on_progress=appear)
    assert Path("b.beton").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["a.beton", "old.ffcv", "empty"])
def test_a_writer_replaces_an_older_file_of_its_kind_as_ffcv_does(name, here):
    (here / "old.ffcv").write_bytes((here / "a.beton").read_bytes())
    (here / "empty").touch()
    DatasetWriter(name, {"x": IntField()}, num_workers=1, progress=False).from_indexed_dataset([(1,), (2,)])
    assert Reader(name).num_samples == 2


@pytest.mark.parametrize("content", [b"short", b"\2\0" + bytes(100), np.arange(300).tobytes()])
def test_a_writer_replaces_a_file_of_another_kind_only_with_overwrite(content, here):
    (here / "photo.jpg").write_bytes(content)
    options = {"num_workers": 1, "progress": False}
    with pytest.raises(OptionError, match=r"photo\.jpg"):
        DatasetWriter("photo.jpg", {"x": IntField()}, **options).from_indexed_dataset([(1,)])
    assert (here / "photo.jpg").read_bytes() == content
    DatasetWriter("photo.jpg", {"x": IntField()}, overwrite=True, **options).from_indexed_dataset([(1,)])
    assert Reader("photo.jpg").num_samples == 1


def test_a_writer_writes_into_a_temporary_file_as_scripts_for_ffcv_do():
    with tempfile.NamedTemporaryFile() as file:
        DatasetWriter(file.name, {"x": IntField()}, num_workers=1, progress=False).from_indexed_dataset([(1,)])
        assert Reader(file.name).num_samples == 1


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pipe_is_no_target(tmp_path, overwrite):
    """A device either: a file that is renamed onto it would remove it."""
    os.mkfifo(tmp_path / "pipe.beton")
    writer = DatasetWriter(tmp_path / "pipe.beton", {"number": IntField()}, num_workers=1, progress=False)
    with pytest.raises(StorageError, match="is a device or a pipe"):
        writer.from_indexed_dataset([(1,)])
    with pytest.raises(StorageError, match="is a device or a pipe"):
        convert(open_source(write_folder(tmp_path / "photos", 3)), tmp_path / "pipe.beton", SMALL, overwrite=overwrite)
    assert (tmp_path / "pipe.beton").is_fifo()
