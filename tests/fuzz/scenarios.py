"""Scenarios: a loader takes random steps; its batches equal those of a fresh loader in the same epoch.

After each scenario there are as many threads and open files as before, and at the end of all no more memory.
"""

from __future__ import annotations

import gc
import itertools
import json
import threading
import time
from pathlib import Path

import torch

from gpubeton.errors import LoaderClosedError
from gpubeton.fields import IntField, RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import RandomHorizontalFlip, ToTensor
from tests.fuzz.campaign import Outcome, rng_of, workers
from tests.small_files import damage, picture, write

_SAMPLES = 40
_STEPS = 12
#: Scenarios after which memory has reached its size, and bytes that it may grow by from there on.
_SETTLED, _GROWTH = 100, 64 << 20


class Campaign:
    def __init__(self, seed, folder):
        self.seed, self.scenarios, self.settled = seed, 0, 0
        self.files = {mode: _file(folder / f"{mode}.beton", mode) for mode in ("jpg", "raw")}
        scenario = Scenario(self.files, rng_of(seed, 0))
        list(scenario.loader)  # compiles, which leaves a locked file open
        scenario.close()

    def case(self, number):
        rng = rng_of(self.seed, number)
        gc.collect()
        before = _held()
        scenario, done = Scenario(self.files, rng), []
        try:
            for _ in range(_STEPS):
                step = STEPS[int(rng.integers(len(STEPS)))]
                done.append(step.__name__)
                fault = step(scenario, rng)
                if fault:
                    return [Outcome("other batches", f"{fault}; steps: {', '.join(done)}; {scenario.options}")]
        except Exception as error:
            raise RuntimeError(f"steps: {', '.join(done)}; {scenario.options}") from error
        finally:
            scenario.close()
        self.scenarios += 1
        if self.scenarios == _SETTLED:
            self.settled = _memory()
        left = _left(before)
        return [Outcome("not released", left)] if left else [Outcome("as a fresh loader")]

    def close(self):
        if self.scenarios < 3 * _SETTLED:
            return []
        grown = _memory() - self.settled
        text = f"{grown >> 20} MiB in {self.scenarios - _SETTLED} scenarios" if grown > _GROWTH else ""
        return [Outcome("memory grows" if text else "memory stays", text)]


def _file(path, mode):
    """Images of several sizes with their numbers; in the JPEG one two are damaged."""
    samples = [(picture(i, 12 + i % 7, 16), i) for i in range(_SAMPLES)]
    write(path, {"image": RGBImageField(mode), "label": IntField()}, samples)
    if mode == "jpg":
        for sample in (5, 23):
            damage(path, sample, content=bytes(200))
    return path


def _memory():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def _held():
    return len(threading.enumerate()), len(list(Path("/proc/self/fd").iterdir()))


def _left(before):
    """Describe threads and files that are new and stay; threads may take a moment to end."""
    for _ in range(100):
        gc.collect()
        now = _held()
        if now <= before or (now[0] <= before[0] and now[1] <= before[1]):
            return ""
        time.sleep(0.02)
    return f"threads and open files: {before} before, {now} after"


class Scenario:
    """A loader, and what a fresh one would be made with."""

    def __init__(self, files, rng):
        mode = ("jpg", "raw")[int(rng.integers(2))]
        self.path = files[mode]
        self.options = {
            "batch_size": int(rng.integers(1, 12)),
            "num_workers": workers(int(rng.integers(1, 4))),
            "os_cache": bool(rng.integers(2)),
            "order": ("sequential", "random", "quasi_random")[int(rng.integers(2 + (mode == "raw")))],
            "seed": int(rng.integers(1000)),
            "drop_last": bool(rng.integers(2)),
            "batches_ahead": int(rng.integers(1, 5)),
            "on_error": ("skip", "replace")[int(rng.integers(2))],
            "indices": list(range(_SAMPLES)),
        }
        self.loader = self.fresh()

    def fresh(self):
        pipeline = [RandomResizedCropRGBImageDecoder((9, 8)), RandomHorizontalFlip(), ToTensor()]
        return Loader(self.path, pipelines={"image": pipeline}, **self.options)

    def expected(self, epoch):
        """The batches of an epoch, of a loader that did nothing before."""
        loader = self.fresh()
        loader.set_epoch(epoch)
        batches = list(loader)
        loader.close()
        return batches

    def close(self):
        self.loader.close()


def _differ(result, expected, what):
    if len(result) != len(expected):
        return f"{what}: {len(result)} batches, expected {len(expected)}"
    for i, (output, other) in enumerate(zip(result, expected, strict=True)):
        if len(output) != len(other) or not all(map(torch.equal, output, other)):
            return f"{what}: batch {i} differs"
    return ""


