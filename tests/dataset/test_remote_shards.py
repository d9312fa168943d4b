"""Shards in an object store."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from gpubeton._bytes.object_store import list_objects
from gpubeton.dataset import Settings, convert_shards
from gpubeton.errors import OptionError
from tests.objects import read_object
from tests.picture_folders import write_folder

SETTINGS = Settings(page_size=1 << 21, shuffle=True)


def objects(bucket, prefix: str) -> dict[str, bytes]:
    """Read all objects of a prefix, by their names in it."""
    url = bucket.url(prefix)
    results = [name for name, *_ in list_objects(url, bucket.options)]
    return without_manifest({name.removeprefix(url): read_object(name, bucket.options) for name in results})


def files(folder: Path) -> dict[str, bytes]:
    return without_manifest({path.name: path.read_bytes() for path in folder.iterdir()})


def without_manifest(contents: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out the file that has the times or the versions of the shards."""
    assert contents.pop("index.json")
    return contents


@pytest.fixture
def scratch(monkeypatch):
    """The folder for temporary files, of this process alone: Python's other processes have a socket in theirs."""
    with tempfile.TemporaryDirectory() as folder:  # shorter than those of pytest, as sockets need it
        monkeypatch.setattr("gpubeton.dataset.shards.temporary_folder", lambda: folder)
        yield Path(folder)


def test_an_object_store_gets_the_bytes_that_a_folder_gets_and_nothing_stays_here(s3_server, tmp_path, scratch):
    photos = write_folder(tmp_path / "photos", 13)
    here = convert_shards(photos, tmp_path / "out", 3, SETTINGS, num_workers=1)
    # Without the slash at its end, and with processes.
    arguments = (photos, s3_server.url("out"), 3, SETTINGS)
    options = {"remote": s3_server.options, "num_workers": 2}
    assert convert_shards(*arguments, **options, share=(1, 3)) is None
    remote = convert_shards(*arguments, **options)
    assert replace(remote, target=here.target) == here
    assert objects(s3_server, "out/") == files(tmp_path / "out")
    assert list(scratch.glob("gpubeton-*")) == []
    with pytest.raises(OptionError, match=r"out/00000\.beton: a file of another conversion"):
        convert_shards(photos, s3_server.url("out"), 3, **options)
