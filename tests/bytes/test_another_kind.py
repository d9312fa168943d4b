"""Another kind of storage than local files: its few methods suffice for everything that reads a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubeton import Loader
from gpubeton._bytes import source_type
from gpubeton._bytes.open_files import OpenSources
from gpubeton.cli.app import app
from gpubeton.cli.environment import measure_disk, read_file_place
from gpubeton.dataset import Contents, copy_samples, summarize, verify
from gpubeton.errors import StorageError
from gpubeton.fields.decoders import IntDecoder, SimpleRGBImageDecoder
from gpubeton.reader import Reader
from gpubeton.transforms import ToTensor
from tests.bytes.versioned_source import SCHEME, put
from tests.golden_files import save


@pytest.fixture
def stored(tmp_path):
    path = save("img_jpg_fixed", tmp_path)
    return path, put(tmp_path / "object", path.read_bytes())


def batches(path, **options):
    pipelines = {"image": [SimpleRGBImageDecoder(), ToTensor()], "label": [IntDecoder(), ToTensor()]}
    names = Reader(path).field_names
    pipelines = dict(zip(names, pipelines.values(), strict=False))
    with Loader(path, 3, num_workers=1, pipelines=pipelines, drop_last=False, **options) as loader:
        return [[output.numpy().tobytes() for output in batch] for batch in loader]


@pytest.mark.parametrize("os_cache", [True, False])
def test_a_loader_reads_it(stored, os_cache):
    local, remote = stored
    assert batches(remote, os_cache=os_cache) == batches(local)


def test_it_is_summarized_verified_and_copied(stored, tmp_path):
    local, remote = stored
    ours, theirs = summarize(remote), summarize(local)
    assert ours.fields == theirs.fields
    assert verify(remote).is_sound
    name = Reader(remote).field_names[0]
    assert Contents(remote).to_file(0, name) == Contents(local).to_file(0, name)
    copied = copy_samples(remote, tmp_path / "copy.beton", [1])
    assert Contents(copied).to_file(0, name) == Contents(local).to_file(1, name)


def test_the_commands_read_it(stored, tmp_path):
    _, remote = stored
    for command in (["info"], ["verify"], ["cat"], ["subset"]):
        extra = {"cat": ["0"], "subset": [str(tmp_path / "part.beton"), "--indices", "0,1"]}.get(command[0], [])
        result = CliRunner().invoke(app, [*command, remote, *extra])
        assert result.exit_code == 0, result.output


def test_its_place_is_known_and_no_disk_is_measured(stored):
    _, remote = stored
    assert read_file_place(remote).is_network
    assert measure_disk(remote, seconds=0.01) is None  # it is no disk


def test_one_that_changes_is_refused(stored, tmp_path):
    local, remote = stored
    sources = OpenSources([(remote, source_type(remote).find_identity(remote))])
    sources.check()
    put(tmp_path / "object", local.read_bytes() + b"more")
    with pytest.raises(StorageError, match="replaced"):
        sources.check()
    with pytest.raises(StorageError, match="replaced"):
        sources.open(0)


def test_files_are_mapped_only_if_all_of_them_can_be(stored):
    local, remote = stored
    files = [(path, source_type(path).find_identity(path)) for path in (local, remote)]
    assert [OpenSources(some).is_mappable for some in (files[:1], files[1:], files)] == [True, False, False]


def test_a_path_that_is_called_as_a_scheme_is_a_file(stored, tmp_path, monkeypatch):
    local, _ = stored
    monkeypatch.chdir(tmp_path)
    Path(SCHEME).write_bytes(local.read_bytes())
    assert Reader(SCHEME).num_samples == Reader(local).num_samples
