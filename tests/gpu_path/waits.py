"""Finds the named waits of the GPU path, and takes one away.

A wait is a line with the comment ``# wait point: NAME``; the name is what tests go by.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

import gpubeton._gpu
from gpubeton.errors import LoaderClosedError
from tests.simulator.device import SimulatedDevice, SimulatedEvent, SimulatedStream

#: The simulated device is in its place.
LEFT_OUT = {"cuda.py"}

MARK = "# wait point: "

#: The methods that wait, on the host or in a stream.
_WAITING = {"wait", "synchronize", "settle", "hand_over", "collect_cpu_images", "join"}


def _owners(method):
    """The classes that have a method: of the room, of the simulated GPU, and threads."""
    classes = {SimulatedDevice, SimulatedStream, SimulatedEvent, Thread}
    for module in pkgutil.iter_modules(gpubeton._gpu.__path__):
        if f"{module.name}.py" not in LEFT_OUT:
            name = f"gpubeton._gpu.{module.name}"
            members = inspect.getmembers(importlib.import_module(name), inspect.isclass)
            classes |= {cls for _, cls in members if cls.__module__ == name}
    return [cls for cls in classes if method in vars(cls)]


class WaitPoint(NamedTuple):
    """A call that waits: its file, its lines, and the method that it calls."""

    path: str
    lines: range
    method: str


def wait_points():
    """Every call that waits, by its name; one without a name has its place as its name."""
    results = {}
    for path in sorted(Path(gpubeton._gpu.__file__).parent.glob("*.py")):
        if path.name in LEFT_OUT:
            continue
        source = path.read_text()
        names = {number: line.partition(MARK)[2].strip() for number, line in enumerate(source.splitlines(), 1)}
        marked = {number for number, name in names.items() if name}
        for node in ast.walk(ast.parse(source)):
            if _is_a_wait(node):
                lines = range(node.lineno, node.end_lineno + 1)
                name = next((names[number] for number in lines if names[number]), f"{path.name}:{node.lineno}")
                assert name not in results, f"two waits are called {name!r}"
                results[name] = WaitPoint(str(path), lines, node.func.attr)
                marked -= set(lines)
        assert not marked, f"{path}: lines {marked} are marked and do not wait"
    return results


def _is_a_wait(node):
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    is_text = isinstance(node.func.value, ast.Constant)  # of str.join
    return node.func.attr in _WAITING and not is_text


def take_away(monkeypatch, name):
    """Let one wait do nothing."""
    point = wait_points()[name]
    instead = _in_the_background if point.method == "collect_cpu_images" else partial(_unless_called_at, point)
    for owner in _owners(point.method):
        monkeypatch.setattr(owner, point.method, instead(getattr(owner, point.method)))


def _unless_called_at(point, original):
    def replaced(*arguments, **keywords):
        caller = sys._getframe(1)
        if caller.f_code.co_filename == point.path and caller.f_lineno in point.lines:
            return []
        return original(*arguments, **keywords)

    return replaced


def _in_the_background(original):
    """The workers' batches have to be taken off their ring all the same, some time."""

    one_by_one = Lock()

    def collect(executor, work):
        with one_by_one, suppress(LoaderClosedError):
            original(executor, work)

    def replaced(executor, work):
        Thread(target=collect, args=(executor, work), daemon=True).start()
        return []

    return replaced
