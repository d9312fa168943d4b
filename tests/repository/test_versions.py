from __future__ import annotations

import json

import pytest

from docs.versions import add_version


@pytest.fixture
def build(tmp_path):
    (tmp_path / "build").mkdir()
    (tmp_path / "build/index.html").write_text("first")
    return tmp_path / "build"


def test_versions_lie_side_by_side_the_newest_release_first(build, tmp_path):
    site = tmp_path / "site"
    for name in ("main", "0.9.0", "0.10.0", "0.10.0rc1"):
        add_version(build, site, name)
    assert json.loads((site / "versions.json").read_text()) == ["0.10.0", "0.10.0rc1", "0.9.0", "main"]
    assert "url=0.10.0/index.html" in (site / "index.html").read_text()


def test_a_version_is_replaced_whole(build, tmp_path):
    (build / "old.html").touch()
    add_version(build, tmp_path / "site", "main")
    (build / "old.html").unlink()
    (build / "index.html").write_text("second")
    assert add_version(build, tmp_path / "site", "main") == ["main"]
    assert [path.name for path in (tmp_path / "site/main").iterdir()] == ["index.html"]
    assert (tmp_path / "site/main/index.html").read_text() == "second"


def test_a_folder_without_a_site_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="make docs"):
        add_version(tmp_path, tmp_path / "site", "main")
    assert not (tmp_path / "site").exists()
