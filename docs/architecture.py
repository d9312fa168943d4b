"""Draw the figure of the architecture page: the data flow, and the floors that import-linter checks.

python -m docs.architecture
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

__all__ = ["draw_architecture", "draw_data_flow"]

_HERE = Path(__file__).resolve().parent
_PROJECT = _HERE.parent / "pyproject.toml"
_WIDTH = 960
_BLUE, _GREEN, _GRAY = "#dbe9f6", "#dff1e0", "#eceff1"

_EXECUTORS = {"cpu", "gpu", "batch"}

#: Each step: its room, its result, and the note below it.
_STEPS = (
    ("format/", "index", "where each sample is"),
    ("plan/", "plan of a batch", "samples, ranges, draws"),
    ("storage/", "byte ranges", "few, large reads"),
    ("cpu/ or gpu/", "images", "decode, crop, flip, colors"),
    ("engine/", "finished batch", "labels, batch operations"),
    ("loader/", "your loop", "tensors"),
)


def draw_architecture(path: Path = _HERE / "architecture.svg") -> None:
    """Write the figure as an SVG file.

    Parameters
    ----------
    path : Path
        The file to write.
    """
    floors = _floors(_PROJECT.read_text())
    height = 210 + 34 * len(floors)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">',
        '<path d="M0,0 L8,4 L0,8 z" fill="#455a64"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_way_of_the_data(),
        *_stack(floors, 170),
        "</svg>",
    ]
    path.write_text("\n".join(lines) + "\n")


def draw_data_flow(path: Path, *, dark: bool) -> None:
    """Write the upper part of the figure alone, for the README.

    Parameters
    ----------
    path : Path
        The file to write.
    dark : bool
        Choose the colors of dark pages.
    """
    text = "#e6edf3" if dark else "#1f2328"
    drawn = "\n".join(_way_of_the_data())
    if dark:
        drawn = drawn.replace(_BLUE, "#12314f").replace("#455a64", "#9aa5b1")
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 116" font-family="system-ui, sans-serif">\n'
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{"#9aa5b1" if dark else "#455a64"}"/></marker></defs>\n'
        f'<g fill="{text}">\n{drawn}\n</g>\n</svg>\n'
    )


def _floors(project: str) -> list[list[str]]:
    """Read the rooms of each floor, the highest first, from the settings of import-linter."""
    found = re.search(r'id = "floors".*?^layers = \[(.*?)^\]', project, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"{_PROJECT}: no import-linter contract with the id 'floors'")
    lines = [re.findall(r"\((\w+)\)", line.partition("#")[0]) for line in found[1].splitlines()]
    return [rooms for rooms in lines if rooms]


def _way_of_the_data() -> list[str]:
    """Draw the steps from a file to the user's loop."""
    step = (_WIDTH - 20) / len(_STEPS)
    lines = [_text(20, 28, "The data flow", 15, "start", bold=True)]
    for number, (room, made, note) in enumerate(_STEPS):
        left, middle = 20 + number * step, 20 + number * step + (step - 24) / 2
        lines.append(_box(left, 44, step - 24, 46, _BLUE))
        lines += [_text(middle, 64, made, 13, bold=True), _text(middle, 81, room, 12), _text(middle, 107, note, 11)]
        if number:
            ends = f'x1="{left - 22:.0f}" y1="67" x2="{left - 2:.0f}" y2="67"'
            lines.append(f'<line {ends} stroke="#455a64" marker-end="url(#tip)"/>')
    return lines


def _stack(floors: list[list[str]], top: int) -> list[str]:
    """Draw the floors, the highest first: imports run downwards only."""
    lines = [_text(20, top - 16, "The floors: a module imports from lower floors only", 15, "start", bold=True)]
    for number, rooms in enumerate(floors):
        y, width = top + 34 * number, (_WIDTH - 40) / len(rooms)
        for place, room in enumerate(rooms):
            lines.append(_box(20 + place * width, y, width - 6, 28, _GREEN if room in _EXECUTORS else _GRAY))
            lines.append(_text(20 + place * width + (width - 6) / 2, y + 19, room, 13))
    return lines


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Draw a box."""
    size = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return f'<rect {size} rx="5" fill="{fill}" stroke="#90a4ae"/>'


def _text(x: float, y: float, text: str, size: int, anchor: str = "middle", *, bold: bool = False) -> str:
    """Draw a line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


if __name__ == "__main__":
    draw_architecture()
