"""The batches of the self-test, from the CPU path. ``python -m tests.gpu_path.self_test_batch`` writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np

from gpubeton._cpu.jpeg.entries import find_entries
from gpubeton._cpu.worker_pool import WorkerPool
from gpubeton._gpu import self_test
from gpubeton._plan.draw_rows import identity_draws
from gpubeton._plan.routes import HEIGHT, PROBE_COLUMNS, WIDTH
from tests.cpu.pictures import jpeg, pillow_jpeg
from tests.cpu.plain_jpeg import ZIGZAG, Component, write
from tests.gpu_path.gpu_room import JpegReader, probe_jpegs

PATH = Path(self_test.__file__).with_suffix(".npz")

#: Crops (top, left, height, width) of the batch "small", of pictures of 64 x 96, and whether they are flipped.
DRAWS = [(3, 5, 41, 70, 1), (10, 20, 50, 33, 0), (0, 0, 64, 96, 1), (30, 50, 13, 22, 0), (7, 9, 55, 80, 1)]

#: Images of the batch "full", all of one JPEG.
COPIES = 64


def picture(number):
    """Slow slopes of all colors: decoders that smooth reduced chroma, and those that repeat it, nearly agree."""
    y, x = np.mgrid[0:64, 0:96] / 96
    slopes = [128 + 60 * np.sin(2 * x + (1 + c) * y + number + 2 * c) for c in range(3)]
    return np.rint(np.stack(slopes, axis=-1)).astype(np.uint8)


def small_jpegs():
    """With entry points for three, and restart markers for two."""
    results = [jpeg(picture(number), sampling=kind) for number, kind in enumerate(("4:2:0", "4:4:4", "gray"))]
    return [
        *results,
        pillow_jpeg(picture(3), quality=90, subsampling="4:2:2", restart_marker_blocks=5),
        pillow_jpeg(picture(4), quality=90, subsampling="4:2:0", optimize=True, restart_marker_blocks=1),
    ]


def full_jpeg():
    """Random coefficients: all codes that the tables have, in blocks of very different length."""
    rng, (height, width), components = np.random.default_rng(0), self_test.FULL_SIZE, []
    for identifier in (1, 2, 3):
        blocks = np.zeros((height // 8, width // 8, 64), int)
        for block in blocks.reshape(-1, 64):
            places = rng.choice(63, rng.choice([0, 0, 1, 9]), replace=False) + 1
            block[ZIGZAG[places]] = rng.choice([-1, 1], len(places)) * 2 ** rng.integers(0, 7, len(places))
            block[0] = rng.choice([-1, 1]) * (2 ** rng.integers(0, 11) - 1)
        components.append(Component(identifier, 1, 1, blocks, np.ones(64, int)))
    # Codes of 1 to 12 bits for DC values, of 2 to 16 for others.
    sizes, symbols = list(range(12)), [16 * run + size for run in range(16) for size in range(1, 11)] + [0, 0xF0]
    shuffled = [rng.permutation(symbols) for _ in range(2)]
    tables = b""
    for number, (dc, ac) in enumerate(zip((sizes, sizes[::-1]), shuffled, strict=True)):
        tables += bytes([number, *[1] * 12, *[0] * 4, *dc])
        tables += bytes([16 + number, 0, *[1] * 6, 40, 40, 40, *[1] * 5, len(symbols) - 131, *ac.tolist()])
    return write(components, height, width, dht=tables)


def make(name, jpegs, copies):
    """All that the file holds of a batch, from its JPEGs."""
    stored = {"jpegs": np.frombuffer(b"".join(jpegs), np.uint8)}
    size = np.array([len(data) for data in jpegs], np.uint64)
    stored |= {"size": np.repeat(size, copies), "offset": np.repeat(np.cumsum(size) - size, copies)}
    size, address = stored["size"], stored["offset"] + np.uint64(stored["jpegs"].ctypes.data)
    probes = np.zeros((len(size), PROBE_COLUMNS), np.int32)
    probe_jpegs(address, size, probes)
    draws = np.repeat(identity_draws(*self_test.FULL_SIZE), len(size), axis=0)
    if name == "small":
        draws[:, :5] = DRAWS
    result = find_entries(address, size)
    first = result.first[:-1].astype(np.intp)
    points = np.where(result.counts > 0, result.entries.ctypes.data + 10 * first, 0).astype(np.uint64)
    sides = np.ascontiguousarray(probes[:, HEIGHT]), np.ascontiguousarray(probes[:, WIDTH])
    reader = JpegReader()
    parts = reader.read(address, size, *sides, points, result.counts.astype(np.int32), result.seals, draws)
    intervals = reader.list_intervals(address, size, points, parts)
    if name == "full":
        # Not sorted by size: the lanes of a warp have different intervals. Columns compress better than rows.
        intervals = intervals._replace(intervals=np.asfortranarray(np.unique(intervals.intervals, axis=0)))
    stored |= {"probes": probes, "draws": draws, **parts._asdict(), **intervals._asdict()}
    programs = self_test.programs_on("cpu", name)
    if programs[-1].num_rows:
        stored["steps"] = programs[-1].draw_steps(3, 0, np.arange(len(size), dtype=np.uint64))
    stored["crc"] = np.array([[crc32(image) for image in images(program, stored)] for program in programs], np.uint32)
    if name == "small":
        levels = [replace(program, table=None, mean_std=None, dtype="uint8", steps=()) for program in programs]
        stored["levels"] = np.stack([images(program, stored) for program in levels])
    return stored


def images(program, stored):
    """The images that the CPU makes."""
    out = np.zeros((len(stored["size"]), program.height, program.width, 3), program.dtype)
    job = replace(self_test.job_of(stored, program, stored["jpegs"].ctypes.data, out), keep=stored)
    workers = WorkerPool([program], len(out), num_workers=0, ring=1)
    assert workers.decode(0, job) == []
    workers.close()
    return out


if __name__ == "__main__":
    batches = {"small": make("small", small_jpegs(), 1), "full": make("full", [full_jpeg()], COPIES)}
    np.savez_compressed(PATH, **{f"{name}/{key}": array for name in batches for key, array in batches[name].items()})
