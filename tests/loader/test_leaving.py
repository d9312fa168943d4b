"""Every way out of the loop: all threads, files and memory are released, and nothing hangs."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest
import torch

from gpubeton.errors import LoaderClosedError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor
from tests.fake_worker_pool import FakeWorkerPool
from tests.loader.pipelines import same
from tests.waiting import wait_until

CROP = [CenterCropRGBImageDecoder((32, 32), 1), ToTensor()]


class Pause(torch.nn.Module):
    """Waits in the pipeline until it is let go; shallow copies wait for the same event."""

    def __init__(self):
        super().__init__()
        self.reached, self.go = threading.Event(), threading.Event()

    def forward(self, batch):
        self.reached.set()
        self.go.wait()
        return batch


class Failing(torch.nn.Module):
    def forward(self, batch):
        raise ArithmeticError("planted")


def num_open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def threads():
    return {thread.name for thread in threading.enumerate()}


@pytest.fixture(params=[True, False], ids=["mapped", "read"])
def make(request, photos):
    def make(**arguments):
        same = {"num_workers": 2, "os_cache": request.param, "pipelines": {"image": CROP}}
        return Loader(photos, **{"batch_size": 4, **same, **arguments})

    return make


@pytest.fixture(autouse=True)
def _nothing_is_left(request):
    if "make" not in request.fixturenames:
        yield
        return
    make = request.getfixturevalue("make")
    list(make())  # all imports and compilations are done
    gc.collect()
    before = num_open_files(), threads()
    yield
    gc.collect()
    wait_until(lambda: threads() <= before[1])  # those of earlier tests may end meanwhile
    # A file is closed by the thread that lets go of it last, perhaps as a part of a cycle.
    wait_until(lambda: gc.collect() >= 0 and num_open_files() <= before[0])


def take_all(loader):
    list(loader)


def take_one(loader):
    for _ in range(3):
        for _ in loader:
            break


def fail(loader):
    with pytest.raises(ZeroDivisionError):
        [1 / 0 for _ in loader]


@pytest.mark.parametrize("way", [take_all, take_one, fail])
def test_after_the_last_batch_a_break_and_an_error_threads_are_gone_though_the_loader_lives(make, way):
    before, loader = threads(), make()
    way(loader)
    gc.collect()  # the error has kept the frame of the loop
    assert threads() <= before
    assert loader.next_epoch == (3 if way is take_one else 1)


@pytest.mark.parametrize("count", [0, 1])
def test_an_iterator_in_a_cycle_is_collected_whether_it_was_used_or_not(make, count):
    cycle = [iter(make())]
    cycle.append(cycle)
    for _ in range(count):
        next(cycle[0])


def test_an_iterator_outlives_its_loader(make):
    batches = iter(make())
    gc.collect()
    assert len(list(batches)) == 12


def test_an_error_of_an_operation_reaches_the_loop_as_it_is(make):
    with pytest.raises(ArithmeticError, match="planted"):
        list(make(pipelines={"image": CROP, "label": [ToTensor(), Failing()]}))


def test_an_error_while_workers_are_started_reaches_the_caller(make, monkeypatch):
    def start_workers(*arguments):
        raise MemoryError("planted")

    monkeypatch.setattr("gpubeton.loader.resources.WorkerPool", start_workers)
    loader = make()
    with pytest.raises(MemoryError, match="planted"):
        iter(loader)
    assert loader.next_epoch == 0


def test_a_loop_may_start_again_after_an_error(make):
    failing = Failing()
    pipelines = {"image": CROP, "label": [ToTensor(), failing]}
    loader = make(pipelines=pipelines)
    with pytest.raises(ArithmeticError):
        list(loader)
    loader.pipelines["label"] = [ToTensor()]
    assert len(list(loader)) == 12


def test_leaving_while_a_batch_is_slow_waits_for_it_and_no_longer(make):
    pause = Pause()
    batches = iter(make(pipelines={"image": CROP, "label": [ToTensor(), pause]}))
    pause.reached.wait()
    threading.Timer(0.1, pause.go.set).start()
    batches.close()


def test_closing_the_loader_ends_every_iterator_and_refuses_new_ones(make):
    pause = Pause()
    loader = make(pipelines={"image": CROP, "label": [ToTensor(), pause]})
    iterators, errors = [iter(loader), iter(loader)], []

    def consume(batches):
        try:
            list(batches)
        except LoaderClosedError as error:
            errors.append(error)

    consumers = [threading.Thread(target=consume, args=(batches,)) for batches in iterators]
    for consumer in consumers:
        consumer.start()
    pause.reached.wait()
    threading.Timer(0.1, pause.go.set).start()
    loader.close()
    loader.close()
    for consumer in consumers:
        consumer.join()
    assert len(errors) == 2
    with pytest.raises(LoaderClosedError, match="closed"):
        iter(loader)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_interrupts_a_loop_that_waits(make):
    pause = Pause()
    batches = iter(make(pipelines={"image": CROP, "label": [ToTensor(), pause]}))
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        [interrupt.start(), next(batches)]
    pause.go.set()
    assert len(list(batches)) == 12


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_parent_and_child_of_a_fork_do_not_share_the_memory_of_batches(make):
    loader = make()
    expected = [[output.clone() for output in batch] for batch in loader]
    batches, child = iter(loader), os.fork()
    if child == 0:
        try:
            for _ in range(5):
                list(loader)
            os._exit(0)
        finally:
            os._exit(1)
    results = list(batches)
    assert os.waitpid(child, 0)[1] == 0
    assert same(results, expected)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_the_child_may_begin_an_epoch(make):
    loader = make()
    batches = iter(loader)
    next(batches)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                next(batches)
            except LoaderClosedError:
                loader.set_epoch(0)
                status = 0 if len(list(loader)) == 12 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(batches)) == 11


def test_batches_outlive_everything(make):
    loader = make()
    batches = list(loader)
    sums = [batch[0].sum() for batch in batches]
    alive = weakref.ref(loader)
    loader.close()
    del loader
    gc.collect()
    assert alive() is None
    assert [batch[0].sum() for batch in batches] == sums


PROGRAM = """
import os, sys
sys.path[:0] = {path!r}
import torch
from tests.loader.test_leaving import CROP, Loader
child = os.fork()  # the imports take longer than all that follows
loader = Loader({file!r}, 4, num_workers=2, os_cache=child > 0, pipelines={{"image": CROP}})
batches = iter(loader)
kept = next(batches)
if child:
    print(os.waitpid(child, 0)[1])
    del loader
    raise KeyboardInterrupt
