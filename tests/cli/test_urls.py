"""The commands with files in object stores: as with the same files here."""

from __future__ import annotations

import json

import pytest

from gpubeton.dataset import verify
from gpubeton.reader import Reader
from tests.cli.command import run
from tests.picture_folders import write_converted


@pytest.fixture
def both(tmp_path, s3_server):
    """A file here, and in a bucket."""
    path = write_converted(tmp_path, 200)
    return path, s3_server.put("data/a.beton", path)


def test_info_and_verify_find_the_same(both):
    here, remote = both
    ours, theirs = (json.loads(run("info", path, "--json", code=0).stdout) for path in both)
    assert {**ours, "path": ""} == {**theirs, "path": ""}
    assert run("verify", remote, code=0).stdout.replace(remote, "") == run("verify", here).stdout.replace(str(here), "")
    assert verify(remote).is_sound


def test_verify_reads_in_long_ranges_and_finds_damage(both, fault_server):
    content = bytearray(both[0].read_bytes())
    region = Reader(both[0]).index.regions("image")
    content[int(region.offset[7]) + 300] ^= 1
    fault_server.objects["a.beton"] = bytes(content)
    report = verify(fault_server.url("a.beton"))
    assert [finding.sample for finding in report.findings][:1] == [7]
    assert len(fault_server.gets()) <= 8 + 600 / 64


def test_cat_and_view_show_samples(both, tmp_path):
    here, remote = both
    assert run("cat", remote, 3, "--only", "image").stdout_bytes == run("cat", here, 3, "--only", "image").stdout_bytes
    sheets = []
    for number, path in enumerate(both):
        run("view", path, tmp_path / f"{number}.png", code=0)
        sheets.append((tmp_path / f"{number}.png").stat().st_size)
    assert abs(sheets[0] - sheets[1]) < 5000  # the title is another


def test_samples_are_copied_from_there(both, tmp_path, s3_server):
    here, remote = both
    s3_server.put("data/b.beton", here)
    for number, file in enumerate((here, remote)):
        run("subset", file, tmp_path / f"part{number}.beton", "--indices", "3,1,40:60", code=0)
    assert Reader(tmp_path / "part0.beton").checksums.tolist() == Reader(tmp_path / "part1.beton").checksums.tolist()
    run("merge", here, remote, "-o", tmp_path / "pair.beton", code=0)
    run("merge", s3_server.url("data/"), "-o", tmp_path / "folder.beton", code=0)
    assert Reader(tmp_path / "pair.beton").checksums.tolist() == Reader(tmp_path / "folder.beton").checksums.tolist()
    run("split", remote, f"{tmp_path / 'x.beton'}=10", f"{tmp_path / 'y.beton'}=rest", code=0)
    assert Reader(tmp_path / "x.beton").num_samples == 10


def test_commands_for_one_file_refuse_a_folder_a_missing_object_and_to_write_to_a_url(both, s3_server):
    here, remote = both
    s3_server.put("data/b.beton", here)
    for command in (["info"], ["verify"], ["cat"]):
        done = run(*command, s3_server.url("data/"), *(["0"] if command == ["cat"] else []), code=2)
        assert "data/a.beton" in "".join(done.output.split())
    for command in (
        ["subset", here, remote, "--count", 3],
        ["merge", here, "-o", remote],
        ["index", "--overwrite", remote],
    ):
        assert "on this machine" in " ".join(run(*command, code=2).output.split())
    done = run("info", s3_server.url("none.beton"), code=2)  # as for a path
    assert "none.beton" in done.output
    assert "Traceback" not in done.output
