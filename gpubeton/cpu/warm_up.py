"""Warm-up: all machine code that loaders need, compiled ahead of the first one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.cpu.finish import finish_rows
from gpubeton.cpu.gather import gather_rows
from gpubeton.cpu.jpeg.survey import survey_jpegs
from gpubeton.cpu.pack import pack_crops, pack_regions
from gpubeton.cpu.plain.output import plain_outputs_of
from gpubeton.cpu.plain.ring import work_plain
from gpubeton.cpu.ring import allocate_ring, complete, has_tickets, publish, shut, work
from gpubeton.cpu.worker import Worker, draw_columns, outputs_of
from gpubeton.errors import StorageError
from gpubeton.fields.image_decoders import CenterCropImageDecoder
from gpubeton.fields.image_field import ImageField
from gpubeton.plan.fusion import compile_image_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.cpu.kept import KeptCode
    from gpubeton.plan.program import ImageProgram


def warm_up(on_progress: Callable[[int, int], object] | None = None) -> Path:
    """Compile all machine code that loaders need on this CPU, and keep it.

    Parameters
    ----------
    on_progress : callable, optional
        Called with the number of functions that are compiled, and of all.

    Returns
    -------
    Path
        The folder where it is kept.

    Raises
    ------
    StorageError
        If it could not be kept.
    """
    calls = _calls()
    folder = Path()
    for done, (function, arguments) in enumerate(calls):
        if on_progress is not None:
            on_progress(done, len(calls))
        kept: KeptCode = function._cache  # noqa: SLF001 - see `compile.compiled`
        kept.has_notice = False  # it recommends what goes on here
        function(*arguments)
        if kept.folder is None:
            raise StorageError(
                f"{kept.cache_path}: machine code of {function.__name__} could not be written there, nor elsewhere. "
                f"Set NUMBA_CACHE_DIR to a folder that can be written and has room for some megabytes"
            )
        folder = kept.folder
    return folder


def _calls() -> list[tuple[Any, tuple[Any, ...]]]:
    """List the functions that Python calls with arguments of the types that loaders have, and nothing to do."""
    programs = [_program("rgb"), _program("rgba")]
    ring = allocate_ring(1, 1, draw_columns(programs))
    outputs = outputs_of(programs)
    worker = Worker(programs, outputs)
    none, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int32)
    pixels, rows, columns = np.zeros((0, 3), np.uint8), np.zeros((0, 1), np.uint8), np.zeros((0, 8), np.int32)
    factors, tables = outputs.factors[0], outputs.tables[0]
    return [
        (work, (ring, outputs, worker.scratch(1, 1))),
        (work_plain, (ring, plain_outputs_of(programs), worker.plain_scratch(1))),
        (gather_rows, (none, none, rows)),
        (survey_jpegs, (none, none, columns)),
        (pack_regions, (none, none, none)),
        (pack_crops, (none, numbers, columns, none, numbers)),
        (has_tickets, (ring,)),
        (publish, (ring, 0)),
        (complete, (ring, 0, 0)),
        (shut, (ring,)),
        (finish_rows, (pixels, np.zeros(0, np.uint8), 0, factors, tables)),
    ]


def _program(kind: str) -> ImageProgram:
    decoder = CenterCropImageDecoder((1, 1), 1)
    decoder.accept_field(ImageField(kind))
    return compile_image_program("image", 0, [decoder], np.ones(1, np.int64), np.ones(1, np.int64))
