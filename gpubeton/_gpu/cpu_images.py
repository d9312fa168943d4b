"""CpuImages: images of a GPU's batches that the CPU's workers make, and those that they make in place of a decoder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._gpu.launch import PICTURE, describe_images, image_arrays
from gpubeton._plan.arena_layout import ALIGNMENT, taps_nbytes
from gpubeton._plan.draw_rows import identity_draws
from gpubeton._plan.image_job import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._gpu.batch import Batch
    from gpubeton._gpu.gpu_resources import GpuResources
    from gpubeton._gpu.launch import ProgramConstants
    from gpubeton._plan.image_job import BadImage, CpuServices, ImageExecutor, ImageJob
    from gpubeton._plan.program import ImageProgram


# What makes a program write levels.
_LEVELS: dict[str, Any] = {"table": None, "mean_std": None, "dtype": "uint8", "steps": (), "mixing": None}


class CpuImages:
    """Makes images of the final size on the CPU; the GPU carries out their steps."""

    def __init__(
        self,
        resources: GpuResources,
        programs: Sequence[ImageProgram],
        constants: Sequence[ProgramConstants],
        cpu: CpuServices,
    ) -> None:
        self._resources = resources
        self._programs = programs
        self._constants = constants
        self._cpu = cpu
        self._executor: ImageExecutor | None = None  # started with the first image

    def submit(self, batch: Batch) -> None:
        """Let the workers write their images of a batch into the staging memory."""
        array, jobs = batch.slot.staging.reserve(0).array, []
        for number, (program, job) in enumerate(zip(self._programs, batch.jobs, strict=True)):
            pixels = batch.finished.get(number)
            rows, start = np.zeros(0, np.intp), 0
            if pixels is not None:
                rows, start = pixels.finished, pixels.staged + pixels.crops_nbytes
            shape = (len(rows), program.height, program.width, 3)
            out = array[start : start + int(np.prod(shape))].reshape(shape)
            jobs.append(replace(job.rows(rows, out), steps=None))
        self._workers().submit(jobs)

    def collect_cpu_images(self, batch: Batch) -> list[BadImage]:
        """Wait for the workers' images of a batch; return the bad ones."""
        finished, bad_images = batch.finished, self._workers().collect()
        return [replace(bad, row=int(finished[bad.program].finished[bad.row])) for bad in bad_images]

    def make(self, number: int, job: ImageJob, rows: Sequence[int]) -> list[BadImage]:
        """Make some images of a job for one program, and store them on the device; waits."""
        program, bad_images = self._programs[number], []
        for row in rows:
            image = job.rows(np.array([row]), job.out[row : row + 1])
            levels = np.empty((1, program.height, program.width, 3), np.uint8)
            faults = self._workers().decode(number, replace(image, out=levels, steps=None))
            bad_images += [replace(bad, row=row) for bad in faults]
            if not faults:
                self.finish(number, image, levels[0])
        return bad_images

    def finish(
        self,
        number: int,
        job: ImageJob,  # of one image
        levels: NDArray[np.uint8],  # (height, width, 3), of the output's size
    ) -> None:
        """Send an image that the CPU has made to the device, carry out its steps and store it there; waits."""
        device, slot, stream = self._resources.device, self._resources.repair_slot, self._resources.streams.batch_ops
        program, constants = self._programs[number], self._constants[number]
        staging = slot.staging.reserve(levels.nbytes)
        arena = slot.arena.reserve(levels.nbytes + ALIGNMENT).address
        staging.array[: levels.nbytes] = levels.reshape(-1)
        picture = np.array([(arena, 3 * program.width, program.height, program.width, 0, 0, 0)], PICTURE)
        whole = replace(job, draws=identity_draws(program.height, program.width))
        most = constants.most_taps(whole.draws)
        addresses = slot.table.fill(image_arrays(number, picture, whole.draws, whole.steps))
        slot.table.send(stream)
        device.copy(arena, staging.address, levels.nbytes, stream)
        taps = slot.taps.reserve(sum(taps_nbytes(1, constants.side, most))).address
        levels_address = slot.resampled.reserve(sum(constants.steps_nbytes(1))).address
        images = describe_images(number, constants, whole, addresses, most_taps=most, taps=taps, levels=levels_address)
        images.begin(job.out.data_ptr(), nonce=0)
        images.resample(device, stream)
        images.carry_out_steps(device, stream)
        stream.synchronize()  # wait point: repair finished

    @property
    def usage(self) -> Usage:
        """How busy the workers were until now, all together."""
        return Usage() if self._executor is None else self._executor.usage

    def close(self) -> None:
        """End the workers."""
        if self._executor is not None:
            self._executor.close()

    def _workers(self) -> ImageExecutor:
        if self._executor is None:
            self._executor = self._cpu.start_executor(
                [replace(program, device="cpu", **_LEVELS) for program in self._programs]
            )
        return self._executor
