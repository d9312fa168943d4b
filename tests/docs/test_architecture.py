from __future__ import annotations

from docs.architecture import draw_architecture
from tests.docs.pages import ROOT


def test_the_figure_shows_the_floors_that_are_checked(tmp_path):
    draw_architecture(tmp_path / "architecture.svg")
    # If not: python -m docs.architecture
    assert (tmp_path / "architecture.svg").read_text() == (ROOT / "docs/architecture.svg").read_text()


def test_the_figure_has_every_room_once():
    text = (ROOT / "docs/architecture.svg").read_text()
    package = ROOT / "gpubeton"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    assert {room: text.count(f">{room}<") for room in folders | modules} == dict.fromkeys(folders | modules, 1)
