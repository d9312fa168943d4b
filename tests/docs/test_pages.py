"""The pages name what there is: error classes, import paths, files."""

from __future__ import annotations

import importlib
import re

import pytest

from docs.reference import public_names, write_reference
from gpubeton import errors
from tests.docs.pages import PAGES, ROOT
from tests.public_names import FFCV, PUBLIC


def test_troubleshooting_has_an_entry_for_each_error_class_with_something_to_do():
    text = (ROOT / "docs/troubleshooting.md").read_text()
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", text, re.DOTALL | re.MULTILINE))
    assert sorted(errors.__all__) == sorted(entries)
    assert [name for name, entry in entries.items() if "**Do:**" not in entry and name != "GpubetonError"] == []


def test_the_table_of_import_paths_names_what_can_be_imported():
    text = (ROOT / "docs/guides/from_ffcv.md").read_text()
    (table,) = re.findall(r"<!-- table: import paths.*?-->\n(.*?)<!-- end of table -->", text, re.DOTALL)
    rows = [[re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    for (theirs,), (ours,), names in rows:
        assert theirs.removeprefix("ffcv.") == ours.removeprefix("gpubeton.")
        assert [name for name in names if not hasattr(importlib.import_module(ours), name)] == []
    assert {ours.removeprefix("gpubeton."): tuple(names) for _, (ours,), names in rows} == {
        module: tuple(names) for module, names in FFCV.items()
    }


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text())
    made = {"docs/api"}
    places = [(ROOT / page).parent.joinpath(link).resolve() for link in links]
    missing = [place.relative_to(ROOT) for place in places if not place.exists()]
    assert [path.as_posix() for path in missing if path.parent.as_posix() not in made] == []


def test_the_reference_has_a_page_for_each_public_name(tmp_path):
    (tmp_path / "gpubeton.gone.rst").write_text("what was public once")
    write_reference(tmp_path)
    pages = {path.stem for path in tmp_path.iterdir()}
    names = public_names()
    assert {*names, "index", *(module for module, _ in names.values())} == pages
    shown = {id(thing) for _, thing in names.values()}
    for module in PUBLIC:
        found = importlib.import_module(module)
        for name in getattr(found, "__all__", FFCV.get(module.removeprefix("gpubeton."), {})):
            thing = getattr(found, name)
            assert id(thing) in shown or not getattr(thing, "__module__", module).startswith("gpubeton")
