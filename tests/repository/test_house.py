"""The rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = sorted((ROOT / "gpubeton").rglob("*.py"))
ALL = PACKAGE + sorted(
    path for room in ("benchmarks", "docs", "examples", "tests") for path in (ROOT / room).rglob("*.py")
)

MAX_MODULE_LINES = 500  # docstrings not counted
MAX_FUNCTION_LINES = 60

#: Functions that may be longer, and why.
LONG_FUNCTIONS: dict[str, str] = {}

#: A vague name attracts all that has no place.
VAGUE_NAMES = {"base_utils", "common", "core", "helper", "helpers", "misc", "tools", "util", "utils"}
#: FFCV's users import it from there.
ALLOWED_NAMES = {"gpubeton/transforms/common.py"}
#: FFCV has `fields.base` and `traversal_order.base`.
NAMES_OF_FFCV = {"base"}


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_a_module_has_at_most_500_lines_without_its_docstrings() -> None:
    texts = {place(path): path.read_text() for path in ALL}
    lengths = {name: len(text.splitlines()) - docstring_lines(text) for name, text in texts.items()}
    assert {name: length for name, length in lengths.items() if length > MAX_MODULE_LINES} == {}


def test_the_body_of_a_function_has_at_most_60_lines() -> None:
    long = [(name, lines) for path in ALL for name, lines in functions(path) if lines > MAX_FUNCTION_LINES]
    assert [(name, lines) for name, lines in long if name not in LONG_FUNCTIONS] == []


def test_the_list_of_long_functions_holds_no_short_one() -> None:
    long = {name for path in ALL for name, lines in functions(path) if lines > MAX_FUNCTION_LINES}
    assert set(LONG_FUNCTIONS) - long == set()


def test_no_module_has_a_vague_name() -> None:
    named = [place(path) for path in PACKAGE if VAGUE_NAMES & set(path.relative_to(ROOT).with_suffix("").parts)]
    assert sorted(named) == sorted(ALLOWED_NAMES)


def test_no_module_name_occurs_twice() -> None:
    names = [path.stem for path in PACKAGE if path.stem != "__init__"]
    assert {name for name in names if names.count(name) > 1} == NAMES_OF_FFCV


def test_comments_of_kernels_name_modules_that_exist() -> None:
    kernels = [path for pattern in ("*.cu", "*.cuh") for path in sorted((ROOT / "kernels").glob(pattern))]
    named = {(path.name, name) for path in kernels for name in re.findall(r"[\w/]+/\w+\.py\b", path.read_text())}
    assert named
    modules = [place(path) for path in ALL]
    assert {pair for pair in named if not any(module.endswith(pair[1]) for module in modules)} == set()


def docstring_lines(text: str) -> int:
    """Count the lines of a module's docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    strings = [
        node.body[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
    ]
    return sum((string.end_lineno or string.lineno) - string.lineno + 1 for string in strings)


@cache
def functions(path: Path) -> list[tuple[str, int]]:
    """List every function's name, as MODULE:NAME, and the lines of its body without the docstring."""
    lengths = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (node.end_lineno or node.lineno) - body[0].lineno + 1 if body else 0
            lengths.append((f"{place(path)}:{node.name}", lines))
    return lengths
