"""Processes that share a node's cache, killed at random moments: what the others and later runs read is right.

Half of the moments are calls that write, of which a part may be carried out; the others are times.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
import zlib

import numpy as np

from gpubeton._bytes import node_cache
from gpubeton._bytes.node_cache import NodeCache
from gpubeton._bytes.open_files import open_bytes
from tests.bytes.versioned_source import forget_requests, put
from tests.fuzz.campaign import Outcome, rng_of

_PAGE = 1 << 14
_SIZES = (12 * _PAGE, 7 * _PAGE + 1000)
_LIMITS = (1 << 30, 15 * _PAGE, 8 * _PAGE)
_MOST_WRITES = 60
_WRONG = 3
_WHOLE = 16  # no kernel ends a process within a write of so few bytes


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        self.contents = [np.random.default_rng([seed, size]).bytes(size) for size in _SIZES]
        self.names = [put(folder / f"object{i}", content) for i, content in enumerate(self.contents)]

    def close(self):
        return []

    def case(self, number):
        rng = rng_of(self.seed, number)
        cache, limit = self.folder / "cache", int(rng.choice(_LIMITS))
        if rng.random() < 0.5:  # otherwise what the case before left
            shutil.rmtree(cache, ignore_errors=True)
        for name in self.names:
            forget_requests(name)
        writes = [int(rng.integers(1, _MOST_WRITES)) if rng.random() < 0.5 else 0 for _ in range(3)]
        processes = [
            self._fork(cache, limit, int(rng.integers(1 << 31)), write, part=float(rng.random())) for write in writes
        ]
        doomed = [process for process, write in zip(processes[1:], writes[1:], strict=True) if not write]
        for process in doomed:
            time.sleep(rng.random() * 0.02)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        facts = f"limit {limit}, killed at writes {writes}, statuses {statuses}"
        failed = [status for status in statuses if status not in (0, -signal.SIGKILL)]
        outcomes = [Outcome("a process reads wrong bytes or fails", facts)] if failed else []
        killed = sum(status == -signal.SIGKILL for status in statuses)
        outcomes += [Outcome("a process is killed")] * killed
        return [*outcomes, *self._look(cache, limit, facts)]

    def _look(self, cache, limit, facts):
        """Read everything again, from the marked pages and as a later run does."""
        for name, content in zip(self.names, self.contents, strict=True):
            source = open_bytes(name)
            opened = NodeCache(cache, limit, page_size=_PAGE)
            with opened.open(source, source.identity()) as file:
                wrong = [
                    page
                    for page in range(file.num_pages)
                    if file._has(page)
                    and file._content[page * _PAGE :][:_PAGE].tobytes() != content[page * _PAGE :][:_PAGE]
                ]
                sums = [
                    page
                    for page in range(file.num_pages)
                    if file._has(page) and int(file._entries[page]) >> 32 != zlib.crc32(content[page * _PAGE :][:_PAGE])
                ]
                if wrong or sums:
                    yield Outcome("a marked page is wrong", f"{facts}: {name}: pages {wrong}, checksums {sums}")
                elif bytes(file.load(0, len(content))) != content:
                    yield Outcome("a later run reads wrong bytes", f"{facts}: {name}")
                else:
                    yield Outcome("every byte is right")
            counted = opened.used
            if counted != opened._count_used():
                yield Outcome("the bytes in use are counted wrongly", f"{facts}: {counted}, {opened._count_used()}")

    def _fork(self, cache, limit, seed, write, part):
        """Read both objects in random order, in a process that a write may kill; give its id."""
        process = os.fork()
        if process:
            return process
        status = 2
        try:
            if write:
                _kill_at(write, part)
            rng = np.random.default_rng(seed)
            for name, content in sorted(zip(self.names, self.contents, strict=True), key=lambda _: rng.random()):
                source = open_bytes(name)
                with NodeCache(cache, limit, page_size=_PAGE).open(source, source.identity()) as file:
                    for start in rng.permutation(np.arange(0, len(content), _PAGE // 2)).tolist():
                        size = min(int(rng.integers(1, 2 * _PAGE)), len(content) - start)
                        if bytes(file.load(start, size)) != content[start : start + size]:
                            os._exit(_WRONG)
            status = 0
        finally:
            os._exit(status)


def _kill_at(write, part):
    """Kill this process at that many calls that change something, after a part of the last one."""
    left = [write]

    def counted(original):
        def call(*arguments):
            left[0] -= 1
            if left[0] == 0:
                if original is pwrite and len(arguments[1]) > _WHOLE:
                    descriptor, content, start = arguments
                    pwrite(descriptor, content[: int(len(content) * part)], start)
                elif part < 0.5:
                    original(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        return call

    pwrite = os.pwrite
    for module, name in (
        (os, "pwrite"),
        (os, "ftruncate"),
        (fcntl, "fcntl"),
        (node_cache, "fallocate"),
        (os, "unlink"),
    ):
        setattr(module, name, counted(getattr(module, name)))
