"""Laps: loops over a loader for a while, with a step of a given length."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubeton.loader import Loader, LoaderStats

__all__ = ["Lap", "long_indices", "run_lap"]


@dataclass(frozen=True)
class Lap:
    """A loop over a loader for a while.

    Parameters
    ----------
    images : int
        Images received, but for those of the first batch.
    seconds : float
        Wall time since the first batch.
    cpu_seconds : float
        Processor time of the whole process meanwhile.
    stats : LoaderStats
        The loader's own, with the first batch.
    """

    images: int
    seconds: float
    cpu_seconds: float
    stats: LoaderStats

    @property
    def images_per_second(self) -> float:
        """Images per second of wall time."""
        return self.images / self.seconds if self.seconds else 0.0

    @property
    def images_per_cpu_second(self) -> float:
        """Images that one core does in a second."""
        return self.images / self.cpu_seconds if self.cpu_seconds else 0.0


def long_indices(num_samples: int, batch_size: int, *, batches: int = 512) -> np.ndarray:
    """Repeat the samples of a small file, so that an epoch is long.

    Parameters
    ----------
    num_samples : int
        Samples of the file.
    batch_size : int
        Samples in a batch.
    batches : int
        How many batches there are to be at least.

    Returns
    -------
    ndarray of int64, shape (N,)
        Sample ids, each equally often.
    """
    times = max(1, -(-batches * batch_size // num_samples))
    return np.tile(np.arange(num_samples), times)


def run_lap(
    loader: Loader, *, seconds: float, step_seconds: float = 0.0, on_batch: Callable[[int], None] | None = None
) -> Lap:
    """Loop over a loader for a while.

    Parameters
    ----------
    loader : Loader
        The loader; more than one epoch of it, if they are short.
    seconds : float
        How long, counted from the first batch. Two batches are waited for in any case.
    step_seconds : float
        How long the loop sleeps for each batch, as a training step on a GPU leaves the CPU alone.
    on_batch : callable, optional
        Called with the number of images of each batch.

    Returns
    -------
    Lap
        What came of it.
    """
    images, begun, cpu_begun = 0, 0.0, 0.0
    while True:
        batches = iter(loader)
        for _ in batches:
            now = time.perf_counter()
            if begun:
                images += len(batches.samples)
            else:
                begun, cpu_begun = now, time.process_time()
            if on_batch is not None:
                on_batch(len(batches.samples))
            if images and now - begun >= seconds:
                batches.close()
                cpu = time.process_time() - cpu_begun
                return Lap(images, now - begun, cpu, loader.stats(total=True))
            if step_seconds:
                time.sleep(step_seconds)
        if not loader.stats().batches:
            return Lap(0, 0.0, 0.0, loader.stats(total=True))
