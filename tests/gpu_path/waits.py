"""Finds the waits of the GPU path, and takes one away."""

from __future__ import annotations

import ast
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple

import gpubeton.gpu
from gpubeton.errors import LoaderClosedError
from gpubeton.gpu.adapter_lane import AdapterLane
from gpubeton.gpu.batched_lane import BatchedLane
from gpubeton.gpu.crew import GpuCrew
from gpubeton.gpu.equipment import Equipment, Streams
from gpubeton.gpu.single_lane import SingleLane
from gpubeton.gpu.state_ring import StateRing
from gpubeton.gpu.work import Work
from tests.simulator.device import SimulatedDevice, SimulatedEvent, SimulatedStream

#: The real device is what the simulated one stands for.
DEVICES = {"cuda", "cuda_stream", "cuda_memory", "device"}

# Where the methods are that wait, on the host or in a stream.
_OWNERS = {
    "wait": [SimulatedStream],
    "synchronize": [SimulatedStream, SimulatedEvent, Streams],
    "settle": [Equipment, BatchedLane, SingleLane, AdapterLane, StateRing],
    "hand_over": [SimulatedDevice],
    "collect_levels": [GpuCrew],
    "join": [Thread],
}


class Wait(NamedTuple):
    """A call that waits: the file and the function in which it stands, and on what, `a.b` of ``a.b.wait()``."""

    module: str
    function: str
    call: str

    def __str__(self):
        return f"{self.module}.{self.function}: {self.call}"


def waits_of_the_gpu_path():
    """Every call that waits, of the source code."""
    found = set()
    for path in Path(gpubeton.gpu.__file__).parent.glob("*.py"):
        if path.stem not in DEVICES:
            _collect(path.stem, "", ast.parse(path.read_text()), found)
    return found


def _collect(module, function, node, found):
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef) else function
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
            is_text = isinstance(child.func.value, ast.Constant)
            if child.func.attr in _OWNERS and not is_text:
                found.add(Wait(module, inside, ast.unparse(child.func).removeprefix("self.")))
        _collect(module, inside, child, found)


def take_away(monkeypatch, wait):
    """Let one wait do nothing."""
    target, _, method = wait.call.rpartition(".")
    if target.endswith("is_issued"):
        monkeypatch.setattr(Work, "is_issued", _NeverWaiting(), raising=False)
        return
    if method == "collect_levels":
        monkeypatch.setattr(GpuCrew, method, _in_the_background(GpuCrew.collect_levels))
        return
    for owner in _OWNERS[method]:
        is_of_a_stream = target.endswith("stream")
        if method == "synchronize" and owner is not Streams and is_of_a_stream != (owner is SimulatedStream):
            continue
        monkeypatch.setattr(owner, method, _unless_called_by(wait, getattr(owner, method)))


def _unless_called_by(wait, original):
    def replaced(*arguments, **keywords):
        code = sys._getframe(1).f_code
        if (Path(code.co_filename).stem, code.co_name) == (wait.module, wait.function):
            return []
        return original(*arguments, **keywords)

    return replaced


def _in_the_background(original):
    """The workers' batches have to be taken off their ring all the same, some time."""

    one_by_one = Lock()

    def collect(crew, work):
        with one_by_one, suppress(LoaderClosedError):
            original(crew, work)

    def replaced(crew, work):
        Thread(target=collect, args=(crew, work), daemon=True).start()
        return []

    return replaced


class _NeverWaiting:
    """In the place of each batch's own event: whoever collects it finds it issued."""

    def __get__(self, work, owner):
        return self

    def __set__(self, work, value):
        pass

    def wait(self):
        pass

    def set(self):
        pass
