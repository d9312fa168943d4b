"""A worker pool without threads and without a decoder, for planting faults."""

from __future__ import annotations

import ctypes
import threading
import zlib
from collections import deque

from gpubeton._plan.image_job import BadImage, Usage
from gpubeton.errors import LoaderClosedError


def level(content: bytes) -> int:
    """The level that a stored image is "decoded" to."""
    return zlib.crc32(content) % 256


class FakeWorkerPool:
    """Fills each output with the level of its image's bytes.

    Images whose level is in `bad` cannot be decoded. `before_collect(batch)` is called while a batch is waited for.
    """

    bad: frozenset[int] = frozenset()
    usage = Usage()
    before_collect = None

    def __init__(self, programs, batch_size, num_workers, ring):
        self.num_programs = len(programs)
        self.batch_size = batch_size
        self.ring = ring
        self.batches = deque()
        self.num_collected = 0
        self.num_decoded = 0
        self.is_closed = threading.Event()

    def submit(self, jobs):
        assert len(jobs) == self.num_programs
        assert len(self.batches) < self.ring
        self.batches.append(jobs)

    def collect(self):
        if self.is_closed.is_set():
            raise LoaderClosedError("closed")
        if self.before_collect is not None:
            self.before_collect(self.num_collected)
        self.num_collected += 1
        jobs = self.batches.popleft()
        return [image for program, job in enumerate(jobs) for image in self.decode(program, job)]

    def decode(self, program, job):
        bad = []
        assert len(job.address) == len(job.out) <= self.batch_size
        for row, (address, size) in enumerate(zip(job.address.tolist(), job.size.tolist(), strict=True)):
            self.num_decoded += 1
            job.out[row] = result = level(ctypes.string_at(address, size))
            if result in self.bad:
                job.out[row] = 255  # of no value
                bad.append(BadImage(program, row, f"level {result} is bad"))
        return bad

    def close(self):
        self.is_closed.set()
