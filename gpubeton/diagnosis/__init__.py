"""Find out why a training loop waits for data, and what would help: `gpubeton doctor` and `gpubeton bench`.

`environment` reads and `runs` measures; `advice` decides, from numbers alone.
"""

from __future__ import annotations

from gpubeton.diagnosis.advice import LoopFinding, Measurements, advise
from gpubeton.diagnosis.environment import FilePlace, GpuState, read_file_place, read_gpu
from gpubeton.machine import Machine, read_machine

__all__ = [
    "FilePlace",
    "GpuState",
    "LoopFinding",
    "Machine",
    "Measurements",
    "advise",
    "read_file_place",
    "read_gpu",
    "read_machine",
]
