"""The types that the package declares, as mypy sees them in users' code."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, ends_in

#: Code of pages has functions without types, as scripts have.
OPTIONS = ["--strict", "--allow-untyped-defs", "--allow-untyped-calls", "--allow-any-generics", "--allow-redefinition"]


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    """What mypy says, by the name of the file: in one process, because torch's types take it ten seconds."""
    folder = tmp_path_factory.mktemp("typed")
    for page in PAGES:
        (folder / file_of(page)).write_text(code_of(page))
    return run_mypy(folder)


def file_of(page: str) -> str:
    return page.removesuffix(".md").replace("/", "_") + ".py"


def code_of(page: str) -> str:
    """The Python of a page that runs, in the lines in which it is there."""
    code = ""
    for block in blocks(page):
        if block.language in {"python", "diff"} and block.why is None:
            code += "\n" * (block.line - 1 - code.count("\n"))
            code += block.text if block.language == "python" else ends_in(block.text)
    return code


def run_mypy(folder) -> dict[str, list[str]]:
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports", *OPTIONS]
    done = subprocess.run(
        [*command, "--config-file=", "--cache-dir=.cache", *sorted(path.name for path in folder.iterdir())],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    said: dict[str, list[str]] = {path.name: [] for path in folder.iterdir()}
    for name, message in re.findall(r"^([\w.]+\.py):(\d+: .*)$", done.stdout, re.MULTILINE):
        said[name].append(message)
    return said


def test_the_code_of_the_pages_has_the_types_that_the_package_declares(messages):
    assert {page: messages[file_of(page)] for page in PAGES if messages[file_of(page)]} == {}
