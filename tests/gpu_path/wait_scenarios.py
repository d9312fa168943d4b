"""Runs in which a wait that is missing shows: one queue is slow, and what goes wrong is noted."""

from __future__ import annotations

import ctypes
import threading

import numpy as np

from benchmarks.gpu.nvjpeg_parts import Backend
from gpubeton._cpu.worker_pool import Worker
from gpubeton._gpu.memory import GrowableBuffer, Table
from gpubeton.errors import DeviceError
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.transforms import ImageMixup, NormalizeImage, RandomHorizontalFlip, ToDevice, ToTensor
from tests.cpu.pictures import jpeg, photo, pillow_jpeg
from tests.gpu_path.decode_requests import DecodeRequests
from tests.gpu_path.executor_bench import cpu_services, job_of, made_by_the_cpu, open_gpu, program_of
from tests.gpu_path.gpu_room import BatchedBackend, EntryDecoder, Handle, load, send_piece
from tests.gpu_path.image_samples import bytes_of, gpu_loader, raw, stored, twin
from tests.simulator.device import SimulatedDevice

CROP = RandomResizedCropRGBImageDecoder((12, 10))
HALVES = NormalizeImage((120, 110, 100), (60, 50, 40), np.float16)
PLAIN = [CROP, RandomHorizontalFlip(), HALVES, ToTensor(), ToDevice("cuda:0")]
MIXED = [CROP, ImageMixup(0.5, False), HALVES, ToTensor(), ToDevice("cuda:0")]

JPEGS = [stored(jpeg(photo(30 + number, 45 - number, number))) for number in range(16)]
RAWS = [raw(photo(30 + number, 45 - number, number)) for number in range(16)]
#: The CPU makes these.
FOREIGN = [stored(pillow_jpeg(photo(30 + number, 45 - number, number), "CMYK")) for number in range(16)]

#: How slow a queue is, in microseconds for each piece of work. With all waits it makes no difference; without one, a
#: busy machine may need more for it to show.
DELAYS = (5_000, 20_000, 80_000, 300_000)

#: Names of streams: those of an epoch,
SEND, AUGMENT, BATCH_OPS = "send", "augment", "batch_ops"
#: and those of the engines, which come with the first image.
ENGINES = ("engines 0", "engines 1")


class Bench:
    """The tools of scenarios; `findings` is the set of their findings."""

    def __init__(self, gpus, faults, files, expected, monkeypatch):
        self.gpus, self.faults, self.files, self.expected, self.monkeypatch = gpus, faults, files, expected, monkeypatch
        self.findings = set()
        self.delay = DELAYS[0]

    def slow(self, *names):
        """Make streams slow by their names, also those that come later."""
        device = self.gpus[0]
        for stream in device.streams:
            if stream.name in names:
                self.slow_stream(stream)
        make = SimulatedDevice.make_stream

        def making(device, name=""):
            stream = make(device, name)
            if name in names:
                self.slow_stream(stream)
            return stream

        self.changes.setattr(SimulatedDevice, "make_stream", making)

    def slow_stream(self, stream=None):
        """One, or all."""
        self.faults.slow_down(self.delay, least=self.delay, stream=stream)

    def loader(self, name="jpegs", pipeline=PLAIN, **options):
        path, _ = self.files[name]
        return gpu_loader(path, pipeline, device="auto", batch_size=4, more={"number": None}, **options)

    def compare(self, loader, name="jpegs", pipeline=PLAIN):
        """Go through an epoch; the batches are looked at when they come, and kept."""
        batches = []
        for (images,), expectation in zip(loader, self.expected(name, pipeline), strict=True):
            if not np.array_equal(bytes_of(images), bytes_of(expectation)):
                self.findings.add("wrong pixels")
            batches.append(images)
        return batches

    def count_decoded(self, images):
        """None is decoded twice, unless its canary survived."""
        if len(self.faults.notes("image")) > images:
            self.findings.add("canary survived")

    def seen(self):
        if self.faults.take_misuses():
            self.findings.add("misuse")
        return self.findings


# --- scenarios: batches


def an_epoch(bench, *, slow, name="jpegs", pipeline=PLAIN, **options):
    """An epoch with some slow queues."""
    loader = bench.loader(name, pipeline, **options)
    bench.slow(*slow)
    batches = bench.compare(loader, name, pipeline)
    if name == "jpegs":
        bench.count_decoded(len(JPEGS))
    loader.close()
    del batches


