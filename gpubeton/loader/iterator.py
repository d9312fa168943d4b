"""LoaderIterator: one pass over the batches of an epoch."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpubeton._engine.engine import Batch
    from gpubeton._engine.prefetch import Prefetcher
    from gpubeton.loader.schedule import EpochCursor
    from gpubeton.loader.stats import EpochStats


class LoaderIterator:
    """Iterate over the batches of an epoch. Made by ``iter(loader)``.

    Each batch is a tuple of its outputs. Its tensors and arrays are never overwritten.

    Attributes
    ----------
    samples : ndarray of uint64, shape (N,)
        Sample ids of the batch that was received last.
    """

    def __init__(
        self,
        batches: Prefetcher,
        cursor: EpochCursor,  # how far the epoch has come; moved here
        bad_samples: list[tuple[int, int, str]],  # of the loader; extended here
        stats: EpochStats,  # updated here
        num_batches: int,  # of the epoch
    ) -> None:
        self.samples: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._batches = batches
        self._cursor = cursor
        self._bad_samples = bad_samples
        self._stats = stats
        self._num_batches = num_batches
        self._lock = threading.Lock()
        weakref.finalize(self, stats.end).atexit = False  # a loop that was left ends when its iterator is garbage

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "an iterator over batches cannot be copied or pickled: its threads belong to this process. Make a loader "
            "with the same arguments there; load_state_dict, with the state_dict() of this loader, lets it go on here"
        )

    def __len__(self) -> int:
        """Batches that are still to come, for progress bars: ``tqdm(iter(loader))``."""
        return 0 if self._cursor.is_complete else max(0, self._num_batches - self._cursor.batch)

    @property
    def epoch(self) -> int:
        """Number of the epoch."""
        return self._cursor.epoch

    def __next__(self) -> tuple[Any, ...]:
        """Wait for the next batch.

        Returns
        -------
        tuple of torch.Tensor or ndarray
            An output for each field that has a pipeline, in the order of the file, then the other outputs.

        Raises
        ------
        BadImageError
            If the batch holds an image that cannot be decoded, and ``on_error`` is "raise".
        LoaderClosedError
            If the loader was closed.
        Exception
            An error that an operation of a pipeline raised.
        """
        while True:
            batch = self._wait()
            with self._lock, self._stats.stages.handover:
                self._receive(batch)
                if batch.arrival is not None:
                    batch.arrival()
            if batch.outputs is not None:
                return batch.outputs

    def stop(self) -> None:
        """Request the end of the threads, without waiting for it."""
        self._stats.end()
        self._batches.stop()

    def close(self) -> None:
        """Stop: end the threads of this iterator. May be called twice, and from any thread."""
        self._stats.end()
        self._batches.close()

    def _wait(self) -> Batch:
        marked = self._stats.begin_wait()
        try:
            return next(self._batches)
        except BaseException as end:
            self._stats.end()
            self._cursor.is_complete |= isinstance(end, StopIteration)
            raise
        finally:
            self._stats.end_wait(marked)

    def _receive(self, batch: Batch) -> None:
        self.samples = batch.samples
        self._stats.receive(len(batch.samples), batch.samples)
        # Several threads may share the iterator and get here out of order.
        self._cursor.batch = max(self._cursor.batch, batch.number + 1)
        for bad in batch.bad:
            self._bad_samples.append((self._cursor.epoch, bad.sample, bad.reason))
