from __future__ import annotations

from docs.architecture import draw_architecture
from tests.docs.pages import ROOT


def test_the_figures_show_the_floors_that_are_checked(tmp_path):
    draw_architecture(tmp_path)
    # If not: python -m docs.architecture
    names = {f"{figure}-{theme}.svg" for figure in ("data_flow", "floors") for theme in ("light", "dark")}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert all((tmp_path / name).read_text() == (ROOT / "docs/figures" / name).read_text() for name in names)


def test_the_figure_has_every_room_once():
    text = (ROOT / "docs/figures/floors-light.svg").read_text()
    package = ROOT / "gpubeton"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    assert {room: text.count(f">{room}<") for room in folders | modules} == dict.fromkeys(folders | modules, 1)
