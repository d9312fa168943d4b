"""What keeps a training loop waiting, and what would help: what ``gpubeton doctor`` and ``gpubeton bench`` do.

`file_place` and `gpu_state` read what there is; `laps` and `disk` measure; `advice` decides, from numbers alone.
"""

from __future__ import annotations

from gpubeton.diagnosis.advice import advise
from gpubeton.diagnosis.file_place import FilePlace, read_file_place
from gpubeton.diagnosis.finding import Finding
from gpubeton.diagnosis.gpu_state import GpuState, read_gpu
from gpubeton.diagnosis.reading import Reading
from gpubeton.diagnosis.stats_lines import read_stats
from gpubeton.machine import Machine, read_machine

__all__ = [
    "FilePlace",
    "Finding",
    "GpuState",
    "Machine",
    "Reading",
    "advise",
    "read_file_place",
    "read_gpu",
    "read_machine",
    "read_stats",
]