def canaries_come_late(bench):
    """Descriptions are on the device at once, and canaries later than anything else."""
    send = Table.send

    def send_and_wait(table, stream):
        bench.faults.slow_down(0, stream=stream)
        send(table, stream)
        stream.synchronize()
        bench.slow(SEND)

    bench.changes.setattr(Table, "send", send_and_wait)
    loader = bench.loader()
    # In the stream's order it takes as long, if the canaries were waited for.
    bench.slow(AUGMENT)
    batches = bench.compare(loader)
    bench.count_decoded(len(JPEGS))
    loader.close()
    del batches


def memory_of_batches_had_an_owner(bench):
    """Torch gives memory out again whose former owner's work is still in the stream that it is for."""
    empty, garbage = SimulatedDevice.empty, []

    def used_before(device, shape, dtype, stream):
        tensor = empty(device, shape, dtype, stream)
        garbage.append(device.allocate_pinned(tensor.nbytes))
        device.copy(tensor.data_ptr(), garbage[-1].address, tensor.nbytes, stream)
        return tensor

    bench.changes.setattr(SimulatedDevice, "empty", used_before)
    an_epoch(bench, slow=[BATCH_OPS])


# --- scenarios: single images


def a_repair(bench, *, slow, every_time=False):
    """An image is left out, once or always, and made again."""
    for number in (5, 6):  # of one batch
        bench.faults.skip_image(JPEGS[number].data, **({} if every_time else {"times": 1}))
    loader = bench.loader()
    bench.slow(*slow)
    batches = iter(loader)
    for (images,), expectation, of_the_cpu in zip(
        batches, bench.expected("jpegs", PLAIN), bench.expected("jpegs", PLAIN, by_the_cpu=True), strict=True
    ):
        for image, *both in zip(bytes_of_rows(images), *map(bytes_of_rows, (expectation, of_the_cpu)), strict=True):
            if not any(np.array_equal(image, other) for other in (both if every_time else both[:1])):
                bench.findings.add("wrong pixels")
    if not every_time and loader.gpu._free[0].refused:
        bench.findings.add("left to the CPU although the engines can")
    loader.close()


def bytes_of_rows(images):
    """The bytes of each image of a batch."""
    return [bytes_of(image) for image in images]


# --- scenarios: backends


def requests_of_a_backend(bench, backend, requests, images):
    bench.slow(*ENGINES)
    pending = [requests.make(image) for image in images]
    started = [backend.begin(request) for request in pending]
    for request, (event, failed) in zip(pending, started, strict=True):
        if event is not None:
            event.synchronize()
            if requests.state_of(request).count("decoded") != len(request.size) - len(failed):
                bench.findings.add("wrong pixels")
    backend.settle()
    backend.close()


def a_state_is_used_again(bench, device):
    """For batches of other sizes, so that it is initialized each time."""
    backend = BatchedBackend(device, Handle(load(), Backend.HARDWARE), 8, num_states=1)
    images = [[jpeg.data for jpeg in JPEGS[: 2 + number % 3]] for number in range(5)]
    requests_of_a_backend(bench, backend, DecodeRequests(device), images)


def a_request_fails(bench, device):
    """Images before the culprit are on their way when the call returns its status."""
    backend = BatchedBackend(device, Handle(load(), Backend.HARDWARE), 8, num_states=1)
    good, bad = [jpeg.data for jpeg in JPEGS[:3]], pillow_jpeg(photo(9, 9), progressive=True)
    requests_of_a_backend(bench, backend, DecodeRequests(device), [good, [*good, good[0], bad], good, good[:2]])


# --- scenarios: an executor


def workers_are_slow(bench, device):
    """The CPU's workers come to their images late."""
    gate, run = threading.Event(), Worker.run

    def late(worker, *arguments):
        gate.wait(bench.delay / 1e6)
        return run(worker, *arguments)

    bench.changes.setattr(Worker, "run", late)
    gpu, program = open_gpu(device), program_of()
    executor = gpu.start_executor([program], cpu_services())
    outs = [executor.take(0, 4) for _ in range(3)]
    for number, out in enumerate(outs):
        executor.submit([job_of(program, FOREIGN[4 * number :][:4], out)])
    for number, out in enumerate(outs):
        executor.collect()
        expected, _ = made_by_the_cpu(program_of(device="cpu"), twin(FOREIGN[4 * number :][:4]))
        if not np.array_equal(out.numpy(), expected):
            bench.findings.add("wrong pixels")
    executor.close()
    gpu.close()


