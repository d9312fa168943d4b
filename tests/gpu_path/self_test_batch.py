"""The batch of the self-test, from the CPU path. ``python -m tests.gpu_path.self_test_batch`` writes it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gpubeton.cpu.jpeg.entries import find_entries
from gpubeton.cpu.jpeg.part_reader import JpegReader
from gpubeton.cpu.jpeg.probe import probe_jpegs
from gpubeton.cpu.worker_pool import WorkerPool
from gpubeton.gpu import self_test
from gpubeton.plan.draw_rows import DRAW_COLUMNS
from gpubeton.plan.lanes import HEIGHT, SURVEY_COLUMNS, WIDTH
from tests.cpu.pictures import jpeg, pillow_jpeg

PATH = Path(self_test.__file__).with_suffix(".npz")

#: Crops (top, left, height, width), and whether they are flipped, of pictures of 64 x 96.
DRAWS = [(3, 5, 41, 70, 1), (10, 20, 50, 33, 0), (0, 0, 64, 96, 1), (30, 50, 13, 22, 0), (7, 9, 55, 80, 1)]


def picture(number):
    """Slow slopes of all colors: decoders that smooth reduced chroma, and those that repeat it, nearly agree."""
    y, x = np.mgrid[0:64, 0:96] / 96
    slopes = [128 + 60 * np.sin(2 * x + (1 + c) * y + number + 2 * c) for c in range(3)]
    return np.rint(np.stack(slopes, axis=-1)).astype(np.uint8)


def new_jpegs():
    """With entry points for three, and restart markers for two."""
    found = [jpeg(picture(number), sampling=kind) for number, kind in enumerate(("4:2:0", "4:4:4", "gray"))]
    return [
        *found,
        pillow_jpeg(picture(3), quality=90, subsampling="4:2:2", restart_marker_blocks=5),
        pillow_jpeg(picture(4), quality=90, subsampling="4:2:0", optimize=True, restart_marker_blocks=1),
    ]


def make(jpegs):
    """All that the file holds, from the JPEGs."""
    stored = {"jpegs": np.frombuffer(b"".join(jpegs), np.uint8), "size": np.array([len(data) for data in jpegs])}
    size = stored["size"].astype(np.uint64)
    address = np.cumsum(size) - size + np.uint64(stored["jpegs"].ctypes.data)
    survey, draws = np.zeros((len(jpegs), SURVEY_COLUMNS), np.int32), np.zeros((len(jpegs), DRAW_COLUMNS), np.int32)
    probe_jpegs(address, size, survey)
    draws[:, :5] = DRAWS
    found = find_entries(address, size)
    first = found.first[:-1].astype(np.intp)
    given = np.where(found.counts > 0, found.entries.ctypes.data + 10 * first, 0).astype(np.uint64)
    sides = np.ascontiguousarray(survey[:, HEIGHT]), np.ascontiguousarray(survey[:, WIDTH])
    reader = JpegReader()
    parts = reader.read(address, size, *sides, given, found.counts.astype(np.int32), found.seals, draws)
    intervals = reader.list_intervals(address, size, given, parts)
    stored |= {"survey": survey, "draws": draws, **parts._asdict(), **intervals._asdict()}
    program = replace(self_test.program_on("cpu"), table=None, mean_std=None, dtype="uint8")
    levels = np.zeros((len(jpegs), *self_test.SIZE, 3), np.uint8)
    job = replace(self_test.job_of(stored, stored["jpegs"].ctypes.data, levels), keep=stored)
    workers = WorkerPool([program], len(jpegs), num_workers=0, ring=1)
    assert workers.decode(0, job) == []
    workers.close()
    return {**stored, "levels": levels}


if __name__ == "__main__":
    np.savez_compressed(PATH, **make(new_jpegs()))
