"""Another kind of storage than local files: its few methods suffice for everything that reads a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpubeton import Loader
from gpubeton._bytes import open_files
from gpubeton._bytes.byte_source import ByteSource, SourceIdentity
from gpubeton._bytes.open_files import OpenSources, open_bytes
from gpubeton.cli.app import app
from gpubeton.cli.environment import measure_disk, read_file_place
from gpubeton.dataset import Contents, copy_samples, summarize, verify
from gpubeton.errors import FormatError, StorageError
from gpubeton.fields.decoders import IntDecoder, SimpleRGBImageDecoder
from gpubeton.reader import Reader
from gpubeton.transforms import ToTensor
from tests.golden_files import save

OBJECTS: dict[str, bytes] = {}


@dataclass(frozen=True)
class Version(SourceIdentity):
    number: int

    def is_same_source(self, other):
        return True

    def check(self, name, result):
        if result != self:
            raise StorageError(f"{name}: another version")


class MemorySource(ByteSource):
    num_readers = 3

    @classmethod
    def open(cls, name, size, *, is_random):  # noqa: ARG003  every order costs the same here
        return cls(name, size)

    @classmethod
    def find_identity(cls, name):
        if name not in OBJECTS:
            raise FileNotFoundError(name)
        return Version(len(OBJECTS[name]), hash(OBJECTS[name]))

    def identity(self):
        return self.find_identity(self.name)

    def read_into(self, start, target):
        part = OBJECTS[self.name][start : start + len(target)]
        target[: len(part)] = part
        return len(part)

    def close(self):
        pass


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setitem(open_files.SOURCES, "memory", MemorySource)
    path = save("img_jpg_fixed", tmp_path)
    OBJECTS["memory://bucket/train.beton"] = path.read_bytes()
    yield path, "memory://bucket/train.beton"
    OBJECTS.clear()


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


def test_its_place_and_speed_are_measured(stored):
    _, remote = stored
    assert read_file_place(remote).is_network
    assert measure_disk(remote, seconds=0.01).warm_bytes_per_second > 0


def test_one_that_changes_is_refused(stored):
    _, remote = stored
    sources = OpenSources([(remote, MemorySource.find_identity(remote))])
    sources.check()
    OBJECTS[remote] += b"more"
    with pytest.raises(StorageError, match="another version"):
        sources.check()
    with pytest.raises(StorageError, match="another version"):
        sources.open(0)


def test_files_are_mapped_only_if_all_of_them_can_be(stored):
    local, remote = stored
    files = [(path, open_files.source_type(path).find_identity(path)) for path in (local, remote)]
    assert [OpenSources(some).is_mappable for some in (files[:1], files[1:], files)] == [True, False, False]


def test_a_path_that_is_called_as_a_scheme_is_a_file(stored, tmp_path, monkeypatch):
    local, _ = stored
    monkeypatch.chdir(tmp_path)
    Path("memory").write_bytes(local.read_bytes())
    assert Reader("memory").num_samples == Reader(local).num_samples


def test_metadata_that_no_memory_can_hold_are_an_error_of_the_file(stored):
    with open_bytes(stored[0]) as source:
        for size in (1 << 50, 1 << 63, 1 << 70):
            with pytest.raises(FormatError, match=f"24 to {24 + size} .*metadata"):
                source.read_array(24, 24 + size)


def test_ranges_that_are_cut_short_are_refused_and_it_cannot_be_mapped(stored):
    _, remote = stored
    with open_bytes(remote) as source:
        content = np.zeros(8, np.uint8)
        source.read_ranges([(4, content.data[:4]), (0, content.data[4:])])
        assert content.tobytes() == OBJECTS[remote][4:8] + OBJECTS[remote][:4]
        with pytest.raises(StorageError, match=f"10 bytes from {source.size - 3} .* 3 "):
            source.read_exactly(source.size - 3, 10)
        with pytest.raises(StorageError, match="mapped"):
            source.map()
