"""PerSample: the same numbers and results for any number of threads, and errors that name the sample."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import threading
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


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return write_photos(tmp_path_factory.mktemp("small") / "small.beton", 11)


def outputs(file, operation, *, batch_size=5, **options):
    pipelines = {"image": [CenterCropRGBImageDecoder((8, 8), 1), operation, ToTensor()], "label": None}
    loader = Loader(file, batch_size, num_workers=1, pipelines=pipelines, drop_last=False, **{"seed": 0, **options})
    return [torch.cat([images for images, *_ in loader]) for _ in range(2)]


def test_numbers_depend_on_seed_epoch_and_sample_only(file):
    first, second = outputs(file, PerSample(drawn, num_workers=2))
    again, _ = outputs(file, PerSample(drawn, num_workers=1), batch_size=3)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert len({image.numpy().tobytes() for image in (*first, *second)}) == len(first) + len(second)
    assert not torch.equal(first, outputs(file, PerSample(drawn), seed=1)[0])


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
    pair = [
        Loader(file, 2, num_workers=1, pipelines={"image": operations, "label": None})
        for operations in (pipeline, whole)
    ]
    for (images, *_), (plain, *_) in zip(*pair, strict=True):
        assert torch.equal(images, plain[:, ::2, ::2] / 2)


def test_errors_name_the_sample(file):
    def fails(image, generator):
        raise LookupError("no such word")

    def wrong(image, generator):
        return image[:3]

    def several(image, generator):
        return image, 3

    with pytest.raises(OperationError, match=r"sample 0: LookupError: no such word(?! The function)"):
        outputs(file, PerSample(fails))
    with pytest.raises(OperationError, match=r"sample 0: .*returned a tuple; expected one array"):
        outputs(file, PerSample(several))
    with pytest.raises(OperationError, match=r"sample 0: .*uint8 \(3, 8, 3\); expected uint8 \(8, 8, 3\)"):
        outputs(file, PerSample(wrong))


@pytest.mark.parametrize(("error", "expected"), [(KeyboardInterrupt(), KeyboardInterrupt), (SystemExit(3), SystemExit)])
def test_exceptions_that_end_the_program_are_not_wrapped(error, expected):
    def raises(image, generator):
        raise error

    with pytest.raises(expected):
        applied(PerSample(raises, num_workers=1))


class Reversed:
    def __call__(self, image, generator):
        return image[::-1]


def applied(operation, count=2):
    images = np.arange(count * 48, dtype=np.uint8).reshape(count, 4, 4, 3)
    return operation.apply(images, np.arange(count, dtype=np.uint64)[:, None])


def test_copies_work_and_so_do_pickled_ones():
    operation = PerSample(Reversed(), num_workers=1)
    expected = applied(operation)
    for other in (copy.copy(operation), copy.deepcopy(operation), pickle.loads(pickle.dumps(operation))):
        assert (applied(other) == expected).all()


def test_a_forked_process_begins_its_own_threads():
    operation = PerSample(Reversed(), num_workers=1)
    expected = applied(operation)
    if not (child := os.fork()):
        signal.alarm(300)  # ends it, if it waits for threads that it does not have
        try:
            os._exit(0 if (applied(operation) == expected).all() else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def train(file, end):
    """Take a batch as one of several processes of a training; end in the way that `end` names."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest has a handler
    signal.alarm(200)  # ends this process, if it waits for its threads
    loader = training_loader(file)
    for _ in loader:
        if end == "raises":
            raise ArithmeticError
        if end == "keeps the loader":
            _ALIVE.append(loader)
            break


def training_loader(file):
    operation = PerSample(Reversed(), num_workers=1)
    pipelines = {"image": [CenterCropRGBImageDecoder((8, 8), 1), operation, ToTensor()]}
    return Loader(file, 2, num_workers=1, pipelines=pipelines)


_ALIVE = []


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.campaign)])
def test_a_process_with_a_loader_ends(file, method):
    list(training_loader(file))  # compiled for the forked ones
    ends = {"returns": 0, "keeps the loader": 0, "raises": 1}
    context = multiprocessing.get_context(method)
    processes = [context.Process(target=train, args=(file, end)) for end in ends]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == list(ends.values())


def test_after_an_error_the_rest_of_the_batch_is_not_computed():
    is_first, finished = threading.Lock(), []

    def fails_once(image, generator):
        if is_first.acquire(blocking=False):
            raise LookupError
        time.sleep(0.2)
        finished.append(image)
        return image

    with pytest.raises(OperationError):
        applied(PerSample(fails_once, num_workers=4), count=4)
    count = len(finished)
    time.sleep(0.5)
    assert len(finished) == count


def test_functions_and_devices_that_cannot_work_are_refused():
    for function in (len, partial(drawn, 0), os.getcwd):
        with pytest.raises(OptionError, match=r"function\(sample, generator\)"):
            PerSample(function)
    for function in (Reversed(), partial(drawn), torch.nn.Identity(), max, print):
        PerSample(function)
    with pytest.raises(PipelineError, match="ToTensor"):
        PerSample(drawn).declare_state_and_memory(State(False, "cpu", (4,), torch.uint8))
    with pytest.raises(PipelineError, match="ToDevice"):
        PerSample(drawn).check_unfused("cuda")
