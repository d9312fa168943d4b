from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpubeton._engine.buffers import ArrayPool
from gpubeton._engine.engine import ImageExecutors
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.image_job import BadImage, Usage
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.transforms import NormalizeImage, ToTensor

SIZES = np.array([9]), np.array([9])
HALVES, BFLOAT = (NormalizeImage((1, 2, 3), (4, 5, 6), kind) for kind in (np.float16, torch.bfloat16))


def output(name, device, *operations):
    program = compile_image_program(name, 0, [CenterCropRGBImageDecoder((4, 5), 1), *operations], *SIZES, device)
    return SimpleNamespace(name=name, field=SimpleNamespace(name=name), program=program)


class RecordedExecutor:
    """An executor that records its calls; the CPU's or a GPU's."""

    def __init__(self, calls, where, programs, arguments):
        self.calls, self.where = calls, where
        self.programs, self.arguments = programs, arguments
        self.bad = []
        self.fails = False

    @property
    def usage(self):
        return Usage(1.0, 0.5) if self.where == "CPU" else Usage(4.0, 2.0)

    def note(self, name, *what):
        self.calls.append((self.where, name, *what))

    def submit(self, jobs):
        self.note("submit", *jobs)

    def collect(self):
        self.note("collect")
        return self.bad

    def decode(self, program, job):
        self.note("decode", program, job)
        return [BadImage(program, 0, "planted")]

    def fetch(self, tensor):
        self.note("fetch", tuple(tensor.shape))
        return tensor.clone()

    def arrival(self, tensors):
        self.note("arrival", len(tensors))
        return lambda: self.note("arrived")

    def close(self):
        self.note("close")
        if self.fails:
            raise MemoryError(f"planted on the {self.where}")


class Bench:
    def __init__(self, *outputs):
        self.calls, self.made = [], {}

        def start_cpu_executor(programs, *arguments):
            self.made["CPU"] = RecordedExecutor(self.calls, "CPU", programs, arguments)
            return self.made["CPU"]

        def start_gpu_executor(programs, host):
            self.made["GPU"] = RecordedExecutor(self.calls, "GPU", programs, host)
            return self.made["GPU"]

        self.executors = ImageExecutors(
            outputs, start_cpu_executor, start_gpu_executor, ArrayPool(), batch_size=8, num_workers=2, num_in_flight=3
        )

    def names(self, where):
        return [program.field for program in self.made[where].programs]


@pytest.fixture
def mixed():
    """Outputs of both, in turn."""
    return Bench(output("a", "cpu"), output("b", "cuda:0"), output("c", "cpu", HALVES), output("d", "cuda:0", HALVES))


def test_each_output_is_made_on_the_device_of_its_program_and_without_images_no_executor_is_started(mixed):
    assert (mixed.names("CPU"), mixed.names("GPU")) == (["a", "c"], ["b", "d"])
    assert list(Bench(output("a", "cpu"), output("b", "cpu")).made) == ["CPU"]
    bench = Bench()
    bench.executors.submit([])
    assert (bench.made, bench.executors.collect(), bench.executors.arrival([])) == ({}, [], None)
    bench.executors.close()


def test_jobs_go_to_their_workers_and_bad_images_come_back_with_the_number_of_their_output(mixed):
    mixed.executors.submit(["job a", "job b", "job c", "job d"])
    assert mixed.calls == [("GPU", "submit", "job b", "job d"), ("CPU", "submit", "job a", "job c")]
    mixed.made["GPU"].bad = [BadImage(1, 5, "why")]
    mixed.made["CPU"].bad = [BadImage(0, 6, "how"), BadImage(1, 7, "when")]
    bad = sorted(mixed.executors.collect(), key=lambda bad: bad.program)
    assert bad == [BadImage(0, 6, "how"), BadImage(2, 7, "when"), BadImage(3, 5, "why")]
    mixed.calls.clear()
    for number in range(4):
        assert mixed.executors.decode(number, f"job {number}")
    places = [("CPU", 0), ("GPU", 0), ("CPU", 1), ("GPU", 1)]
    assert mixed.calls == [(where, "decode", at, f"job {number}") for number, (where, at) in enumerate(places)]


def test_bfloat16_is_fetched_as_its_bits():
    bfloat_output = output("a", "cuda:0", BFLOAT, ToTensor())
    bfloat_output.program = replace(bfloat_output.program, returns_to_cpu=True)
    bench = Bench(bfloat_output)
    result = bench.executors.finished(0, torch.ones(1, 4, 5, 3, dtype=torch.bfloat16), None)
    assert (result.dtype, result[0, 0, 0, 0]) == (np.uint16, 0x3F80)


def test_the_receiver_of_a_batch_waits_for_its_tensors(mixed):
    arrive = mixed.executors.arrival([torch.zeros(1), np.zeros(1), torch.zeros(1)])
    arrive()
    assert mixed.calls == [("GPU", "arrival", 2), ("GPU", "arrived")]
    assert Bench(output("a", "cpu")).executors.arrival([torch.zeros(1)]) is None


def test_the_usage_is_that_of_all_workers(mixed):
    assert mixed.executors.usage == Usage(5.0, 2.5)
    assert Bench(output("a", "cpu")).executors.usage == Usage(1.0, 0.5)
    assert Bench(output("a", "cuda:0")).executors.usage == Usage(4.0, 2.0)
    assert Bench().executors.usage == Usage()


def test_both_are_closed_although_one_fails(mixed):
    for where in ("GPU", "CPU"):
        mixed.made[where].fails = True
    with pytest.raises(MemoryError, match="planted on the CPU"):
        mixed.executors.close()
    assert mixed.calls == [("GPU", "close"), ("CPU", "close")]


def test_the_cpus_workers_are_ended_if_the_gpu_cannot_begin():
    outputs = output("a", "cpu"), output("b", "cuda:0")
    calls = []

    def start_cpu_executor(programs, *arguments):
        return RecordedExecutor(calls, "CPU", programs, arguments)

    def start_gpu_executor(programs, host):
        raise MemoryError("planted")

    with pytest.raises(MemoryError, match="planted"):
        ImageExecutors(
            outputs, start_cpu_executor, start_gpu_executor, ArrayPool(), batch_size=8, num_workers=2, num_in_flight=3
        )
    assert calls == [("CPU", "close")]
