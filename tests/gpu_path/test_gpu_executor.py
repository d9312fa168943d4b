from __future__ import annotations

import gc
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from gpubeton.errors import DeviceError, LoaderClosedError
from tests.cpu.pictures import jpeg, photo, pillow_jpeg
from tests.gpu_path.executor_bench import (
    BATCH,
    SLOTS,
    cpu_services,
    job_of,
    made_by_the_cpu,
    make_cpu_executor,
    open_gpu,
    program_of,
)
from tests.gpu_path.image_samples import raw, stored, twin
from tests.simulator.active_device import device
from tests.simulator.device import DEVICE, PINNED

__all__ = ["device"]

PHOTOS = [stored(jpeg(photo(30 + number, 40 - number, number))) for number in range(BATCH)]
CMYK = stored(pillow_jpeg(photo(20, 20), "CMYK"))
RAW = raw(photo(21, 22))
BROKEN = stored(bytes(100), (10, 10))
CPU_PROGRAM = program_of(device="cpu")


@pytest.fixture
def gpu(device):
    opened = open_gpu(device)
    yield opened
    opened.close()


@pytest.fixture
def begin(gpu):
    """Begins epochs; closes them at the end."""
    results = []

    def begin(*programs, host=None):
        results.append(gpu.start_executor(programs or [program_of()], host or cpu_services()))
        return results[-1]

    yield begin
    for executor in results:
        executor.close()


def submit(executor, images, program=None, **which):
    """Submit a batch of one output; gives its memory."""
    chosen = program or program_of()
    out = executor.take(0, len(images))
    executor.submit([job_of(chosen, images, out, **which)])
    return out


def expected(images, program=CPU_PROGRAM, **which):
    return made_by_the_cpu(program, twin(images), **which)[0]


def test_submitting_never_waits_for_the_gpu(begin, gpu, faults):
    executor = begin()
    with faults.held(gpu_stream(executor, "augment")), faults.held(gpu_stream(executor, "send")):
        outs = [submit(executor, PHOTOS, epoch=epoch) for epoch in range(SLOTS)]
    for epoch, out in enumerate(outs):
        executor.collect()
        assert np.array_equal(out.numpy(), expected(PHOTOS, epoch=epoch))


def gpu_stream(executor, name):
    return getattr(executor._resources.streams, name)


@pytest.fixture
def launched(begin, gpu, monkeypatch):
    """The thread and the output of each launch that stores images."""
    results, launch = [], gpu.device.launch

    def noting(kernel, grid, block, arguments, stream):
        if kernel == "resample":
            results.append((threading.current_thread().name, int(arguments[-2])))
        launch(kernel, grid, block, arguments, stream)

    monkeypatch.setattr(gpu.device, "launch", noting)
    return results


def test_a_small_batch_that_waits_for_nothing_is_put_in_at_once_after_those_before(begin, launched, faults):
    executor, here, feeder = begin(), threading.current_thread().name, "gpubeton-feeder"
    with faults.held(gpu_stream(executor, "send")):
        outs = [submit(executor, images) for images in ([RAW], PHOTOS, [RAW])]
    assert [executor.collect() for _ in outs] == [[]] * 3
    assert launched == list(zip([here, feeder, feeder], [out.data_ptr() for out in outs], strict=True))
    submit(executor, [RAW])
    assert [executor.collect(), launched[-1][0]] == [[], here]
    submit(executor, [raw(np.zeros((1000, 1000, 3), np.uint8))] * BATCH)
    assert [executor.collect(), launched[-1][0]] == [[], feeder], "much memory is copied beside the calling thread"


@pytest.mark.parametrize("first", [[RAW], PHOTOS])
def test_no_batch_is_put_in_after_one_that_failed(begin, gpu, monkeypatch, first):
    executor = begin()
    with monkeypatch.context() as broken:
        broken.setattr(gpu.device, "copy", lambda *_: 1 / 0)
        submit(executor, first)
        with pytest.raises(ZeroDivisionError):
            executor.collect()
    for images in ([RAW], PHOTOS):
        submit(executor, images)
    with pytest.raises(LoaderClosedError, match="an earlier batch failed"):
        executor.collect()


