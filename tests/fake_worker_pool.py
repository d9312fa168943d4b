"""A worker pool without threads and without a decoder, for planting faults."""

from __future__ import annotations

import ctypes
import threading
import zlib
from collections import deque

from gpubeton._plan.image_job import Usage
from gpubeton.errors import LoaderClosedError


class FakeWorkerPool:
    """Fills each output with a level that is made from its image's bytes."""

    usage = Usage()

    def __init__(self, programs, batch_size, num_workers, ring):
        self.num_programs = len(programs)
        self.batch_size = batch_size
        self.ring = ring
        self.batches = deque()
        self.num_collected = 0
        self.is_closed = threading.Event()

    def submit(self, jobs):
        assert len(jobs) == self.num_programs
        assert len(self.batches) < self.ring
        self.batches.append(jobs)

    def collect(self):
        if self.is_closed.is_set():
            raise LoaderClosedError("closed")
        self.num_collected += 1
        for program, job in enumerate(self.batches.popleft()):
            self.decode(program, job)
        return []

    def decode(self, program, job):
        assert len(job.address) == len(job.out) <= self.batch_size
        for row, (address, size) in enumerate(zip(job.address.tolist(), job.size.tolist(), strict=True)):
            job.out[row] = zlib.crc32(ctypes.string_at(address, size)) % 256
        return []

    def close(self):
        self.is_closed.set()
