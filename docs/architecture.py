"""Draw the figures of the architecture page: the data flow, and the floors that import-linter checks.

python -m docs.architecture
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

__all__ = ["draw_architecture"]

_HERE = Path(__file__).resolve().parent
_PROJECT = _HERE.parent / "pyproject.toml"
_WIDTH = 480
_THEMES = {
    "light": {"text": "#1f2328", "line": "#57656f", "step": "#dbe9f6", "executor": "#d3ebd5", "room": "#eceff1"},
    "dark": {"text": "#e6edf3", "line": "#9aa5b1", "step": "#12314f", "executor": "#1d4227", "room": "#262c33"},
}

_EXECUTORS = {"_cpu", "_gpu", "_batch"}

#: Each step: its room, its result, and the note below it.
_STEPS = (
    ("format/", "index", "where each sample is"),
    ("_plan/", "plan of a batch", "samples, ranges, draws"),
    ("_engine/", "byte ranges", "few, large reads"),
    ("_cpu/ or _gpu/", "images", "decode, crop, flip, colors"),
    ("_engine/", "finished batch", "labels, batch operations"),
    ("loader/", "your loop", "tensors"),
)


def draw_architecture(folder: Path = _HERE / "figures") -> None:
    """Write both figures, for light and for dark pages.

    Parameters
    ----------
    folder : Path
        The folder for the SVG files.
    """
    floors = _floors(_PROJECT.read_text())
    for name, height, lines in (("data_flow", 174, _data_flow()), ("floors", 34 * len(floors) - 6, _stack(floors))):
        for theme, colors in _THEMES.items():
            drawn = "\n".join(lines)
            for role, color in colors.items():
                drawn = drawn.replace(f"[{role}]", color)
            (folder / f"{name}-{theme}.svg").write_text(
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="560" '
                f'font-family="system-ui, sans-serif">\n{drawn}\n</svg>\n'
            )


def _floors(project: str) -> list[list[str]]:
    """Read the rooms of each floor, the highest first, from the settings of import-linter."""
    found = re.search(r'id = "floors".*?^layers = \[(.*?)^\]', project, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{_PROJECT}: no import-linter contract with the id 'floors'")
    lines = [re.findall(r"\((\w+)\)", line.partition("#")[0]) for line in found[1].splitlines()]
    return [rooms for rooms in lines if rooms]


def _data_flow() -> list[str]:
    """Draw the steps from a file to the user's loop, three in a row: a phone shows them, too."""
    step = (_WIDTH + 20) / 3
    tip = '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    lines = [f'<defs>{tip}<path d="M0,0 L8,4 L0,8 z" fill="[line]"/></marker></defs>']
    for number, (room, made, note) in enumerate(_STEPS):
        left, top = number % 3 * step, number // 3 * 98
        middle = left + (step - 20) / 2
        lines.append(_box(left, top, step - 20, 46, "step"))
        lines += [_text(middle, top + 20, made, 13, bold=True), _text(middle, top + 37, room, 12)]
        lines.append(_text(middle, top + 62, note, 11))
        if number % 3:
            lines.append(f'<path d="M{left - 19:.0f},{top + 23} h17" stroke="[line]" marker-end="url(#tip)"/>')
    lines.append(
        f'<path d="M{_WIDTH - step / 2 + 10:.0f},70 v10 H{step / 2 - 10:.0f} v16" fill="none" stroke="[line]" '
        'marker-end="url(#tip)"/>'
    )
    return lines


def _stack(floors: list[list[str]]) -> list[str]:
    """Draw the floors, the highest first: imports run downwards only."""
    lines = []
    for number, rooms in enumerate(floors):
        width = (_WIDTH + 6) / len(rooms)
        for place, room in enumerate(rooms):
            lines.append(_box(place * width, 34 * number, width - 6, 28, "executor" if room in _EXECUTORS else "room"))
            lines.append(_text(place * width + (width - 6) / 2, 34 * number + 19, room, 13))
    return lines


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Draw a box."""
    size = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{width - 1:.1f}" height="{height - 1:.0f}"'
    return f'<rect {size} rx="5" fill="[{fill}]" stroke="[line]" stroke-width="0.7"/>'


def _text(x: float, y: float, text: str, size: int, *, bold: bool = False) -> str:
    """Draw a line of text."""
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="middle"'
    return f'<text {place} fill="[text]"{weight}>{escape(text)}</text>'


if __name__ == "__main__":
    draw_architecture()