def test_launches_are_prepared_again_where_there_are_other_images_or_they_need_more_taps(begin):
    executor = begin()
    small, large = (raw(photo(side, side)) for side in (14, 200))
    for images in ([small] * 3, [small] * 2, [large] * 2, [small] * 3):
        for _ in range(SLOTS):
            out = submit(executor, images)
            assert executor.collect() == []
            assert np.array_equal(out.numpy(), expected(images))
    assert executor._cpu_images._executor is None, (
        "the kernels report an image with too many taps, and the CPU makes it"
    )


def test_jobs_without_a_name_of_their_source_are_decoded_each(begin, faults):
    programs = [program_of(), program_of()]
    executor = begin(*programs)
    jobs = [job_of(program, PHOTOS, executor.take(number, BATCH), source="") for number, program in enumerate(programs)]
    executor.submit(jobs)
    assert executor.collect() == []
    assert len(faults.notes("image")) == 2 * BATCH


# --- the CPU's workers


class Workers:
    """The CPU's workers, and what becomes of them."""

    def __init__(self):
        self.made, self.events = 0, []

    def __call__(self, programs):
        self.made += 1
        executor, close = make_cpu_executor(programs), "workers closed"
        original = executor.close
        executor.close = lambda: (original(), self.events.append(close))
        return executor


def test_workers_are_started_when_the_first_image_needs_them(begin, faults):
    workers = Workers()
    executor = begin(host=cpu_services(workers))
    submit(executor, [*PHOTOS[:3], RAW])
    executor.collect()
    assert workers.made == 0
    submit(executor, [*PHOTOS[:3], CMYK])
    executor.collect()
    faults.skip_image(PHOTOS[4].data)
    submit(executor, PHOTOS)
    executor.collect()
    assert workers.made == 1
    executor.close()
    assert workers.events == ["workers closed"]


def test_workers_have_ended_before_anybody_else_gets_the_memory_that_they_write_to(gpu):
    workers = Workers()
    take_back = gpu._take_back
    gpu._take_back = lambda resources: (workers.events.append("given back"), take_back(resources))
    executor = gpu.start_executor([program_of()], cpu_services(workers))
    submit(executor, [CMYK] * BATCH)
    executor.close()
    assert workers.events == ["workers closed", "given back"]


def test_workers_that_fail_are_the_loops_error(begin):
    class Failing(Workers):
        def __call__(self, programs):
            executor = super().__call__(programs)
            executor.collect = lambda: (_ for _ in ()).throw(MemoryError("planted"))
            return executor

    executor = begin(host=cpu_services(Failing()))
    submit(executor, [CMYK])
    with pytest.raises(MemoryError, match="planted"):
        executor.collect()


# --- errors and ends


def test_an_error_of_the_feeder_is_raised_once_and_nothing_is_begun_after_it(begin, gpu, monkeypatch):
    executor = begin()
    original, calls = gpu.device.launch, []

    def launch(kernel, *arguments):
        calls.append(kernel)
        if calls.count("resample") == 2 and kernel == "resample":
            raise DeviceError("planted")
        return original(kernel, *arguments)

    monkeypatch.setattr(gpu.device, "launch", launch)
    outs = [submit(executor, PHOTOS, epoch=epoch) for epoch in range(SLOTS)]
    assert executor.collect() == []
    assert np.array_equal(outs[0].numpy(), expected(PHOTOS))
    with pytest.raises(DeviceError, match="planted"):
        executor.collect()
    for _ in range(2):
        with pytest.raises(LoaderClosedError, match="an earlier batch failed"):
            executor.collect()
    assert calls.count("resample") == 2, "nothing is begun after an error"
    executor.close()


def test_a_batch_that_was_not_begun_when_the_executor_is_closed_gets_an_error(begin, gpu, faults):
    executor = begin()
    with faults.held(gpu_stream(executor, "send")):
        for _ in range(SLOTS):
            submit(executor, PHOTOS)
        while gpu_stream(executor, "send").is_idle:  # until the first batch is begun
            time.sleep(0.001)
        works, feeder = list(executor._batches), executor._feeder
        closing = threading.Thread(target=executor.close)
        closing.start()
        while not feeder._is_closed:
            time.sleep(0.001)
    closing.join()
    assert [work.has_failed for work in works] == [False, True, True]
    assert isinstance(feeder.take_failure(), LoaderClosedError)


