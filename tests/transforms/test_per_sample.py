"""PerSample: the same numbers and results in threads and in processes, and errors that name the sample."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import random
import signal
import time
from functools import partial

import numpy as np
import pytest
import torch

from gpubeton import Loader
from gpubeton.errors import OperationError, OptionError, PipelineError
from gpubeton.fields.decoders import CenterCropRGBImageDecoder
from gpubeton.pipeline.state import State
from gpubeton.transforms import NormalizeImage, PerSample, ToTensor
from tests.small_files import write_photos


def drawn(image, generator):
    """Ignores the image: the numbers that a sample got."""
    image[:] = generator.integers(0, 256, image.shape, np.uint8)
    return image


def drawn_globally(image, generator):
    made = np.zeros((4,), np.float64)
    made[0], made[1], made[2] = random.random(), np.random.random(), torch.rand(()).item()  # noqa: NPY002
    made[3] = generator.random()
    return made


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("small") / "small.beton", 11)


def outputs(file, operation, *, batch_size=5, **options):
    pipelines = {"image": [CenterCropRGBImageDecoder((8, 8), 1), operation, ToTensor()], "label": None}
    loader = Loader(file, batch_size, num_workers=1, pipelines=pipelines, drop_last=False, **{"seed": 0, **options})
    return [torch.cat([images for images, *_ in loader]) for _ in range(2)]


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_numbers_depend_on_seed_epoch_and_sample_only(file, workers):
    first, second = outputs(file, PerSample(drawn, workers=workers, num_workers=2))
    again, _ = outputs(file, PerSample(drawn, num_workers=1), batch_size=3)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert len({image.numpy().tobytes() for image in (*first, *second)}) == len(first) + len(second)
    assert not torch.equal(first, outputs(file, PerSample(drawn), seed=1)[0])


def test_processes_seed_the_global_generators_too(file):
    def operation(number):
        return PerSample(drawn_globally, shape=(4,), dtype=np.float64, workers="processes", num_workers=number)

    first, second = outputs(file, operation(2))
    assert torch.equal(first, outputs(file, operation(1), batch_size=2)[0])
    assert len({*first.flatten().tolist(), *second.flatten().tolist()}) == first.numel() + second.numel()


def test_any_function_of_the_script_runs_in_processes(file):
    own = os.getpid()

    def places(image, generator):
        return np.array([os.getpid() == own])

    assert not outputs(file, PerSample(places, (1,), bool, workers="processes"))[0].any()
    assert outputs(file, PerSample(places, (1,), bool))[0].all()


def test_later_operations_take_the_result(file):
    def half(image, generator):
        return torch.from_numpy(image[::2, ::2])

    pipeline = [
        CenterCropRGBImageDecoder((8, 8), 1),
        PerSample(half, (4, 4, 3)),
        NormalizeImage([0.0] * 3, [2.0] * 3, np.float32),
        ToTensor(),
    ]
    whole = [CenterCropRGBImageDecoder((8, 8), 1), ToTensor()]
    pair = [Loader(file, 2, num_workers=1, pipelines={"image": each, "label": None}) for each in (pipeline, whole)]
    for (images, *_), (plain, *_) in zip(*pair, strict=True):
        assert torch.equal(images, plain[:, ::2, ::2] / 2)


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_errors_name_the_sample(file, workers):
    def fails(image, generator):
        raise LookupError("no such word")

    def wrong(image, generator):
        return image[:3]

    with pytest.raises(OperationError, match="sample 0: LookupError: no such word"):
        outputs(file, PerSample(fails, workers=workers))
    with pytest.raises(OperationError, match=r"sample 0: .*uint8 \(3, 8, 3\); expected uint8 \(8, 8, 3\)"):
        outputs(file, PerSample(wrong, workers=workers))


def test_a_process_that_dies_is_an_error(file):
    def dies(image, generator):
        os._exit(1)

    with pytest.raises(OperationError, match="num_workers"):
        outputs(file, PerSample(dies, workers="processes", num_workers=1))


class TwoPartsError(BaseException):
    """Cannot be sent between processes: it cannot be made again of its text."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


@pytest.mark.parametrize(("error", "expected"), [(KeyboardInterrupt(), KeyboardInterrupt), (SystemExit(3), SystemExit)])
def test_errors_that_are_to_end_the_program_stay_what_they_are(error, expected):
    def raises(image, generator):
        raise error

    for workers in ("threads", "processes"):
        with pytest.raises(expected):
            applied(PerSample(raises, workers=workers, num_workers=1))