"""


def test_a_program_that_ends_in_the_middle_of_an_epoch_ends(photos):
    root = str(Path(__file__).parents[2])
    program = PROGRAM.format(path=[root, *sys.path], file=str(photos))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=root)
    assert (result.returncode, result.stdout) == (-2, "0\n"), result.stderr


LEAVING = """
import gc, os, sys, time
sys.path[:0] = {path!r}
import torch
from gpubeton.loader import warm_up
from tests.loader.test_leaving import CROP, Loader

class Slow(torch.nn.Module):
    def forward(self, batch):
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            batch = batch.clone()
        return batch

torch.set_num_threads(1)
same = {{"batch_size": 4, "num_workers": 2, "pipelines": {{"image": [*CROP, Slow()]}}}}
places = [
    ({file!r}, {{"os_cache": True}}),
    ({file!r}, {{"os_cache": False}}),
    ({url!r}, {{"order": "window"}}),
    ({url!r}, {{"order": "random", "cache_dir": {cache!r}, "cache_limit": 10**9}}),
]
for fname, arguments in places:
    for epochs, batches in ((0, 0), (0, 1), (1, 2), (2, 0), (1, 11)):
        child = os.fork()
        if child == 0:
            loader = Loader(fname, **same, **arguments)
            for _ in range(epochs):
                list(loader)
            loop = iter(loader) if batches else None
            for _ in range(batches):
                next(loop)
            sys.exit()  # Python ends in the child as in any program
        if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            print(arguments, epochs, batches, status)
    # Children of the first place load the machine code, and visit at their end all objects of all modules; to others,
    # which would take four times as long, the code is given, and a collection passes over these objects.
    warm_up()
    gc.freeze()
"""


@pytest.mark.campaign
def test_a_program_that_never_closes_its_loader_ends_with_status_0_wherever_it_leaves(photos, tmp_path, fault_server):
    fault_server.objects["photos.beton"] = photos.read_bytes()
    fault_server.latency = 0.01
    root, url = str(Path(__file__).parents[2]), fault_server.url("photos.beton")
    program = LEAVING.format(path=[root, *sys.path], file=str(photos), url=url, cache=str(tmp_path / "cache"))
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=root)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


def test_an_error_of_a_worker_reaches_the_loop_as_it_is(make, monkeypatch):
    class DyingPool(FakeWorkerPool):
        def collect(self):
            raise MemoryError("planted")

    monkeypatch.setattr("gpubeton.loader.resources.WorkerPool", DyingPool)
    with pytest.raises(MemoryError, match="planted"):
        list(make())


ALONE = """
import sys
from pathlib import Path

from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.loader import Loader
from gpubeton.transforms import ToTensor

image = [CenterCropRGBImageDecoder((32, 32), 1), ToTensor()]
batches = iter(Loader(sys.argv[1], 4, num_workers=2, pipelines={"image": image}))
next(batches)
children = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
shared = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm" in line]
assert (any(children), shared) == (False, []), (children, shared)
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="it needs Linux")
def test_a_loader_needs_no_process_and_no_shared_memory(photos):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-c", ALONE, photos]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