# --- scenarios: the end


def check_idle(bench, device):
    """Nothing may be under way."""
    if any(not stream.is_idle for stream in device.streams):
        bench.findings.add("work under way")


def leaving(bench, device, *, slow, fails=False):
    """The executor is closed while batches are in flight; or after an error, when decoding has begun."""
    gpu = open_gpu(device)
    executor = gpu.start_executor([program_of()], cpu_services())
    if fails:
        begin = BatchedBackend.begin

        def failing(backend, request):
            begin(backend, request)
            raise DeviceError("planted")

        bench.changes.setattr(BatchedBackend, "begin", failing)
    bench.slow(*slow)
    executor._give_back = lambda _resources: check_idle(bench, device)
    outs = []
    for first in (0, 4, 8):
        outs.append(executor.take(0, 4))
        images = [*JPEGS[first : first + 3], stored(pillow_jpeg(photo(20, 20), progressive=True))]
        executor.submit([job_of(program_of(), images, outs[-1])])
    executor._batches[-1].wait()
    executor.close()
    resources = executor._resources
    for stream in device.streams:
        stream.synchronize()
    resources.close()
    del outs


def closing_equipment(bench, device):
    """Its memory is freed."""
    gpu = open_gpu(device)
    (resources,) = gpu._free
    gpu._free.clear()
    free = GrowableBuffer.free

    def checked(buffer):
        check_idle(bench, device)
        for stream in device.streams:
            stream.synchronize()
        free(buffer)

    bench.slow_stream()
    slot = resources.slots[0]
    staging, arena = slot.staging.reserve(64).address, slot.arena.reserve(64).address
    device.copy(arena, staging, 64, resources.streams.send)
    bench.changes.setattr(GrowableBuffer, "free", checked)
    resources.close()


def one_of_the_epochs_streams(bench, device, name):
    """One of them has work."""
    gpu = open_gpu(device)
    (resources,) = gpu._free
    memory = device.allocate_pinned(64)
    bench.slow_stream()
    device.copy(memory.address, memory.address, 64, device.stream(name))
    resources.settle()
    check_idle(bench, device)
    device.stream(name).synchronize()
    gpu.close()


def the_feeder_ends(bench, device):
    """It may be in the middle of a batch."""
    gpu = open_gpu(device)
    executor = gpu.start_executor([program_of()], cpu_services())
    bench.slow_stream(device.stream(SEND))
    resources, thread = executor._resources, executor._feeder._thread
    settle = resources.settle

    def checked():
        if thread.is_alive():
            bench.findings.add("work under way")
        while thread.is_alive():
            threading.Event().wait(0.001)
        settle()

    resources.settle = checked
    out = executor.take(0, 4)
    executor.submit([job_of(program_of(), JPEGS[:4], out)])
    executor.close()
    gpu.close()


def windows_grow(bench, device):
    """A batch needs more memory than the one before, whose kernels are slow."""
    stream, event = device.make_stream(AUGMENT), device.make_event()
    decoder = EntryDecoder(device)
    decoder.reserve(1 << 20, stream)
    bench.slow_stream(stream)
    source, target = device.allocate_pinned(8), device.allocate(8)
    device.copy(target.address, source.address, 8, stream)
    event.record(stream)
    decoder.reserve(3 << 20, stream)
    if not event.is_done:
        bench.findings.add("memory in use was freed")
    stream.synchronize()
    decoder.windows.free()
    source.free()
    target.free()


def images_stay(bench, device):
    """Images are copied to where they stay, in pieces whose copies are slow."""
    stream, staging, memory = device.make_stream("load"), device.allocate_pinned(64), device.allocate(6 * 64)
    bench.slow_stream(stream)
    for number in range(6):
        staging.array[:] = number
        send_piece(device, memory.address + 64 * number, staging, 64, stream)
    if ctypes.string_at(memory.address, 6 * 64) != bytes(np.repeat(np.arange(6, dtype=np.uint8), 64)):
        bench.findings.add("wrong bytes")
    stream.synchronize()
    staging.free()
    memory.free()
