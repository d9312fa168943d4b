"""Compile all machine code that loaders need, ahead of the first loader."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.random_crops import compiled_rule
from gpubeton._batch.run_steps import STEP_FUNCTIONS, run_listed
from gpubeton._compile import numba_hooks
from gpubeton._compile.kept import KeptCode
from gpubeton._cpu import ring as ring_buffer
from gpubeton._cpu.epilogue import draw_columns, outputs_of, store_rows
from gpubeton._cpu.jpeg.entries import write_entries
from gpubeton._cpu.jpeg.markers import probe_jpegs
from gpubeton._cpu.stored_bytes import find_damage, gather_rows, pack_crops, pack_regions
from gpubeton._cpu.worker_pool import Worker
from gpubeton._plan.arena_layout import lay_out_pixels
from gpubeton._plan.draw_rows import most_taps
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.philox import fill_uniform
from gpubeton._plan.routes import assign_routes
from gpubeton.errors import StorageError
from gpubeton.fields.image_decoders import CenterCropImageDecoder
from gpubeton.fields.image_field import ImageField

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton._plan.program import ImageProgram


def precompile(on_progress: Callable[[int, int], None] | None = None) -> Path:
    """Compile all functions that loaders need on this CPU, and keep their machine code; return its folder."""
    # Calls ``on_progress(done, all)`` before each function. Raises StorageError if the code cannot be kept.
    if not numba_hooks.IS_ENABLED:
        raise StorageError("machine code cannot be kept with GPUBETON_NUMBA_HOOKS=0: leave out this variable")
    calls = [(function, partial(function, *arguments)) for function, arguments in _calls()]
    calls += [(step.code, partial(getattr, step, "address")) for step in dict.fromkeys(STEP_FUNCTIONS.values())]
    folder = Path()
    for done, (function, compile_it) in enumerate(calls):
        if on_progress is not None:
            on_progress(done, len(calls))
        cache = numba_hooks.cache_of(function)
        if not isinstance(cache, KeptCode):
            compile_it()
            continue
        cache.has_notice = False  # it recommends this very command
        compile_it()
        if cache.folder is None:
            raise StorageError(
                f"{cache.cache_path}: machine code of {function.__name__} could not be written to this or any other "
                f"folder. Set NUMBA_CACHE_DIR to a writable folder with room for some megabytes"
            )
        folder = cache.folder
    return folder


def _calls() -> list[tuple[Any, tuple[Any, ...]]]:
    """List all functions that Python calls, with arguments of a loader's types and no work in them."""
    programs = [_program("rgb"), _program("rgba")]
    ring = ring_buffer.allocate_ring(1, 1, draw_columns(programs), workers=1)
    outputs = outputs_of(programs)
    worker = Worker(programs, outputs)
    none, numbers = np.zeros(0, np.uint64), np.zeros(0, np.int32)
    pixels, rows, columns = np.zeros((0, 3), np.uint8), np.zeros((0, 1), np.uint8), np.zeros((0, 8), np.int32)
    numbers64 = np.zeros(0, np.int64)
    factors, tables, lanes = outputs.factors[0], outputs.tables[0], np.zeros(0, np.int8)
    stored = none, none, numbers, numbers, np.zeros(0, np.uint8), np.zeros(256, np.int64)
    return [
        (ring_buffer.wake, (ring, True)),  # `work` returns at once then
        (ring_buffer.await_tickets, (ring, 0)),
        (ring_buffer.work, (ring, outputs, worker.scratch(1, 1, 0), 0)),
        (ring_buffer.work_other_kinds, (ring, outputs, worker.other_kinds_scratch(1, 1), 0)),
        (fill_uniform, (0, 0, 0, none, np.zeros((0, 2), np.uint32), np.zeros((0, 0)))),
        (
            compiled_rule(),
            (np.zeros((2, 0)), np.zeros((4, 0)), np.zeros((1, 0)), np.ones(4), True, np.zeros((0, 4), np.int32)),
        ),
        (gather_rows, (none, none, rows)),
        (probe_jpegs, (none, none, columns)),
        (write_entries, (none, none, np.zeros(1, np.uint64), np.zeros(0, np.uint32), rows, worker.scratch(1, 1, 0))),
        (find_damage, (none, none, none, np.zeros(0, np.bool_))),
        (pack_regions, (none, none, none)),
        (pack_crops, (none, numbers, columns, none, numbers)),
        (assign_routes, (stored[4], none, numbers, numbers, columns, lanes, 0, lanes)),
        (lay_out_pixels, (lanes, 1, 1, columns, numbers, none, numbers)),
        (most_taps, (columns, 1, 1, 1)),
        (ring_buffer.write_tasks, (ring, 0, 0, 0, 0, stored, columns, 0, 0)),
        (ring_buffer.publish, (ring, 0)),
        (ring_buffer.complete, (ring, 0, 0)),
        (ring_buffer.give_up, (ring, 0)),
        (ring_buffer.await_batch, (ring, 0, False)),
        (store_rows, (pixels, np.zeros(0, np.uint8), 0, factors, tables)),
        (run_listed, (rows, columns, numbers64, *[rows.reshape(-1)] * 3, numbers64)),
    ]


def _program(kind: str) -> ImageProgram:
    decoder = CenterCropImageDecoder((1, 1), 1)
    decoder.accept_field(ImageField(kind))
    return compile_image_program("image", 0, [decoder], np.ones(1, np.int64), np.ones(1, np.int64))
