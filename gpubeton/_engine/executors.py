"""The image executors of one epoch: the CPU's worker pool, a GPU, or both."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpubeton._cpu.checksum import find_damage
from gpubeton._cpu.epilogue import mix_and_store
from gpubeton._cpu.jpeg.part_reader import JpegReader
from gpubeton._cpu.jpeg.probe import probe_jpegs
from gpubeton._cpu.pack import pack_crops, pack_regions
from gpubeton._plan.image_job import CpuServices, Usage
from gpubeton.pipeline.pixel_type import pixel_type
from gpubeton.pipeline.ragged import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton._engine.buffers import ArrayPool
    from gpubeton._engine.outputs import ImageOutput
    from gpubeton._gpu.executor import GpuExecutor
    from gpubeton._plan.image_job import BadImage, ImageExecutor, ImageJob, StartExecutor
    from gpubeton._plan.program import ImageProgram

    StartGpuExecutor = Callable[[Sequence[ImageProgram], CpuServices], GpuExecutor]


class ImageExecutors:
    """Sends the images of each output to the executor that makes them."""

    def __init__(
        self,
        outputs: Sequence[ImageOutput],
        start_executor: StartExecutor,  # not called if no output is made on the CPU
        start_gpu_executor: StartGpuExecutor | None,  # not called if no output is made on a GPU
        pool: ArrayPool,
        *,
        batch_size: int,
        num_workers: int,
        num_in_flight: int,
    ) -> None:
        self._outputs = list(outputs)
        self._pool = pool
        self._gpu: GpuExecutor | None = None
        self._on_gpu = [number for number, output in enumerate(outputs) if output.program.device != "cpu"]
        on_cpu = [number for number, output in enumerate(outputs) if output.program.device == "cpu"]
        self._executors: list[tuple[ImageExecutor, list[int]]] = []  # with the numbers of their outputs, the GPU first

        def start(programs: Sequence[ImageProgram]) -> ImageExecutor:
            return start_executor(programs, batch_size, num_workers, num_in_flight)

        with ExitStack() as undo:
            if on_cpu:
                cpu = start([outputs[number].program for number in on_cpu])
                undo.callback(cpu.close)
                self._executors.append((cpu, on_cpu))
            if self._on_gpu and start_gpu_executor is not None:
                host = CpuServices(probe_jpegs, pack_regions, pack_crops, find_damage, start, num_workers, JpegReader())
                self._gpu = start_gpu_executor([outputs[number].program for number in self._on_gpu], host)
                self._executors.insert(0, (self._gpu, self._on_gpu))
            undo.pop_all()

    def take(self, number: int, count: int) -> Any:
        """Take uninitialized memory for images: an array or tensor of shape (count, height, width, channels)."""
        if self._gpu is not None and number in self._on_gpu:
            return self._gpu.take(self._on_gpu.index(number), count)
        return self._outputs[number].take_array(self._pool, count)

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each output."""
        for executor, numbers in self._executors:
            executor.submit([jobs[number] for number in numbers])

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; `BadImage.program` is the number of the output."""
        return [
            replace(bad, program=numbers[bad.program])
            for executor, numbers in self._executors
            for bad in executor.collect()
        ]

    def decode(self, number: int, job: ImageJob) -> list[BadImage]:
        """Make the images of one output in the caller's thread."""
        executor, numbers = next(pair for pair in self._executors if number in pair[1])
        return executor.decode(numbers.index(number), job)

    def torch_context(self) -> Any:
        """Return the context in which torch works on finished batches."""
        return nullcontext() if self._gpu is None else self._gpu.batch_ops()

    def finished(self, number: int, array: Any, mixes: NDArray[np.int32] | None) -> Any:
        """Mix the images of an output by `mixes`, (N, MIX_COLUMNS), and move them to the CPU if they return there."""
        if self._gpu is None or number not in self._on_gpu:
            return (
                array if mixes is None else mix_and_store(self._outputs[number].program, array, mixes, self._pool.take)
            )
        if mixes is not None:
            array = self._gpu.mix(self._on_gpu.index(number), array, mixes)
        if not self._outputs[number].program.returns_to_cpu:
            return array
        tensor = self._gpu.fetch(array)
        return pixel_type(tensor.dtype).array(tensor)

    def carry_out(self, batch: Any, rows: Callable[[], NDArray[np.int32]]) -> bool:
        """Carry out step rows on a finished batch where it is, if that is a GPU that takes it."""
        return self._gpu is not None and self._gpu.carry_out(batch, rows)

    def arrival(self, outputs: Sequence[Any]) -> Callable[[], None] | None:
        """Mark that a batch is ready; the thread that receives the batch calls the result, unless it is None."""
        return None if self._gpu is None else self._gpu.arrival(tensors_in(outputs))

    @property
    def usage(self) -> Usage:
        """Total usage of the CPU's workers until now."""
        return sum((executor.usage for executor, _ in self._executors), Usage())

    def close(self) -> None:
        """Close all executors; may be called twice."""
        with ExitStack() as all_of_them:  # the GPU's, the last to be added, is closed first
            for executor, _ in reversed(self._executors):
                all_of_them.callback(executor.close)
