"""NVIDIA DALI with its mixed decoder: the JPEG engines, and the CPU and GPU together for the rest."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from nvidia import dali
from nvidia.dali import fn, types

from benchmarks.contenders.work import MEAN, STD
from benchmarks.gpu.contenders.service import Ready, serve
from benchmarks.gpu.contenders.work import GpuWork
from benchmarks.gpu.simulation import is_simulated
from gpubeton._machine import count_cores

_IN_FLIGHT = 2


def prepare(work: GpuWork, _: ExitStack) -> Ready:
    """Make the pipeline. Variants: "whole" decodes all of an image, "crop" only the needed part."""
    decoder, rest = ("cpu", "cpu") if is_simulated() else ("mixed", "gpu")
    pipeline = dali.Pipeline(
        batch_size=work.batch_size,
        num_threads=work.cores or count_cores(),
        device_id=None if is_simulated() else 0,
        seed=0,
        prefetch_queue_depth=_IN_FLIGHT,
    )
    with pipeline:
        encoded, labels = fn.readers.file(file_root=work.folder, random_shuffle=True, initial_fill=1024, name="files")
        crop: dict[str, Any] = {"random_aspect_ratio": [3 / 4, 4 / 3], "random_area": [0.08, 1.0]}
        if work.variant == "crop":
            images = fn.decoders.image_random_crop(encoded, device=decoder, output_type=types.RGB, **crop)
            images = fn.resize(images, device=rest, size=(work.side, work.side), interp_type=types.INTERP_TRIANGULAR)
        else:
            images = fn.decoders.image(encoded, device=decoder, output_type=types.RGB)
            images = fn.random_resized_crop(
                images, device=rest, size=(work.side, work.side), interp_type=types.INTERP_TRIANGULAR, **crop
            )
        images = fn.crop_mirror_normalize(
            images,
            device=rest,
            dtype=types.FLOAT16,
            output_layout="HWC",
            mean=list(MEAN),
            std=list(STD),
            mirror=fn.random.coin_flip(probability=0.5),
        )
        pipeline.set_outputs(images, labels)
    pipeline.build()

    def batches() -> Generator[int, None, None]:
        for _ in range(_IN_FLIGHT):
            pipeline.schedule_run()
        scheduled = _IN_FLIGHT
        try:
            while True:
                images, _ = pipeline.share_outputs()
                count = len(images)
                pipeline.release_outputs()
                scheduled -= 1
                pipeline.schedule_run()
                scheduled += 1
                yield count
        finally:
            for _ in range(scheduled):
                pipeline.share_outputs()
                pipeline.release_outputs()

    return Ready(batches, _settle, _IN_FLIGHT + 1, {"dali": dali.__version__})


def _settle() -> None:
    """Do nothing: `share_outputs` has already waited."""


if __name__ == "__main__":
    serve(prepare)
