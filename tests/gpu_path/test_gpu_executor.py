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
from tests.gpu_path.zoo import raw, stored, twin
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
    made = []

    def begin(*programs, host=None):
        made.append(gpu.crew(programs or [program_of()], host or cpu_services()))
        return made[-1]

    yield begin
    for crew in made:
        crew.close()


def submit(crew, images, program=None, **which):
    """Submit a batch of one output; gives its memory."""
    own = program or program_of()
    out = crew.take(0, len(images))
    crew.submit([job_of(own, images, out, **which)])
    return out


def expected(images, program=CPU_PROGRAM, **which):
    return made_by_the_cpu(program, twin(images), **which)[0]


def test_batches_come_out_in_the_order_in_which_they_go_in(begin, faults):
    faults.slow_down(1000)
    crew = begin()
    outs = []
    for epoch in range(10):
        outs.append(submit(crew, PHOTOS, epoch=epoch))
        if len(outs) >= SLOTS:
            assert crew.collect() == []
            number = epoch - SLOTS + 1
            assert np.array_equal(outs[number].numpy(), expected(PHOTOS, epoch=number))


def test_no_more_batches_than_slots_are_taken(begin):
    crew = begin()
    for _ in range(SLOTS):
        submit(crew, PHOTOS)
    with pytest.raises(RuntimeError, match=r"\b3\b"):
        submit(crew, PHOTOS)
    crew.collect()
    submit(crew, PHOTOS)
    for _ in range(SLOTS):
        crew.collect()
    with pytest.raises(RuntimeError, match="no batch is in flight"):
        crew.collect()


def test_submitting_never_waits_for_the_gpu(begin, gpu, faults):
    crew = begin()
    with faults.held(gpu_stream(crew, "augment")), faults.held(gpu_stream(crew, "send")):
        outs = [submit(crew, PHOTOS, epoch=epoch) for epoch in range(SLOTS)]
    for epoch, out in enumerate(outs):
        crew.collect()
        assert np.array_equal(out.numpy(), expected(PHOTOS, epoch=epoch))


def gpu_stream(crew, name):
    return getattr(crew._resources.streams, name)


def test_a_batch_may_be_empty(begin):
    crew = begin()
    submit(crew, [])
    assert crew.collect() == []


@pytest.fixture
def launched(begin, gpu, monkeypatch):
    """The thread and the output of each launch that stores images."""
    found, launch = [], gpu.device.launch

    def noting(kernel, grid, block, arguments, stream):
        if kernel == "resample":
            found.append((threading.current_thread().name, int(arguments[-2])))
        launch(kernel, grid, block, arguments, stream)

    monkeypatch.setattr(gpu.device, "launch", noting)
    return found


def test_a_small_batch_that_waits_for_nothing_is_put_in_at_once_after_those_before(begin, launched, faults):
    crew, here, feeder = begin(), threading.current_thread().name, "gpubeton-feeder"
    with faults.held(gpu_stream(crew, "send")):
        outs = [submit(crew, images) for images in ([RAW], PHOTOS, [RAW])]
    assert [crew.collect() for _ in outs] == [[]] * 3
    assert launched == list(zip([here, feeder, feeder], [out.data_ptr() for out in outs], strict=True))
    submit(crew, [RAW])
    assert [crew.collect(), launched[-1][0]] == [[], here]
    submit(crew, [raw(np.zeros((1000, 1000, 3), np.uint8))] * BATCH)
    assert [crew.collect(), launched[-1][0]] == [[], feeder], "much memory is copied beside the calling thread"


@pytest.mark.parametrize("first", [[RAW], PHOTOS])
def test_no_batch_is_put_in_after_one_that_failed(begin, gpu, monkeypatch, first):
    crew = begin()
    with monkeypatch.context() as broken:
        broken.setattr(gpu.device, "copy", lambda *_: 1 / 0)
        submit(crew, first)
        with pytest.raises(ZeroDivisionError):
            crew.collect()
    for images in ([RAW], PHOTOS):
        submit(crew, images)
    with pytest.raises(LoaderClosedError, match="an earlier batch failed"):
        crew.collect()


def test_launches_are_prepared_again_where_there_are_other_images_or_they_need_more_taps(begin):
    crew = begin()
    small, large = (raw(photo(side, side)) for side in (14, 200))
    for images in ([small] * 3, [small] * 2, [large] * 2, [small] * 3):
        for _ in range(SLOTS):
            out = submit(crew, images)
            assert crew.collect() == []
            assert np.array_equal(out.numpy(), expected(images))
    assert crew._cpu_executor is None, "the kernels report an image with too many taps, and the CPU makes it"


def test_batches_of_other_sizes_follow_each_other(begin):
    crew = begin()
    for images in (PHOTOS[:1], PHOTOS, [CMYK], [RAW, CMYK, PHOTOS[3]], PHOTOS[:3], [RAW]):
        out = submit(crew, images)
        assert crew.collect() == []
        assert np.array_equal(out.numpy(), expected(images))


