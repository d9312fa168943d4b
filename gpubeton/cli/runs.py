"""Timed runs of a loader, and the pipelines for them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.cli.timeline import Timeline
from gpubeton.errors import OptionError
from gpubeton.fields import RGBImageField
from gpubeton.fields.decoders import RandomResizedCropRGBImageDecoder
from gpubeton.loader import Loader, OrderOption
from gpubeton.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage

if TYPE_CHECKING:
    import os

    from gpubeton.loader import LoaderStats
    from gpubeton.reader import Reader

_MEAN = (123.675, 116.28, 103.53)
_DEVIATION = (58.395, 57.12, 57.375)
_BATCHES = 512


@dataclass(frozen=True)
class LoaderRun:
    """A timed loop over a loader; the first batch counts only in `stats`."""

    images: int
    seconds: float
    cpu_seconds: float  # of the whole process
    stats: LoaderStats
    timeline: Timeline | None = None  # of the epoch with the most batches; None: not recorded

    @property
    def images_per_second(self) -> float:
        """Images per second of wall time."""
        return self.images / self.seconds if self.seconds else 0.0

    @property
    def images_per_cpu_second(self) -> float:
        """Images per second of one core."""
        return self.images / self.cpu_seconds if self.cpu_seconds else 0.0


def run_loader(loader: Loader, *, seconds: float, step_seconds: float = 0.0, is_recorded: bool = False) -> LoaderRun:
    """Loop over a loader for some seconds after its first batch, in several epochs if needed; at least two batches."""
    # The loop sleeps after each batch, because a training step on a GPU leaves the CPU idle.
    images, begun, cpu_begun = 0, 0.0, 0.0
    loader._statistics.is_recorded = is_recorded  # noqa: SLF001  no attribute for users
    epochs = []
    while True:
        batches = iter(loader)
        epochs.append(batches._stats.stages)  # noqa: SLF001
        for _ in batches:
            now = time.perf_counter()
            if begun:
                images += len(batches.samples)
            else:
                begun, cpu_begun = now, time.process_time()
            if images and now - begun >= seconds:
                batches.close()
                cpu = time.process_time() - cpu_begun
                stats = loader.stats(total=True)
                timeline = Timeline.of_longest(epochs, stats.num_workers) if is_recorded else None
                return LoaderRun(images, now - begun, cpu, stats, timeline)
            if step_seconds:
                time.sleep(step_seconds)
        if not loader.stats().batches:
            return LoaderRun(0, 0.0, 0.0, loader.stats(total=True))


def long_indices(num_samples: int, batch_size: int, *, batches: int = _BATCHES) -> np.ndarray:
    """Repeat the samples of a small file, so that an epoch has at least `batches` batches: int64 (N,)."""
    times = max(1, -(-batches * batch_size // num_samples))
    return np.tile(np.arange(num_samples), times)


def image_field(reader: Reader, wanted: str | None = None) -> str | None:
    """Return the wanted field with images, else the first; None if the file has none."""
    names = [name for name, handler in reader.handlers.items() if isinstance(handler, RGBImageField)]
    if wanted is not None and wanted not in names:
        raise OptionError(f"{wanted!r} is no field with images; expected one of {names}")
    return wanted or next(iter(names), None)


def training_loader(
    path: str | os.PathLike[str],
    reader: Reader,
    field: str | None,
    size: int,
    batch_size: int,
    *,
    is_augmented: bool = True,
    **arguments: Any,
) -> Loader:
    """Make a loader of random crops of the images of a field, flipped and normalized if `is_augmented`."""
    # Other fields with images are left out; fields without images are decoded. Its epochs are long.
    pipelines: dict[str, Any] = dict.fromkeys(
        name for name, handler in reader.handlers.items() if isinstance(handler, RGBImageField)
    )
    if field is not None:
        augmentations = [RandomHorizontalFlip(), NormalizeImage(_MEAN, _DEVIATION, np.float16)] if is_augmented else []
        crop = RandomResizedCropRGBImageDecoder((size, size))
        pipelines[field] = [crop, *augmentations, ToTensor(), ToTorchImage()]
    batch_size = min(batch_size, reader.num_samples)
    return Loader(
        path,
        batch_size,
        order=OrderOption.RANDOM,
        seed=0,
        indices=long_indices(reader.num_samples, batch_size),
        pipelines=pipelines,
        on_error="skip",
        **arguments,
    )
