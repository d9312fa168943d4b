"""PerImageRetry: makes images one by one in the caller's thread, after a failure and as replacements."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.gpu.batch_memory import Slot
from gpubeton.gpu.decode_backend import DecodeBackend, DecodeRequest
from gpubeton.gpu.device_structs import PICTURE, KernelImages, describe_images, image_arrays
from gpubeton.gpu.memory_layout import ALIGNMENT, identity_draws, lay_out_images

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from gpubeton.gpu.device import Device, Stream
    from gpubeton.gpu.launch import Augmenter
    from gpubeton.plan.image_executor import ImageJob
    from gpubeton.plan.program import ImageProgram


class PerImageRetry:
    """Makes images one by one, and waits for each."""

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device = device
        self._stream = stream
        self._slot = Slot(device)

    def decode(
        self,
        backend: DecodeBackend,
        programs: Sequence[tuple[int, ImageProgram]],
        jobs: Sequence[ImageJob],
        augmenter: Augmenter,
        nonce: int,
    ) -> str | None:
        """Decode a JPEG, and make the images of all programs of it; return why it failed, or None."""
        job = jobs[0]
        layout = lay_out_images(job.height, job.width)
        staging = self._slot.staging.reserve(int(job.size[0]))
        arena = self._slot.arena.reserve(layout.nbytes + ALIGNMENT).address
        staging.array[: int(job.size[0])] = _bytes_at(job)
        picture = _picture(arena, int(layout.pitch[0]), int(job.height[0]), int(job.width[0]), is_guarded=True)
        images = self._describe(picture, programs, jobs, nonce)
        augmenter.write_canaries(images[0].pictures, 1, nonce, self._stream)
        # As for batches: a decoder may write when it is called, and the canary must not be written after it.
        self._stream.synchronize()  # wait point: retry canary written
        request = DecodeRequest(
            np.array([staging.address], np.uint64), job.size, layout.offset + np.uint64(arena), layout.pitch,
            job.height, job.width,
        )  # fmt: skip
        event, failed = backend.begin(request)
        if event is not None:
            event.synchronize()  # wait point: retry decoded
        if failed:
            return failed[0]
        status = self._augment(programs, images, augmenter)
        return "the decoder reported success, and wrote nothing" if any(status) else None

    def finish(
        self,
        number: int,
        program: ImageProgram,
        job: ImageJob,
        levels: NDArray[np.uint8],  # (1, height, width, 3)
        augmenter: Augmenter,
    ) -> None:
        """Send an image that the CPU has made to the device, and finish it there."""
        staging = self._slot.staging.reserve(levels.nbytes)
        arena = self._slot.arena.reserve(levels.nbytes + ALIGNMENT).address
        staging.array[: levels.nbytes] = levels.reshape(-1)
        picture = _picture(arena, 3 * program.width, program.height, program.width, is_guarded=False)
        whole = replace(job, draws=identity_draws(program.height, program.width, job.draws.shape[1]))
        images = self._describe(picture, [(number, program)], [whole], 0)
        self._device.copy(arena, staging.address, levels.nbytes, self._stream)
        self._augment([(number, program)], images, augmenter)

    def free(self) -> None:
        """Free its memory; nothing may be under way."""
        self._slot.free()

    def _describe(
        self,
        picture: NDArray[np.void],
        programs: Sequence[tuple[int, ImageProgram]],
        jobs: Sequence[ImageJob],
        nonce: int,
    ) -> list[KernelImages]:
        arrays: dict[Hashable, NDArray[Any]] = {}
        for (number, program), job in zip(programs, jobs, strict=True):
            arrays |= image_arrays(number, program, picture, job.draws, job.colors)
        places = self._slot.table.fill(arrays)
        self._slot.table.send(self._stream)
        return [
            describe_images(number, program, job, places, nonce)
            for (number, program), job in zip(programs, jobs, strict=True)
        ]

    def _augment(
        self, programs: Sequence[tuple[int, ImageProgram]], images: Sequence[KernelImages], augmenter: Augmenter
    ) -> list[int]:
        found = []
        for (number, _), own in zip(programs, images, strict=True):
            taps = self._slot.taps.reserve(augmenter.taps_nbytes(number, 1, own.most_taps)).address
            levels = self._slot.resampled.reserve(augmenter.resampled_nbytes(number, 1)).address
            augmenter.augment(number, own, taps, levels, self._stream)
            status = self._slot.table.bring_back((number, "status"), self._stream)
            self._stream.synchronize()  # wait point: retry augmented
            found.append(int(status[0]))
        return found


def _picture(address: int, pitch: int, height: int, width: int, *, is_guarded: bool) -> NDArray[np.void]:
    picture = np.zeros(1, PICTURE)
    picture["address"], picture["pitch"], picture["height"], picture["width"] = address, pitch, height, width
    picture["is_guarded"] = is_guarded
    return picture


def _bytes_at(job: ImageJob) -> NDArray[np.uint8]:
    """Copy the stored bytes of a job's only image."""
    size = int(job.size[0])
    return np.frombuffer(ctypes.string_at(int(job.address[0]), size), np.uint8)