def test_an_image_may_be_made_alone_at_any_time(begin):
    crew, program = begin(), program_of()
    out = submit(crew, PHOTOS)
    alone = crew.take(0, 5)
    images = [PHOTOS[2], CMYK, RAW, BROKEN, PHOTOS[5]]
    bad = crew.decode(0, job_of(program, images, alone, epoch=7))
    assert [(one.program, one.row) for one in bad] == [(0, 3)]
    good = [0, 1, 2, 4]
    wanted = made_by_the_cpu(CPU_PROGRAM, [CMYK if one is BROKEN else one for one in images], epoch=7)[0]
    assert np.array_equal(alone.numpy()[good], wanted[good])
    crew.collect()
    assert np.array_equal(out.numpy(), expected(PHOTOS))


def test_bad_images_are_named_by_output_and_row(begin):
    programs = [program_of(), program_of(size=(5, 6))]
    crew = begin(*programs)
    images = [[PHOTOS[0], BROKEN, CMYK, PHOTOS[1]], [BROKEN, RAW, PHOTOS[2], BROKEN]]
    jobs = [
        job_of(program, own, crew.take(number, 4), source=f"field {number}")
        for number, (program, own) in enumerate(zip(programs, images, strict=True))
    ]
    crew.submit(jobs)
    bad = crew.collect()
    assert sorted((one.program, one.row) for one in bad) == [(0, 1), (1, 0), (1, 3)]
    _, by_the_cpu = made_by_the_cpu(CPU_PROGRAM, images[0])
    assert [one.reason for one in bad if one.program == 0] == [one.reason for one in by_the_cpu]
    small = made_by_the_cpu(program_of(size=(5, 6), device="cpu"), twin(images[1][1:3]), first=1)[0]
    assert np.array_equal(jobs[1].out.numpy()[1:3], small)


def test_jobs_without_a_name_of_their_source_are_decoded_each(begin, faults):
    programs = [program_of(), program_of()]
    crew = begin(*programs)
    jobs = [job_of(program, PHOTOS, crew.take(number, BATCH), source="") for number, program in enumerate(programs)]
    crew.submit(jobs)
    assert crew.collect() == []
    assert len(faults.notes("image")) == 2 * BATCH


# --- the CPU's workers


class Workers:
    """The CPU's workers, and what becomes of them."""

    def __init__(self):
        self.made, self.events = 0, []

    def __call__(self, programs):
        self.made += 1
        crew, close = make_cpu_executor(programs), "workers closed"
        original = crew.close
        crew.close = lambda: (original(), self.events.append(close))
        return crew


def test_workers_are_started_when_the_first_image_needs_them(begin, faults):
    workers = Workers()
    crew = begin(host=cpu_services(workers))
    submit(crew, [*PHOTOS[:3], RAW])
    crew.collect()
    assert workers.made == 0
    submit(crew, [*PHOTOS[:3], CMYK])
    crew.collect()
    faults.skip_image(PHOTOS[4].data)
    submit(crew, PHOTOS)
    crew.collect()
    assert workers.made == 1
    crew.close()
    assert workers.events == ["workers closed"]


def test_workers_have_ended_before_anybody_else_gets_the_memory_that_they_write_to(gpu):
    workers = Workers()
    take_back = gpu._take_back
    gpu._take_back = lambda resources: (workers.events.append("given back"), take_back(resources))
    crew = gpu.crew([program_of()], cpu_services(workers))
    submit(crew, [CMYK] * BATCH)
    crew.close()
    assert workers.events == ["workers closed", "given back"]


def test_workers_that_fail_are_the_loops_error(begin):
    class Failing(Workers):
        def __call__(self, programs):
            crew = super().__call__(programs)
            crew.collect = lambda: (_ for _ in ()).throw(MemoryError("planted"))
            return crew

    crew = begin(host=cpu_services(Failing()))
    submit(crew, [CMYK])
    with pytest.raises(MemoryError, match="planted"):
        crew.collect()


# --- errors and ends


def test_an_error_of_the_feeder_is_raised_once_and_nothing_is_begun_after_it(begin, gpu, monkeypatch):
    crew = begin()
    original, calls = gpu.device.launch, []

    def launch(kernel, *arguments):
        calls.append(kernel)
        if calls.count("resample") == 2 and kernel == "resample":
            raise DeviceError("planted")
        return original(kernel, *arguments)

    monkeypatch.setattr(gpu.device, "launch", launch)
    outs = [submit(crew, PHOTOS, epoch=epoch) for epoch in range(SLOTS)]
    assert crew.collect() == []
    assert np.array_equal(outs[0].numpy(), expected(PHOTOS))
    with pytest.raises(DeviceError, match="planted"):
        crew.collect()
    for _ in range(2):
        with pytest.raises(LoaderClosedError, match="an earlier batch failed"):
            crew.collect()
    assert calls.count("resample") == 2, "nothing is begun after an error"
    crew.close()


