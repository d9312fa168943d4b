"""Examples in docstrings run where a reader would run them: in a folder with photos and a file of them."""

from __future__ import annotations

import random
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

# Ray is not there for the newest Python yet.
collect_ignore = [] if find_spec("ray") else ["gpubeton/integrations/ray.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer another order, in which a test that needs what another one leaves fails."""
    parser.addoption("--file-order", type=int, metavar="SEED", help="Shuffle the files of tests with this seed.")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the files if asked; tests of a file stay together, as they share its fixtures."""
    if (seed := config.getoption("--file-order")) is not None:
        files = sorted({item.path for item in items})
        random.Random(seed).shuffle(files)
        items.sort(key=lambda item: files.index(item.path))


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
