"""The site has a page for each notebook, with what its cells print and draw."""

from __future__ import annotations

import re

from docs.notebooks import write_notebooks
from tests.docs.pages import ROOT


def test_each_notebook_is_a_page_with_its_outputs(tmp_path):
    write_notebooks(tmp_path)
    notebooks = {path.stem: path.read_text() for path in (ROOT / "examples/notebooks").glob("*.ipynb")}
    pages = {path.stem: path.read_text() for path in tmp_path.glob("*.md")}
    assert pages.keys() == notebooks.keys()
    for name, page in pages.items():
        assert page.count("```") // 2 == notebooks[name].count('"source"') - notebooks[name].count('"markdown"') + (
            notebooks[name].count('"stream"')
        )
        pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
        assert len(pictures) == notebooks[name].count('"image/png"')
        assert all((tmp_path / picture).stat().st_size > 1000 for picture in pictures)
        links = re.findall(r"\]\(([^)#]+\.(?:md|ipynb))", page)
        assert all((tmp_path / link).exists() or (ROOT / "docs/notebooks" / link).resolve().exists() for link in links)


def test_a_page_that_did_not_change_is_not_written(tmp_path):
    write_notebooks(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.md")}
    write_notebooks(tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.md")}
