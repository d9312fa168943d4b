"""DatasetWriter and `convert`, killed or interrupted at random moments.

The file of before is intact or the new one is complete; a second run gives the bytes of one that nothing interrupts,
and leaves nothing beside the file. Half of the moments are samples, the others times, which depend on the machine: such
a case may take another way when it is tried again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from multiprocessing import resource_tracker

import numpy as np
import tqdm

from gpubeton.dataset import convert, open_source
from gpubeton.fields import BytesField, IntField, RGBImageField
from gpubeton.writer import DatasetWriter
from tests.fuzz.campaign import Outcome, rng_of
from tests.picture_folders import write_folder
from tests.small_files import picture

_OLD = b"an older file"
_SAMPLES = 200
_INTERRUPTED = 1
_SECONDS_TO_END = 20


def _go_on(sample):
    """What happens at a sample where nothing does."""


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        write_folder(folder / "pictures", _SAMPLES)
        self.samples = [(picture(i, 60, 80), np.random.default_rng(i).bytes(4000), i) for i in range(_SAMPLES)]
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

    def _write(self, path, processes, reached=_go_on):
        fields = {"image": RGBImageField("jpg"), "bytes": BytesField(), "label": IntField()}
        writer = DatasetWriter(path, fields, 2 << 20, processes, progress=False, start_method="fork")
        writer.from_indexed_dataset(_Samples(self.samples, reached), chunksize=10)

    def _convert(self, path, processes, reached=_go_on):
        source = open_source(self.folder / "pictures")
        left = list(range(_SAMPLES))

        def report(done, _):
            while left and left[0] < done:
                reached(left.pop(0))

        convert(source, path, num_workers=processes, start_method="fork", overwrite=True, on_progress=report)

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
        if rng.random() < 0.5:
            sample = int(rng.integers(_SAMPLES))
            process, moment = _fork(tool, path, processes, sample, kill), f"sample {sample}"
        else:
            process, seconds = _fork(tool, path, processes), rng.random() * self.seconds[tool.__name__, processes]
            time.sleep(seconds)
            moment = f"{seconds:.3f} s"
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, kill)
        status = _wait(process)
        facts = f"{tool.__name__}, {processes} processes, {kill.name} at {moment}, status {status}"
        outcomes = list(self._look(tool, path, processes, old, facts))
        # An exception removes the writer's temporary file; `convert` keeps its file to resume from.
        if status == _INTERRUPTED and tool == self._write and (beside := _beside(path)):
            outcomes.append(Outcome("an interrupt leaves something", f"{facts}: {beside}"))
        return [*outcomes, *self._again(tool, path, processes, facts)]

    def _look(self, tool, path, processes, old, facts):
        complete = self.complete[tool.__name__]
        result = path.read_bytes() if path.exists() else None
        if result == complete:
            yield Outcome(f"{tool.__name__}: complete")
        elif result == (_OLD if old else None):
            yield Outcome(f"{tool.__name__}: interrupted, the old file is intact")
        else:
            size = "no" if result is None else f"{len(result)}"
            yield Outcome("neither the old file nor the new one", f"{facts}: {size} bytes")

    def _again(self, tool, path, processes, facts):
        if _wait(_fork(tool, path, processes)) != 0:
            yield Outcome("the second run fails", facts)
            return
        same = path.read_bytes() == self.complete[tool.__name__]
        yield Outcome("second run: the same bytes" if same else "second run: other bytes", "" if same else facts)
        beside = _beside(path)
        verdict = "left beside the file" if beside else "nothing beside the file"
        yield Outcome(verdict, f"{facts}: {beside}" if beside else "")


class _Samples:
    """A dataset that reports which sample is taken from it."""

    def __init__(self, samples, reached):
        self.samples, self.reached = samples, reached

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, number):
        self.reached(number)
        return self.samples[number]


def _beside(path):
    return sorted(file.name for file in path.parent.iterdir() if file != path)


def _fork(tool, path, processes, last=None, kill=0):
    """Run a tool in a separate process and group, which is killed at a sample; give its id."""
    process = os.fork()
    if process:
        return process
    status = 2
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # A process that a user begins starts its tracker of semaphores, which ends after it.
        vars(resource_tracker._resource_tracker).update(_fd=None, _pid=None)
        # One that is killed while it holds the lock of all progress bars would hold up those that follow.
        tqdm.tqdm.set_lock(threading.RLock())
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Python's traceback of an interrupt
        main = os.getpid()
        tool(path, processes, lambda sample: os.kill(main, kill) if sample == last else None)
        status = 0
    except KeyboardInterrupt:
        status = _INTERRUPTED
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
