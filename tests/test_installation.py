"""Errors recommend an extra with the command that fits how the package was installed."""

from __future__ import annotations

import json

import pytest

from gpubeton.installation import command, install


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


def test_this_installation_is_known():
    assert install("cuda13").startswith(("pip install ", "uv pip install "))
    assert "[cuda13]" in install("cuda13")
