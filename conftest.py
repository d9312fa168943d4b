"""Examples in docstrings run where a reader would run them: in a folder with photos and a file of them."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

# Ray is not there for the newest Python yet.
collect_ignore = [] if find_spec("ray") else ["gpubeton/integrations/ray.py"]


@pytest.fixture(scope="session")
def reader_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make ``train/CLASS/PHOTO.jpg``, 300 photos of three classes, and ``train.beton``."""
    from tests.docs.pages import prepare

    folder = tmp_path_factory.mktemp("reader")
    prepare(folder)
    return folder


@pytest.fixture(autouse=True)
def _beside_the_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an example that names the files a folder of its own with them."""
    if isinstance(request.node, pytest.DoctestItem) and "train" in request.node.dtest.docstring:
        folder = request.getfixturevalue("tmp_path")
        shutil.copytree(request.getfixturevalue("reader_files"), folder, dirs_exist_ok=True)
        monkeypatch.chdir(folder)
    elif isinstance(request.node, pytest.DoctestItem) and ".beton" in request.node.dtest.docstring:
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