def test_closing_ends_the_thread_and_drops_what_is_in_flight(begin, faults, own_threads):
    faults.slow_down(3000)
    crew = begin()
    for _ in range(SLOTS):
        submit(crew, [*PHOTOS[:6], CMYK, RAW])
    crew.close()
    crew.close()
    assert own_threads() == []
    with pytest.raises(LoaderClosedError):
        submit_again(crew)


def submit_again(crew):
    crew.submit([])


def test_a_batch_that_was_not_begun_when_the_crew_is_closed_gets_an_error(begin, gpu, faults):
    crew = begin()
    with faults.held(gpu_stream(crew, "send")):
        for _ in range(SLOTS):
            submit(crew, PHOTOS)
        works, feeder = list(crew._batches), crew._feeder
        closing = threading.Thread(target=crew.close)
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


def test_an_epoch_beside_another_has_equipment_of_its_own(begin):
    first, second = begin(), begin()
    assert first._resources is not second._resources
    outs = [submit(crew, PHOTOS, epoch=number) for number, crew in enumerate((first, second))]
    for number, crew in enumerate((first, second)):
        assert crew.collect() == []
        assert np.array_equal(outs[number].numpy(), expected(PHOTOS, epoch=number))


def test_equipment_in_use_is_freed_when_its_epoch_ends_after_the_gpu_was_closed(device, faults):
    gc.collect()  # tests in the same process may have left GPUs to the garbage collector
    before = faults.live("state"), faults.live("handle")
    gpu = open_gpu(device)
    crew = gpu.crew([program_of()], cpu_services())
    out = submit(crew, PHOTOS)
    gpu.close()
    assert crew.collect() == []
    assert np.array_equal(out.numpy(), expected(PHOTOS))
    crew.close()
    assert (faults.live("state"), faults.live("handle")) == before
    gpu.close()


def test_closing_a_gpu_frees_its_memory_whoever_still_knows_of_it(device, faults):
    before = [faults.live_memory(kind) for kind in (DEVICE, PINNED)]
    gpu = open_gpu(device)
    crew = gpu.crew([program_of()], cpu_services())
    resources = crew._resources
    faults.skip_image(PHOTOS[2].data, times=1)
    submit(crew, PHOTOS)
    crew.collect()
    crew.close()
    gpu.close()
    assert [faults.live_memory(kind) for kind in (DEVICE, PINNED)] == before
    assert resources.slots[0].arena.nbytes == 0


def test_every_batch_has_sentinels_of_its_own(begin, gpu, monkeypatch):
    nonces, original = [], gpu.device.launch

    def launch(kernel, grid, block, arguments, stream):
        if kernel == "canary":
            nonces.append(int(arguments[2]))
        original(kernel, grid, block, arguments, stream)

    monkeypatch.setattr(gpu.device, "launch", launch)
    crew = begin()
    for _ in range(5):
        submit(crew, PHOTOS)
        crew.collect()
    assert len(set(nonces)) == 5


def test_an_epoch_that_cannot_begin_leaves_its_equipment_to_the_next(gpu, faults):
    (resources,) = gpu._free
    faults.leave_memory(0)
    for _ in range(2):
        with pytest.raises(DeviceError, match="bytes were asked for"):
            gpu.crew([program_of()], cpu_services())
    faults.leave_memory(1 << 30)
    crew = gpu.crew([program_of()], cpu_services())
    assert crew._resources is resources
    out = submit(crew, PHOTOS)
    crew.collect()
    assert np.array_equal(out.numpy(), expected(PHOTOS))
    crew.close()


def test_equipment_with_an_error_is_given_up(gpu, faults, own_threads):
    crew = gpu.crew([program_of()], cpu_services())
    resources = crew._resources
    submit(crew, PHOTOS)
    faults.fail_stream(gpu_stream(crew, "augment"))
    with pytest.raises(DeviceError):
        make_batches(crew)
    with pytest.raises(DeviceError):
        crew.close()
    assert resources not in gpu._free
    assert own_threads() == []
    crew.close()
    faults.fail_device(status=0)


def make_batches(crew):
    while True:
        crew.collect()
        submit(crew, PHOTOS)


def test_a_crew_of_the_cpu_lane_alone_needs_no_nvjpeg_call(begin, faults):
    crew = begin()
    out = submit(crew, [CMYK, RAW])
    crew.collect()
    assert np.array_equal(out.numpy(), expected([CMYK, RAW]))
    assert not faults.notes("image")
    assert crew._resources.refused == set()


def test_what_was_learnt_of_an_image_is_kept_by_field_and_sample(begin, faults):
    crew = begin()
    faults.skip_image(PHOTOS[3].data)
    submit(crew, PHOTOS, first=40)
    crew.collect()
    assert crew._resources.refused == {("image", 43)}
    unnamed = job_of(program_of(), PHOTOS, crew.take(0, BATCH))
    crew.submit([replace(unnamed, samples=None)])
    crew.collect()
    assert crew._resources.refused == {("image", 43), ("image", int(unnamed.address[3]))}
