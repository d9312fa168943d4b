"""Pages name only things that exist: error classes, import paths, files."""

from __future__ import annotations

import importlib
import re

from benchmarks.results import latest
from docs import conf, recipe_table
from docs.reference import public_names, write_reference
from gpubeton import errors
from tests.docs.pages import PAGES, ROOT
from tests.public_names import FFCV, PUBLIC


def test_troubleshooting_has_an_entry_for_each_error_class_with_something_to_do():
    text = (ROOT / "docs/troubleshooting.md").read_text()
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", text, re.DOTALL | re.MULTILINE))
    assert sorted(errors.__all__) == sorted(entries)
    assert [name for name, entry in entries.items() if "**Do:**" not in entry and name != "GpubetonError"] == []


def test_the_paths_in_the_table_of_imports_can_be_imported():
    text = (ROOT / "docs/guides/from_ffcv.md").read_text()
    (table,) = re.findall(r"<!-- table: import paths.*?-->\n(.*?)<!-- end of table -->", text, re.DOTALL)
    rows = [[re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    for (module,), names in rows:
        assert [name for name in names if not hasattr(importlib.import_module(f"gpubeton.{module}"), name)] == []
    assert {module: tuple(names) for (module,), names in rows} == {
        module: tuple(names) for module, names in FFCV.items()
    }


def test_the_table_of_recipes_shows_the_operations_of_the_recipes():
    text = recipe_table.PAGE.read_text()
    assert text == recipe_table.fill(text)  # if not: python -m docs.recipe_table


def test_the_table_of_environment_variables_names_those_of_the_package():
    text = (ROOT / "docs/platforms.md").read_text()
    (table,) = re.findall(r"<!-- table: environment variables.*?-->\n(.*?)<!-- end of table -->", text, re.DOTALL)
    sources = [path.read_text() for path in (ROOT / "gpubeton").rglob("*.py")]
    used = {name for source in sources for name in re.findall(r"\bGPUBETON_[A-Z_]+\b", source)}
    assert {name for name in re.findall(r"`(\w+)`", table) if name.startswith("GPUBETON_")} == used


def test_links_lead_to_files_and_to_headings():
    missing, wrong = [], []
    for page in map(ROOT.joinpath, PAGES):
        links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text())
        targets = [(page.parent.joinpath(link).resolve() if link else page, heading) for link, heading in links]
        missing += [f"{page.name}: {target}" for target, _ in targets if not target.exists()]
        headings = [pair for pair in targets if pair[1] and pair[0].suffix == ".md" and pair[0].exists()]
        wrong += [f"{page.name}: {target.name}#{at}" for target, at in headings if at not in anchors(target)]
    assert [line for line in missing if "/docs/api/" not in line] == []
    assert wrong == []


def anchors(page):
    """List the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_reference_has_a_page_for_each_public_name(tmp_path):
    (tmp_path / "gpubeton.gone.rst").write_text("a name that was public once")
    write_reference(tmp_path)
    pages = {path.stem for path in tmp_path.iterdir()}
    names = public_names()
    assert {*names, "index", *(module for module, _ in names.values())} == pages
    shown = {id(thing) for _, thing in names.values()}
    for module in PUBLIC:
        result = importlib.import_module(module)
        for name in getattr(result, "__all__", FFCV.get(module.removeprefix("gpubeton."), {})):
            thing = getattr(result, name)
            assert id(thing) in shown or not getattr(thing, "__module__", module).startswith("gpubeton")


def test_pages_warn_that_no_gpu_has_run_it_as_long_as_there_is_no_result_of_one():
    for page in ("README.md", "docs/index.md"):
        warns = re.search(r"No (real )?GPU has run gpubeton yet", (ROOT / page).read_text())
        assert bool(warns) == (latest("gpu") is None), page


def test_no_page_or_docstring_installs_the_package_from_pypi_where_it_is_not():
    texts = [*map(ROOT.joinpath, PAGES), *(ROOT / "examples").rglob("*.ipynb")]
    texts += [path for room in ("benchmarks", "examples", "gpubeton") for path in (ROOT / room).rglob("*.py")]
    named = [path for path in texts if re.search(r"pip install '?gpubeton", path.read_text())]
    assert named == []


def test_pages_link_to_files_of_the_repository_and_the_site_to_its_address():
    assert [page for page in PAGES if "github.com/gpubeton" in (ROOT / page).read_text()] == []
    source = ["[a](../examples/README.md#recipes) [b](guides/gpu.md) git clone <this repository>"]
    conf.adapt_source(None, "recipes", source)
    address = source[0].rpartition(" ")[2]
    assert source[0].startswith(f"[a]({address}/blob/main/examples/README.md#recipes) [b](guides/gpu.md) ")