def test_equipment_is_used_again_by_the_next_epoch(begin, gpu, faults):
    first = begin()
    resources = first._resources
    submit(first, PHOTOS)
    first.collect()
    first.close()
    states, memory = faults.count("nvjpegJpegStateCreate"), [slot.arena.nbytes for slot in resources.slots]
    second = begin()
    assert second._resources is resources
    out = submit(second, PHOTOS)
    second.collect()
    assert np.array_equal(out.numpy(), expected(PHOTOS))
    assert faults.count("nvjpegJpegStateCreate") == states
    assert [slot.arena.nbytes for slot in resources.slots] == memory


def test_equipment_in_use_is_freed_when_its_epoch_ends_after_the_gpu_was_closed(device, faults):
    gc.collect()  # tests in the same process may have left GPUs to the garbage collector
    before = faults.live("state"), faults.live("handle")
    gpu = open_gpu(device)
    executor = gpu.start_executor([program_of()], cpu_services())
    out = submit(executor, PHOTOS)
    gpu.close()
    assert executor.collect() == []
    assert np.array_equal(out.numpy(), expected(PHOTOS))
    executor.close()
    assert (faults.live("state"), faults.live("handle")) == before
    gpu.close()


def test_closing_a_gpu_frees_its_memory_in_spite_of_references(device, faults):
    before = [faults.live_memory(kind) for kind in (DEVICE, PINNED)]
    gpu = open_gpu(device)
    executor = gpu.start_executor([program_of()], cpu_services())
    resources = executor._resources
    faults.skip_image(PHOTOS[2].data, times=1)
    submit(executor, PHOTOS)
    executor.collect()
    executor.close()
    gpu.close()
    assert [faults.live_memory(kind) for kind in (DEVICE, PINNED)] == before
    assert resources.slots[0].arena.nbytes == 0


def test_every_batch_has_different_canaries(begin, gpu, monkeypatch):
    nonces, original = [], gpu.device.launch

    def launch(kernel, grid, block, arguments, stream):
        if kernel == "canary":
            nonces.append(int(arguments[2]))
        original(kernel, grid, block, arguments, stream)

    monkeypatch.setattr(gpu.device, "launch", launch)
    executor = begin()
    for _ in range(5):
        submit(executor, PHOTOS)
        executor.collect()
    assert len(set(nonces)) == 5


def test_an_epoch_that_cannot_begin_leaves_its_equipment_to_the_next(gpu, faults):
    (resources,) = gpu._free
    faults.leave_memory(0)
    for _ in range(2):
        with pytest.raises(DeviceError, match="bytes were asked for"):
            gpu.start_executor([program_of()], cpu_services())
    faults.leave_memory(1 << 30)
    executor = gpu.start_executor([program_of()], cpu_services())
    assert executor._resources is resources
    out = submit(executor, PHOTOS)
    executor.collect()
    assert np.array_equal(out.numpy(), expected(PHOTOS))
    executor.close()


def test_equipment_with_an_error_is_given_up(gpu, faults, own_threads):
    executor = gpu.start_executor([program_of()], cpu_services())
    resources = executor._resources
    submit(executor, PHOTOS)
    faults.fail_stream(gpu_stream(executor, "augment"))
    with pytest.raises(DeviceError):
        make_batches(executor)
    with pytest.raises(DeviceError):
        executor.close()
    assert resources not in gpu._free
    assert own_threads() == []
    executor.close()
    faults.fail_device(status=0)


def make_batches(executor):
    while True:
        executor.collect()
        submit(executor, PHOTOS)


def test_an_executor_with_images_for_the_cpu_alone_needs_no_nvjpeg_call(begin, faults):
    executor = begin()
    out = submit(executor, [CMYK, RAW])
    executor.collect()
    assert np.array_equal(out.numpy(), expected([CMYK, RAW]))
    assert not faults.notes("image")
    assert executor._resources.refused == set()


def test_refused_images_are_remembered_by_field_and_sample(begin, faults):
    executor = begin()
    faults.skip_image(PHOTOS[3].data)
    submit(executor, PHOTOS, first=40)
    executor.collect()
    assert executor._resources.refused == {("image", 43)}
    unnamed = job_of(program_of(), PHOTOS, executor.take(0, BATCH))
    executor.submit([replace(unnamed, samples=None)])
    executor.collect()
    assert executor._resources.refused == {("image", 43), ("image", int(unnamed.address[3]))}
