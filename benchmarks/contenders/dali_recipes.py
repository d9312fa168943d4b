"""NVIDIA DALI on the CPU, with the recipes that it has operations for."""

from __future__ import annotations

from typing import Any

from nvidia import dali
from nvidia.dali import fn, types
from nvidia.dali.auto_aug import rand_augment, trivial_augment

from benchmarks.contenders.dali_pipeline import run_laps
from benchmarks.contenders.service import Ready, serve
from benchmarks.contenders.work import MEAN, STD, Work


def chosen(probability: float) -> Any:
    """Draw 1 for a share of the images."""
    return fn.random.coin_flip(probability=probability, dtype=types.BOOL)


def around(strength: float) -> Any:
    """Draw a factor."""
    return fn.random.uniform(range=[1 - strength, 1 + strength])


def jitter(images: Any, strength: float) -> Any:
    """Change brightness, contrast and saturation, in this order."""
    return fn.color_twist(images, brightness=around(strength), contrast=around(strength), saturation=around(strength))


def blur(images: Any) -> Any:
    """Blur by a random width."""
    return fn.gaussian_blur(images, sigma=fn.random.uniform(range=[0.1, 2.0]))


def load(work: Work) -> Any:
    """Load images, the fastest way that DALI's ImageNet example shows."""
    encoded, labels = fn.readers.file(file_root=work.folder, random_shuffle=True, initial_fill=1024)
    area, aspect = [0.08, 1.0], [3 / 4, 4 / 3]
    images = fn.decoders.image_random_crop(encoded, device="cpu", random_aspect_ratio=aspect, random_area=area)
    images = fn.resize(images, resize_x=work.side, resize_y=work.side, interp_type=types.INTERP_TRIANGULAR)
    images = fn.flip(images, horizontal=fn.random.coin_flip())
    size = [work.side, work.side]
    if work.recipe == "jitter":
        images = jitter(images, 0.4)
    elif work.recipe == "RandAugment":
        images = rand_augment.rand_augment(images, n=2, m=9, shape=size, fill_value=0)
    elif work.recipe == "torchvision":
        images = trivial_augment.trivial_augment_wide(images, shape=size, fill_value=0)
    elif work.recipe == "SimCLR, a view":
        if chosen(0.8):
            images = fn.hue(jitter(images, 0.8), hue=fn.random.uniform(range=[-72.0, 72.0]))
        if chosen(0.2):
            images = fn.saturation(images, saturation=0.0)
        if chosen(0.5):
            images = blur(images)
    images = fn.crop_mirror_normalize(images, dtype=types.FLOAT16, output_layout="HWC", mean=list(MEAN), std=list(STD))
    return images, labels


def prepare(work: Work) -> Ready:
    """Make the pipeline."""
    if work.recipe not in ("plain", "jitter", "RandAugment", "torchvision", "SimCLR, a view"):
        raise SystemExit(f"{work.recipe} is not written with DALI's operations")
    make = dali.pipeline_def(load, enable_conditionals=True)
    return run_laps(make(work, batch_size=work.batch_size, num_threads=work.cores, device_id=None, seed=0), work)


if __name__ == "__main__":
    serve(prepare)
