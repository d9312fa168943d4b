"""NVIDIA DALI on the CPU, with the pipeline of its ImageNet example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nvidia import dali
from nvidia.dali import fn, types

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.work import MEAN, STD, Work

_IN_FLIGHT = 2


def prepare(work: Work) -> Ready:
    """Make the pipeline."""
    pipeline = dali.Pipeline(
        batch_size=work.batch_size,
        num_threads=work.cores,
        device_id=None,
        seed=0,
        prefetch_queue_depth=_IN_FLIGHT,
    )
    with pipeline:
        encoded, labels = fn.readers.file(file_root=work.folder, random_shuffle=True, initial_fill=1024)
        images, mirror = load(encoded, work)
        images = fn.crop_mirror_normalize(
            images,
            device="cpu",
            dtype=types.FLOAT16,
            output_layout="HWC",
            mean=list(MEAN),
            std=list(STD),
            crop=[work.side, work.side],
            mirror=mirror,
        )
        pipeline.set_outputs(images, labels)
    return run_laps(pipeline, work)


def load(encoded: Any, work: Work) -> tuple[Any, Any]:
    """Decode and resize images; return them, and which of them to mirror."""
    triangular = {"device": "cpu", "interp_type": types.INTERP_TRIANGULAR}
    if work.crop == "center":
        images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        return fn.resize(images, resize_shorter=work.shorter, **triangular), 0
    images = fn.decoders.image_random_crop(
        encoded, device="cpu", output_type=types.RGB, random_aspect_ratio=[3 / 4, 4 / 3], random_area=[0.08, 1.0]
    )
    return fn.resize(images, resize_x=work.side, resize_y=work.side, **triangular), fn.random.coin_flip(probability=0.5)


def run_laps(pipeline: dali.Pipeline, work: Work) -> Ready:
    """Build a pipeline whose first output is the images."""
    pipeline.build()

    def lap() -> Iterator[int]:
        # Schedule explicitly, so that no batch is prepared outside a lap.
        for batch in range(work.batches + _IN_FLIGHT):
            if batch >= _IN_FLIGHT:
                pixels, _ = pipeline.share_outputs()
                yield pixels.as_array().shape[0]
                pipeline.release_outputs()
            if batch < work.batches:
                pipeline.schedule_run()

    return Ready(lap, {"dali": dali.__version__})


if __name__ == "__main__":
    serve(prepare)
