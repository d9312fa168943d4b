"""Crews: who makes the images of each output, the CPU's workers or a GPU."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from gpubeton.cpu.epilogue import mix_and_store
from gpubeton.cpu.jpeg.probe import probe_jpegs
from gpubeton.cpu.pack import pack_crops, pack_regions
from gpubeton.pipeline.pixel_type import pixel_type
from gpubeton.pipeline.ragged import tensors_in
from gpubeton.plan.image_executor import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.engine.arrays import ArrayPool
    from gpubeton.engine.image_output import ImageOutput
    from gpubeton.gpu.gpu_executor import GpuExecutor
    from gpubeton.gpu.gpu_resources import CpuServices
    from gpubeton.plan.image_executor import BadImage, ImageExecutor, ImageJob, StartExecutor
    from gpubeton.plan.program import ImageProgram


class MakeGpuCrew(Protocol):
    """What begins an epoch on a GPU; `gpubeton.gpu.gpu_executor.Gpu.crew` does."""

    def __call__(self, programs: Sequence[ImageProgram], host: CpuServices) -> GpuExecutor:
        """Begin an epoch of these programs."""
        ...


class Crews:
    """The workers of one epoch: those of the CPU, a GPU, or both.

    Parameters
    ----------
    outputs : sequence of ImageOutput
        The outputs with images.
    make_crew : StartExecutor
        Starts workers of the CPU; not called if no output needs them.
    make_gpu_crew : MakeGpuCrew or None
        Begins the epoch on a GPU; not called if no output is made there.
    pool : ArrayPool
        Memory for what the CPU makes.
    batch_size, num_workers, num_in_flight : int
        As for `StartExecutor`.
    """

    def __init__(
        self,
        outputs: Sequence[ImageOutput],
        make_crew: StartExecutor,
        make_gpu_crew: MakeGpuCrew | None,
        pool: ArrayPool,
        *,
        batch_size: int,
        num_workers: int,
        num_in_flight: int,
    ) -> None:
        self._outputs = list(outputs)
        self._pool = pool
        self._gpu: GpuExecutor | None = None
        self._cpu: ImageExecutor | None = None
        self._on_gpu = [number for number, output in enumerate(outputs) if output.program.device != "cpu"]
        self._on_cpu = [number for number, output in enumerate(outputs) if output.program.device == "cpu"]

        def start(programs: Sequence[ImageProgram]) -> ImageExecutor:
            return make_crew(programs, batch_size, num_workers, num_in_flight)

        with ExitStack() as undo:
            if self._on_cpu:
                self._cpu = start([outputs[number].program for number in self._on_cpu])
                undo.callback(self._cpu.close)
            if self._on_gpu and make_gpu_crew is not None:
                from gpubeton.gpu.gpu_resources import CpuServices

                host = CpuServices(probe_jpegs, pack_regions, pack_crops, start, num_workers)
                self._gpu = make_gpu_crew([outputs[number].program for number in self._on_gpu], host)
            undo.pop_all()

    def take(self, number: int, count: int) -> Any:
        """Take memory for the images of a batch.

        Parameters
        ----------
        number : int
            Which output.
        count : int
            Number of images N.

        Returns
        -------
        ndarray or torch.Tensor, shape (N, height, width, 3)
            Not initialised.
        """
        if self._gpu is not None and number in self._on_gpu:
            return self._gpu.take(self._on_gpu.index(number), count)
        return self._outputs[number].take_array(self._pool, count)

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch.

        Parameters
        ----------
        jobs : sequence of ImageJob
            A job for each output.
        """
        if self._gpu is not None:
            self._gpu.submit([jobs[number] for number in self._on_gpu])
        if self._cpu is not None:
            self._cpu.submit([jobs[number] for number in self._on_cpu])

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch.

        Returns
        -------
        list of BadImage
            What could not be made; `BadImage.program` is the output's number.
        """
        bad: list[BadImage] = []
        if self._gpu is not None:
            bad += [replace(own, program=self._on_gpu[own.program]) for own in self._gpu.collect()]
        if self._cpu is not None:
            bad += [replace(own, program=self._on_cpu[own.program]) for own in self._cpu.collect()]
        return bad

    def decode(self, number: int, job: ImageJob) -> list[BadImage]:
        """Carry the job of one output out in the caller's thread.

        Parameters
        ----------
        number : int
            Which output.
        job : ImageJob
            The images.

        Returns
        -------
        list of BadImage
            What could not be made.
        """
        if self._gpu is not None and number in self._on_gpu:
            return self._gpu.decode(self._on_gpu.index(number), job)
        return [] if self._cpu is None else self._cpu.decode(self._on_cpu.index(number), job)

    def tail(self) -> Any:
        """Give the context in which torch works on finished batches."""
        return nullcontext() if self._gpu is None else self._gpu.tail()

    def finished(self, number: int, array: Any, mixes: NDArray[np.int32] | None) -> Any:
        """Bring the images of one output, of a complete batch, to where its tail begins.

        Parameters
        ----------
        number : int
            Which output.
        array : ndarray or torch.Tensor
            What was made.
        mixes : ndarray of int32, shape (N, MIX_COLUMNS), or None
            How they are mixed, see `ImageProgram.draw_mixes`.

        Returns
        -------
        ndarray or torch.Tensor
            The same, or a copy on the CPU: an ndarray, of bfloat16 its bits as uint16.
        """
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

    def arrival(self, outputs: Sequence[Any]) -> Callable[[], None] | None:
        """Mark that a batch is ready.

        Parameters
        ----------
        outputs : sequence of ndarray, torch.Tensor or Ragged
            The batch.

        Returns
        -------
        callable or None
            To be called by whoever receives it, see `gpubeton.gpu.gpu_executor.GpuExecutor.arrival`.
        """
        if self._gpu is None:
            return None
        return self._gpu.arrival(tensors_in(outputs))

    @property
    def usage(self) -> Usage:
        """How busy the CPU's workers were until now, all together."""
        return sum((crew.usage for crew in (self._gpu, self._cpu) if crew is not None), Usage())

    def close(self) -> None:
        """End all workers; may be called twice."""
        with ExitStack() as both:
            if self._cpu is not None:
                both.callback(self._cpu.close)
            if self._gpu is not None:
                both.callback(self._gpu.close)