def go_through(scenario, rng):
    epoch = scenario.loader.next_epoch
    return _differ(list(scenario.loader), scenario.expected(epoch), f"epoch {epoch}")


def leave_early(scenario, rng):
    epoch, count = scenario.loader.next_epoch, int(rng.integers(0, 4))
    results = list(itertools.islice(scenario.loader, count))
    return _differ(results, scenario.expected(epoch)[:count], f"start of epoch {epoch}")


def two_at_once(scenario, rng):
    epoch = scenario.loader.next_epoch
    first, second = iter(scenario.loader), iter(scenario.loader)
    result = [], []
    for _ in range(200):
        k = int(rng.integers(2))
        batch = next((first, second)[k], None)
        if batch is not None:
            result[k].append(batch)
    result[0].extend(first)
    result[1].extend(second)
    fault = _differ(result[0], scenario.expected(epoch), f"epoch {epoch} of two at once")
    return fault or _differ(result[1], scenario.expected(epoch + 1), f"epoch {epoch + 1} of two at once")


def set_epoch(scenario, rng):
    scenario.loader.set_epoch(int(rng.integers(1000)))
    return ""


def resume(scenario, rng):
    """A new loader goes on with the state of this one, which goes on, too."""
    epoch, batches = scenario.loader.next_epoch, iter(scenario.loader)
    count = len(list(itertools.islice(batches, int(rng.integers(0, 4)))))
    state = json.loads(json.dumps(scenario.loader.state_dict()))
    expected = scenario.expected(epoch)
    other = scenario.fresh()
    other.load_state_dict(state)
    resumed = list(other)
    following = _differ(list(itertools.islice(other, 2)), scenario.expected(epoch + 1)[:2], "the epoch after resuming")
    other.close()
    fault = _differ(list(batches), expected[count:], f"epoch {epoch} from batch {count}")
    if resumed and count == len(expected):  # a loader that is at the end of an epoch begins the next one
        expected, count = scenario.expected(epoch + 1), 0
        following = ""
    return fault or _differ(resumed, expected[count:], f"resumed epoch {epoch} from batch {count}") or following


def go_back(scenario, rng):
    """Load an earlier state of the same loader."""
    epoch, batches = scenario.loader.next_epoch, iter(scenario.loader)
    count = len(list(itertools.islice(batches, 1)))
    state = scenario.loader.state_dict()
    list(itertools.islice(batches, int(rng.integers(3))))
    if count == len(scenario.expected(epoch)):
        return ""
    scenario.loader.load_state_dict(state)
    return _differ(list(scenario.loader), scenario.expected(epoch)[count:], f"epoch {epoch} again from batch {count}")


def other_samples(scenario, rng):
    # More than the two damaged ones: those alone cannot be replaced.
    chosen = rng.permutation(_SAMPLES)[: int(rng.integers(3, _SAMPLES + 1))].tolist()
    scenario.options["indices"] = scenario.loader.indices = chosen
    return ""


def other_settings(scenario, rng):
    scenario.options["batch_size"] = scenario.loader.batch_size = int(rng.integers(1, 12))
    scenario.options["num_workers"] = scenario.loader.num_workers = workers(int(rng.integers(1, 4)))
    scenario.options["batches_ahead"] = scenario.loader.batches_ahead = int(rng.integers(1, 5))
    scenario.options["drop_last"] = scenario.loader.drop_last = bool(rng.integers(2))
    return ""


def filtered(scenario, rng):
    """A filter's loader begins at epoch 0, with the samples of this one that are wanted."""
    number = int(rng.integers(2, 5))
    part = scenario.loader.filter("label", lambda label: int(label) % number == 0)
    expected = [sample for sample in scenario.options["indices"] if sample % number == 0]
    if part.indices.tolist() != expected:
        return f"filter: {part.indices.tolist()}, expected {expected}"
    before = scenario.options
    scenario.options = {**before, "indices": expected}
    try:
        return _differ(list(part), scenario.expected(0), "epoch 0 of a filter") if expected else ""
    finally:
        part.close()
        scenario.options = before


def new_loader(scenario, rng):
    epoch = scenario.loader.next_epoch
    batches = iter(scenario.loader)
    next(batches, None)
    scenario.loader.close()
    try:
        iter(scenario.loader)
    except LoaderClosedError:
        pass
    else:
        return "a closed loader begins an epoch"
    scenario.loader = scenario.fresh()
    scenario.loader.set_epoch(epoch)
    return ""


STEPS = (
    go_through,
    leave_early,
    leave_early,
    two_at_once,
    set_epoch,
    resume,
    go_back,
    other_samples,
    other_settings,
    filtered,
    new_loader,
)
