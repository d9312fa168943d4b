"""Errors recommend an extra with the command that fits how the package was installed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpubeton._machine import command, install


class Package:
    """A package, as its files of the environment describe it."""

    def __init__(self, **files):
        self.files = files

    def read_text(self, name):
        return self.files.get(name.partition(".")[0])


@pytest.mark.parametrize(
    ("installer", "origin", "expected"),
    [
        ("pip\n", None, "pip install 'gpubeton[cli]'"),
        ("uv", None, "uv pip install 'gpubeton[cli]'"),
        ("conda", None, "pip install 'gpubeton[cli]'"),
        (None, None, "pip install 'gpubeton[cli]'"),
        ("pip", {"url": "file:///my%20code/gpubeton", "dir_info": {}}, "pip install '/my code/gpubeton[cli]'"),
        ("uv", {"url": "file:///code", "dir_info": {"editable": True}}, "uv pip install -e '/code[cli]'"),
        (
            "pip",
            {"url": "https://host/gpubeton", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'gpubeton[cli] @ git+https://host/gpubeton'",
        ),
        ("pip", {"url": "file:///gpubeton-1.whl", "archive_info": {}}, "pip install 'gpubeton[cli]'"),
    ],
)
def test_the_command_is_that_of_the_installation(installer, origin, expected):
    package = Package(INSTALLER=installer, direct_url=None if origin is None else json.dumps(origin))
    assert command(package, "cli") == expected


def test_damaged_facts_are_no_reason_to_fail():
    assert command(Package(INSTALLER="pip", direct_url="{"), "cli") == "pip install 'gpubeton[cli]'"


ROOT = Path(__file__).parents[1]
TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cu126"


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_for_cuda_12_its_torch_comes_first(installer):
    expected = f"{TORCH} && pip install 'gpubeton[cuda12]'"
    if installer == "uv":
        expected = expected.replace("pip", "uv pip")
    assert command(Package(INSTALLER=installer), "cuda12") == expected


PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
MODULES = [*(ROOT / "gpubeton").rglob("*.py")]


def test_every_place_that_names_the_extra_for_cuda_12_has_the_torch_for_it_before():
    texts = {path.name: path.read_text() for path in [*PAGES, *ROOT.glob("tools/*.sh")]}
    naming = [name for name, text in texts.items() if "cuda12]" in text]
    assert {"gpu.md", "quickstart.md", "troubleshooting.md", "environment.sh"} <= set(naming)
    for name in naming:
        assert -1 < texts[name].find(TORCH) < texts[name].find("cuda12]"), name
    for path in MODULES:  # errors name whole commands
        assert "[cuda12]" not in path.read_text(), path


def test_pages_and_errors_name_extras_that_exist():
    declared = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    in_pages = [extra for path in PAGES for extra in re.findall(r"gpubeton\[([\w,]+)\]", path.read_text())]
    in_errors = [extra for path in MODULES for extra in re.findall(r"install\([\"'](\w+)[\"']\)", path.read_text())]
    named = {name for extra in in_pages + in_errors for name in extra.split(",")}
    assert {"cuda12", "cuda13"} <= named <= declared


def test_this_installation_is_known():
    assert install("cuda13").startswith(("pip install ", "uv pip install "))
    assert "[cuda13]" in install("cuda13")
