"""Finds the named waits of the GPU path, and takes one away.

A wait is a line with the comment ``# wait point: NAME``; the name is what tests go by.
"""

from __future__ import annotations

import ast
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

import gpubeton._gpu
from gpubeton._gpu.batch import Batch
from gpubeton._gpu.cpu_images import CpuImages
from gpubeton._gpu.gpu_resources import GpuResources
from gpubeton._gpu.nvjpeg_backends import BatchedBackend
from gpubeton.errors import LoaderClosedError
from tests.simulator.device import SimulatedDevice, SimulatedEvent, SimulatedStream

#: The simulated device is in its place.
LEFT_OUT = {"cuda.py"}

MARK = "# wait point: "

#: The methods that wait, on the host or in a stream.
_OWNERS = {
    "wait": [SimulatedStream],
    "synchronize": [SimulatedStream, SimulatedEvent],
    "settle": [GpuResources, BatchedBackend],
    "hand_over": [SimulatedDevice],
    "collect_cpu_images": [CpuImages],
    "join": [Thread],
}


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
    return node.func.attr in _OWNERS and not is_text


def take_away(monkeypatch, name):
    """Let one wait do nothing."""
    point = wait_points()[name]
    if name == "batch issued":
        monkeypatch.setattr(Batch, "wait", lambda _batch: None)
        return
    if point.method == "collect_cpu_images":
        monkeypatch.setattr(CpuImages, point.method, _in_the_background(CpuImages.collect_cpu_images))
        return
    for owner in _OWNERS[point.method]:
        monkeypatch.setattr(owner, point.method, _unless_called_at(point, getattr(owner, point.method)))


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
