"""DatasetWriter and `convert`, killed or interrupted at random moments.

The file of before is intact or the new one is complete; a second run gives the bytes of one that nothing interrupts,
and leaves nothing beside the file. The moments depend on the machine: a case that is tried again may take another way.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from multiprocessing import resource_tracker

import numpy as np

from gpubeton.conversion import convert, open_source
from gpubeton.fields import BytesField, IntField, RGBImageField
from gpubeton.writer import DatasetWriter
from tests.fuzz.campaign import Outcome, rng_of
from tests.picture_folders import write_folder
from tests.small_files import picture

_OLD = b"an older file"
_SECONDS_TO_END = 20


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        write_folder(folder / "pictures", 200)
        self.samples = [(picture(i, 60, 80), np.random.default_rng(i).bytes(4000), i) for i in range(200)]
        self.complete, self.seconds = {}, {}
        for tool in (self._write, self._convert):
            for processes in (1, 2):
                path = folder / "sound.beton"
                start = time.monotonic()
                _wait(_fork(tool, path, processes))
                self.seconds[tool.__name__, processes] = time.monotonic() - start
                self.complete[tool.__name__] = path.read_bytes()
                path.unlink()

    def close(self):
        return []

    def _write(self, path, processes):
        fields = {"image": RGBImageField("jpg"), "bytes": BytesField(), "label": IntField()}
        writer = DatasetWriter(path, fields, 2 << 20, processes, progress=False, start_method="fork")
        writer.from_indexed_dataset(self.samples, chunksize=10)

    def _convert(self, path, processes):
        source = open_source(self.folder / "pictures")
        convert(source, path, num_workers=processes, start_method="fork")

    def case(self, number):
        rng = rng_of(self.seed, number)
        tool = (self._write, self._convert)[int(rng.integers(2))]
        processes, kill = int(rng.integers(1, 3)), (signal.SIGKILL, signal.SIGINT)[int(rng.integers(2))]
        place = self.folder / "here"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        path = place / "data.beton"
        if old := rng.random() < 0.5:
            path.write_bytes(_OLD)
        process = _fork(tool, path, processes)
        after = 1.1 * rng.random() * self.seconds[tool.__name__, processes]
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, kill)
        status = _wait(process)
        facts = f"{tool.__name__}, {processes} processes, {kill.name} after {after:.3f} s, status {status}"
        return list(self._look(tool, path, processes, old, facts))

    def _look(self, tool, path, processes, old, facts):
        complete = self.complete[tool.__name__]
        found = path.read_bytes() if path.exists() else None
        if found == complete:
            yield Outcome(f"{tool.__name__}: complete")
        elif found == (_OLD if old else None):
            yield Outcome(f"{tool.__name__}: interrupted, what was there is intact")
        else:
            size = "no" if found is None else f"{len(found)}"
            yield Outcome("neither the old file nor the new one", f"{facts}: {size} bytes")
        if _wait(_fork(tool, path, processes)) != 0:
            yield Outcome("the second run fails", facts)
            return
        same = path.read_bytes() == complete
        yield Outcome("second run: the same bytes" if same else "second run: other bytes", "" if same else facts)
        beside = sorted(one.name for one in path.parent.iterdir() if one != path)
        verdict = "left beside the file" if beside else "nothing beside the file"
        yield Outcome(verdict, f"{facts}: {beside}" if beside else "")


def _fork(tool, path, processes):
    """Run a tool in a process of its own, and in a group of its own; give its id."""
    process = os.fork()
    if process:
        return process
    status = 2
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # A process that a user begins has a tracker of semaphores of its own, which ends after it.
        vars(resource_tracker._resource_tracker).update(_fd=None, _pid=None)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what Python says of an interrupt
        tool(path, processes)
        status = 0
    except KeyboardInterrupt:
        status = 1
    finally:
        os._exit(status)


def _wait(process):
    """Wait for a process and those that it began; give its status."""
    _, status = os.waitpid(process, 0)
    deadline = time.monotonic() + _SECONDS_TO_END
    while time.monotonic() < deadline:
        try:
            os.killpg(process, 0)
        except ProcessLookupError:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(process, signal.SIGKILL)
    raise TimeoutError(f"processes of {process} go on for {_SECONDS_TO_END} s after it")
