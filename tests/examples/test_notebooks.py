"""The notebooks run from top to bottom without a GPU, and are committed with their output."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


def cells_of(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds_of(cell):
    """Name what a cell shows: text, a picture."""
    kinds = {kind for output in cell.outputs for kind in output.get("data", {output.get("name", ""): None})}
    return kinds - {"stderr"}  # the first loader on a machine logs that it compiles


@pytest.mark.filterwarnings("ignore:Proactor event loop", "ignore:IPython3 notebook format")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_committed_kinds_of_output(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    committed = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    for cell in cells_of(notebook):
        cell.outputs = []
    NotebookClient(notebook, startup_timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for before, after in zip(cells_of(committed), cells_of(notebook), strict=True):
        assert kinds_of(before) == kinds_of(after), before.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_comparisons_in_a_notebook_print_true(path):
    """Cells that compare print True: equal batches after resuming, equal draws."""
    for cell in cells_of(nbformat.read(path, as_version=4)):
        if "==" in cell.source or "torch.equal" in cell.source:
            shown = "".join(output.get("text", "") for output in cell.outputs)
            assert "True" in shown
            assert "False" not in shown


def test_there_is_a_notebook_for_each_of_the_first_tasks():
    assert [path.stem[2:] for path in NOTEBOOKS] == [
        "quickstart",
        "from_your_dataloader",
        "write_a_transform",
        "find_the_bottleneck",
    ]
