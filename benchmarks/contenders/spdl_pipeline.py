"""Meta's SPDL: threads that decode, crop and scale with FFmpeg, then torch normalizes whole batches."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import spdl.io
import torch
from spdl.pipeline import PipelineBuilder

from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.work import MEAN, STD, Work


def prepare(work: Work) -> Ready:
    """Make the pipeline."""
    torch.set_num_threads(1)
    files = [str(path) for path in sorted(Path(work.folder).glob("*/*.jpg"))] * work.passes
    mean, std = torch.tensor(MEAN), torch.tensor(STD)

    def shuffled() -> Iterator[str]:
        yield from random.sample(files, len(files))

    def decode(path: str) -> Any:
        packets = spdl.io.demux_image(path)
        steps = _center(work) if work.crop == "center" else _augment(packets.width, packets.height, work.side)
        return spdl.io.decode_packets(packets, filter_desc=spdl.io.get_filter_desc(packets, filter_desc=steps))

    def finish(frames: list[Any]) -> torch.Tensor:
        pixels: torch.Tensor = spdl.io.to_torch(spdl.io.convert_frames(frames))
        return pixels.to(torch.float32).sub_(mean).div_(std).to(torch.float16).permute(0, 3, 1, 2)

    def lap() -> Iterator[int]:
        pipeline = (
            PipelineBuilder()
            .add_source(shuffled())
            .pipe(decode, concurrency=work.cores)
            .aggregate(work.batch_size, drop_last=True)
            .pipe(finish)
            .add_sink(3)
            .build(num_threads=work.cores)
        )
        with pipeline.auto_stop():
            yield from map(len, pipeline)

    return Ready(lap, {"spdl": version("spdl"), "torch": version("torch")})


def _center(work: Work) -> str:
    """Return FFmpeg's filters: resize the shorter side, crop the center."""
    scale = f"scale={work.shorter}:{work.shorter}:force_original_aspect_ratio=increase:flags=bilinear"
    return f"{scale},crop={work.side}:{work.side}"


def _augment(image_width: int, image_height: int, side: int) -> str:
    """Return FFmpeg's filters: crop at random, resize, mirror at random."""
    left, top, width, height = _random_crop(image_width, image_height)
    steps = f"crop={width}:{height}:{left}:{top},scale={side}:{side}:flags=bilinear"
    return steps + ",hflip" if random.random() < 0.5 else steps


def _random_crop(width: int, height: int) -> tuple[int, int, int, int]:
    area, low, high = width * height, math.log(3 / 4), math.log(4 / 3)
    for _ in range(10):
        target, aspect = area * random.uniform(0.08, 1.0), math.exp(random.uniform(low, high))
        crop_width, crop_height = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            return (
                random.randint(0, width - crop_width),
                random.randint(0, height - crop_height),
                crop_width,
                crop_height,
            )
    crop_width, crop_height = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height


if __name__ == "__main__":
    serve(prepare)
