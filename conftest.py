"""Which tests run, and in which order. Examples in docstrings run where a reader would run them: beside photos."""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
from pathlib import Path

import pytest

from gpubeton._machine import count_cores

# Hundreds of processes are started: without kept bytecode each would compile every module again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

ROOT = Path(__file__).parent
#: Rules about the repository itself, which `make check` runs.
RULES = ROOT / "tests/repository"
#: What `make test` leaves to `make test-all`: whole programs, other packages' processes, sanitizers, campaigns.
CAMPAIGNS = [
    *(ROOT / "tests" / name for name in ("benchmarks", "docs", "examples", "fuzz", "gpu", "integrations", "kernels")),
    ROOT / "gpubeton",
]
#: Never thinned: they are the safety net of all changes.
SAFETY_NET = "golden", "hostile", "reference", "ffcv", "simulator"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer parts of the tests, and another order, in which a test that needs what another one leaves fails."""
    parser.addoption("--part", choices=["quick", "rest"], help="Run every promise with few combinations; or the rest.")
    parser.addoption("--thinning", type=int, default=0, metavar="SEED", help="Choose other combinations for --part.")
    parser.addoption("--file-order", type=int, metavar="SEED", help="Shuffle the files of tests with this seed.")


@pytest.hookimpl(optionalhook=True)  # of xdist, which may be off
def pytest_xdist_auto_num_workers() -> int:
    """Start a process more than there are cores: tests of servers and programs wait."""
    return count_cores() + 1


def pytest_configure(config: pytest.Config) -> None:
    """Look for examples in docstrings only where there are some: it imports every module."""
    config.option.doctestmodules &= config.getoption("--part") != "quick"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of another part."""
    left_out = {"quick": [RULES, *CAMPAIGNS], "rest": [RULES]}.get(config.getoption("--part"), [])
    return True if collection_path in left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of the part; shuffle the files if asked: tests of a file share its fixtures."""
    if (part := config.getoption("--part")) is not None:
        quick = _few_combinations(items, config.getoption("--thinning"))
        left_out = [item for item in items if (item in quick) != (part == "quick")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if (item in quick) == (part == "quick")]
    if (seed := config.getoption("--file-order")) is not None:
        files = sorted({item.path for item in items})
        random.Random(seed).shuffle(files)
        items.sort(key=lambda item: files.index(item.path))


def _few_combinations(items: list[pytest.Item], seed: int) -> set[pytest.Item]:
    """Choose, of each test's combinations of parameters, enough to show each value once; nothing of campaigns."""
    chosen = set()
    shown: dict[str, set[tuple[object, ...]]] = {}
    # Shuffled: which values meet is a matter of the seed.
    for item in random.Random(seed).sample(items, len(items)):
        if item.get_closest_marker("campaign") or any(item.path.is_relative_to(folder) for folder in CAMPAIGNS):
            continue
        values = _parameters(item)
        before = shown.setdefault(item.nodeid.partition("[")[0], set())
        if not values or values - before or any(word in item.path.as_posix() for word in SAFETY_NET):
            chosen.add(item)
        before |= values
    return chosen


def _parameters(item: pytest.Item) -> set[tuple[object, ...]]:
    """Name the values of a test's parameters; those of one list are one value, and so are all seeds."""
    arguments: dict[str, object] = item.callspec.params if hasattr(item, "callspec") else {}
    values: dict[str, object] = {name: name == "seed" or id(value) for name, value in arguments.items()}
    lists = [marker.args[0] for marker in item.iter_markers("parametrize")]
    names = [re.findall(r"\w+", words) if isinstance(words, str) else list(words) for words in lists]
    together = {tuple((name, values.pop(name)) for name in row) for row in names}
    return {*together, *((pair,) for pair in values.items())}


@pytest.fixture(scope="session")
def reader_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make ``train/CLASS/PHOTO.jpg``, 300 photos of three classes, and ``train.beton``."""
    from tests.docs.pages import prepare

    folder = tmp_path_factory.mktemp("reader")
    prepare(folder)
    return folder


@pytest.fixture(autouse=True)
def _beside_the_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an example that names the files a folder with copies of them."""
    if isinstance(request.node, pytest.DoctestItem) and "train" in request.node.dtest.docstring:
        folder = request.getfixturevalue("tmp_path")
        shutil.copytree(request.getfixturevalue("reader_files"), folder, dirs_exist_ok=True)
        monkeypatch.chdir(folder)
    elif isinstance(request.node, pytest.DoctestItem) and ".beton" in request.node.dtest.docstring:
        monkeypatch.chdir(request.getfixturevalue("tmp_path"))
