"""Repairer: finishes images that the CPU has decoded after a failure, or as replacements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpubeton.gpu.device_structs import PICTURE, describe_images, image_arrays
from gpubeton.gpu.memory_layout import ALIGNMENT, identity_draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.gpu.gpu_resources import GpuResources
    from gpubeton.gpu.launch import Augmenter
    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.program import ImageProgram


class Repairer:
    """Finishes images one by one, on the tail stream, and waits for each."""

    def __init__(self, resources: GpuResources, augmenter: Augmenter) -> None:
        self._device = resources.device
        self._stream = resources.streams.tail
        self._slot = resources.repair_slot
        self._augmenter = augmenter

    def finish(
        self,
        number: int,
        program: ImageProgram,
        job: ImageJob,  # of one image
        levels: NDArray[np.uint8],  # (height, width, 3), of the output's size
    ) -> None:
        """Send an image to the device, change its colors and store it there."""
        slot, augmenter, stream = self._slot, self._augmenter, self._stream
        staging = slot.staging.reserve(levels.nbytes)
        arena = slot.arena.reserve(levels.nbytes + ALIGNMENT).address
        staging.array[: levels.nbytes] = levels.reshape(-1)
        picture = np.zeros(1, PICTURE)
        picture["address"], picture["pitch"] = arena, 3 * program.width
        picture["height"], picture["width"] = program.height, program.width
        whole = replace(job, draws=identity_draws(program.height, program.width, job.draws.shape[1]))
        places = slot.table.fill(image_arrays(number, program, picture, whole.draws, whole.colors))
        slot.table.send(stream)
        self._device.copy(arena, staging.address, levels.nbytes, stream)
        images = describe_images(number, program, whole, places, 0)
        taps = slot.taps.reserve(augmenter.taps_nbytes(number, 1, images.most_taps)).address
        resampled = slot.resampled.reserve(augmenter.resampled_nbytes(number, 1)).address
        augmenter.augment(number, images, taps, resampled, stream)
        stream.synchronize()  # wait point: repair finished