def test_an_error_that_cannot_be_sent_is_no_death_of_a_process():
    def raises(image, generator):
        raise TwoPartsError("one", "other")

    with pytest.raises(OperationError, match="TwoPartsError: one and other"):
        applied(PerSample(raises, workers="processes", num_workers=1))


def test_a_daemonic_process_is_told_to_use_threads(monkeypatch):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(OperationError, match="threads"):
        applied(PerSample(Reversed(), workers="processes", num_workers=1))


class Reversed:
    def __call__(self, image, generator):
        return image[::-1]


def applied(operation, count=2):
    images = np.arange(count * 48, dtype=np.uint8).reshape(count, 4, 4, 3)
    return operation.apply(images, np.arange(count, dtype=np.uint64)[:, None])


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_copies_work_and_so_do_pickled_ones(workers):
    operation = PerSample(Reversed(), workers=workers, num_workers=1)
    expected = applied(operation)
    for other in (copy.copy(operation), copy.deepcopy(operation), pickle.loads(pickle.dumps(operation))):
        assert (applied(other) == expected).all()


def test_a_copy_with_its_own_function_begins_processes_once():
    own = PerSample(Reversed(), workers="processes", num_workers=1)
    copied = copy.deepcopy(own)
    before = children()
    for _ in range(3):
        applied(own), applied(copied)
    assert len(children() - before) == 2


def children():
    return {each.pid for each in multiprocessing.active_children()}


def test_a_forked_process_begins_its_own_workers():
    for workers in ("threads", "processes"):
        operation = PerSample(Reversed(), workers=workers, num_workers=1)
        expected = applied(operation)
        if not (child := os.fork()):
            signal.alarm(300)  # ends it, if it waits for workers that it does not have
            try:
                os._exit(0 if (applied(operation) == expected).all() else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0, workers


def train(file, workers, end):
    """Take a batch as one of several processes of a training; end as told."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest has a handler
    signal.alarm(200)  # ends this process, if it waits for its workers
    loader = training_loader(file, workers)
    for _ in loader:
        if end == "raises":
            raise ArithmeticError
        if end == "keeps the loader":
            _ALIVE.append(loader)
            break


def training_loader(file, workers):
    operation = PerSample(Reversed(), workers=workers, num_workers=1)
    pipelines = {"image": [CenterCropRGBImageDecoder((8, 8), 1), operation, ToTensor()]}
    return Loader(file, 2, num_workers=1, pipelines=pipelines)


_ALIVE = []


@pytest.mark.parametrize("workers", ["threads", "processes"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_process_with_a_loader_ends(file, workers, method):
    list(training_loader(file, "threads"))  # compiled for the forked ones
    ends = {"returns": 0, "keeps the loader": 0, "raises": 1}
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=train, args=(file, workers, end)) for end in ends]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == list(ends.values())


def test_processes_end_when_their_loader_is_killed():
    ours, theirs = os.pipe()
    if not (child := os.fork()):
        try:
            applied(PerSample(Reversed(), workers="processes", num_workers=2))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(theirs)
    os.waitpid(child, 0)
    assert os.read(ours, 1) == b""  # which waits as long as a process of it has the pipe open
    os.close(ours)


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_after_an_error_nothing_goes_on_for_the_batch(workers):
    counts = multiprocessing.Array("i", 2)

    def fails_once(image, generator):
        with counts.get_lock():
            counts[0] += 1
            first = counts[0] == 1
        if first:
            raise LookupError
        time.sleep(0.2)
        with counts.get_lock():
            counts[1] += 1
        return image

    with pytest.raises(OperationError):
        applied(PerSample(fails_once, workers=workers, num_workers=4), count=4)
    with counts.get_lock():
        done = counts[1]
    time.sleep(0.5)
    assert counts[1] == done


def test_what_cannot_work_is_refused():
    with pytest.raises(OptionError, match="threads"):
        PerSample(drawn, workers="cores")
    for function in (len, partial(drawn, 0), os.getcwd):
        with pytest.raises(OptionError, match=r"function\(sample, generator\)"):
            PerSample(function)
    for function in (Reversed(), partial(drawn), torch.nn.Identity(), max, print):
        PerSample(function)
    with pytest.raises(PipelineError, match="ToTensor"):
        PerSample(drawn).declare_state_and_memory(State(False, "cpu", (4,), torch.uint8))
    with pytest.raises(PipelineError, match="ToDevice"):
        PerSample(drawn).check_unfused("cuda")
