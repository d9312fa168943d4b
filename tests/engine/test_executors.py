from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpubeton._cpu.jpeg.markers import probe_jpegs
from gpubeton._engine.buffers import ArrayPool
from gpubeton._engine.engine import ImageExecutors
from gpubeton._engine.outputs import ImageOutput
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.image_job import BadImage, Usage
from gpubeton.fields.rgb_image import CenterCropRGBImageDecoder
from gpubeton.transforms import NormalizeImage, ToTensor

SIZES = np.array([9]), np.array([9])
HALVES, BFLOAT = (NormalizeImage((1, 2, 3), (4, 5, 6), kind) for kind in (np.float16, torch.bfloat16))


def output(name, device, *operations):
    program = compile_image_program(name, 0, [CenterCropRGBImageDecoder((4, 5), 1), *operations], *SIZES, device)
    return ImageOutput(name, SimpleNamespace(name=name), program)


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

    def take(self, program, count):
        self.note("take", program, count)
        return torch.zeros(count, 4, 5, 3, dtype=getattr(torch, self.programs[program].dtype))

    def submit(self, jobs):
        self.note("submit", *jobs)

    def collect(self):
        self.note("collect")
        return self.bad

    def decode(self, program, job):
        self.note("decode", program, job)
        return [BadImage(program, 0, "planted")]

    @contextmanager
    def batch_ops(self):
        self.note("batch_ops")
        yield

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
            where = "CPU" if "CPU" not in self.made else "GPU's CPU"
            self.made[where] = RecordedExecutor(self.calls, where, programs, arguments)
            return self.made[where]

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


def test_each_output_is_made_on_the_device_of_its_program(mixed):
    assert (mixed.names("CPU"), mixed.names("GPU")) == (["a", "c"], ["b", "d"])
    assert mixed.made["CPU"].arguments == (8, 2, 3)


@pytest.mark.parametrize(("device", "names"), [("cpu", ["CPU"]), ("cuda:0", ["GPU"])])
def test_workers_that_have_nothing_to_do_are_not_started(device, names):
    bench = Bench(output("a", device), output("b", device))
    assert list(bench.made) == names
    bench.executors.submit([1, 2])
    bench.executors.collect()
    assert [call[:2] for call in bench.calls] == [(names[0], "submit"), (names[0], "collect")]


def test_without_images_no_executor_is_started():
    bench = Bench()
    assert bench.made == {}
    bench.executors.submit([])
    assert bench.executors.collect() == []
    assert bench.executors.arrival([]) is None
    bench.executors.close()


def test_memory_is_allocated_by_its_writer(mixed):
    taken = [mixed.executors.take(number, 3) for number in range(4)]
    assert [type(array) for array in taken] == [np.ndarray, torch.Tensor] * 2
    assert [str(array.dtype).removeprefix("torch.") for array in taken] == ["uint8", "uint8", "float16", "float16"]
    assert mixed.calls == [("GPU", "take", 0, 3), ("GPU", "take", 1, 3)]


def test_jobs_go_to_their_workers_and_bad_images_come_back_with_the_number_of_their_output(mixed):
    mixed.executors.submit(["job a", "job b", "job c", "job d"])
    assert mixed.calls == [("GPU", "submit", "job b", "job d"), ("CPU", "submit", "job a", "job c")]
    mixed.made["GPU"].bad = [BadImage(1, 5, "why")]
    mixed.made["CPU"].bad = [BadImage(0, 6, "how"), BadImage(1, 7, "when")]
    assert sorted(mixed.executors.collect(), key=lambda bad: bad.program) == [
        BadImage(0, 6, "how"),
        BadImage(2, 7, "when"),
        BadImage(3, 5, "why"),
    ]


def test_a_job_alone_is_carried_out_by_its_own_workers(mixed):
    for number in range(4):
        assert mixed.executors.decode(number, f"job {number}")
    assert mixed.calls == [
        ("CPU", "decode", 0, "job 0"),
        ("GPU", "decode", 0, "job 1"),
        ("CPU", "decode", 1, "job 2"),
        ("GPU", "decode", 1, "job 3"),
    ]


def test_batch_operations_run_in_the_gpus_torch_context(mixed):
    with mixed.executors.torch_context():
        assert mixed.calls == [("GPU", "batch_ops")]
    with Bench(output("a", "cpu")).executors.torch_context():
        pass


@pytest.mark.parametrize(
    ("operations", "dtype"),
    [
        ([], np.uint8),
        ([HALVES], np.float16),
        ([NormalizeImage((1, 2, 3), (4, 5, 6), np.float32)], np.float32),
    ],
)
def test_an_output_that_returns_to_the_cpu_is_fetched_as_an_array(operations, dtype):
    bench = Bench(output("a", "cuda:0", *operations))
    result = bench.executors.finished(0, bench.executors.take(0, 2), None)
    assert (type(result), result.dtype, result.shape) == (np.ndarray, dtype, (2, 4, 5, 3))
    assert bench.calls[1:] == [("GPU", "fetch", (2, 4, 5, 3))]


def test_bfloat16_is_fetched_as_its_bits():
    bfloat_output = output("a", "cuda:0", BFLOAT, ToTensor())
    bench = Bench(replace(bfloat_output, program=replace(bfloat_output.program, returns_to_cpu=True)))
    result = bench.executors.finished(0, torch.ones(1, 4, 5, 3, dtype=torch.bfloat16), None)
    assert (result.dtype, result[0, 0, 0, 0]) == (np.uint16, 0x3F80)


def test_an_output_that_stays_on_the_gpu_is_not_fetched(mixed):
    bench = Bench(output("a", "cuda:0", ToTensor()), output("b", "cpu"))
    tensor, array = torch.zeros(2), np.zeros(2)
    assert bench.executors.finished(0, tensor, None) is tensor
    assert bench.executors.finished(1, array, None) is array
    assert bench.calls == []


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


def test_a_gpu_may_have_a_separate_worker_pool_of_the_cpu(mixed):
    host = mixed.made["GPU"].arguments
    assert (host.probe, host.num_workers) == (probe_jpegs, 2)
    workers = host.start_executor(["programs"])
    assert workers is mixed.made["GPU's CPU"]
    assert (workers.programs, workers.arguments) == (["programs"], (8, 2, 3))
