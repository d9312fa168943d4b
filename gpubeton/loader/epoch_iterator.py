"""LoaderIterator: one pass over an epoch; and EpochIterator: one over chosen samples, for derived loaders."""

from __future__ import annotations

import threading
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.loader.config import check_indices
from gpubeton.loader.ffcv_compat import Replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from gpubeton._engine.engine import Batch
    from gpubeton._engine.prefetch import Prefetcher
    from gpubeton.loader.loader import Loader
    from gpubeton.loader.schedule import EpochCursor
    from gpubeton.loader.stats import EpochStats

__all__ = ["EpochIterator"]


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


class EpochIterator:
    """Iterate over batches of the samples that are given, as the ``__iter__`` of a class derived from `Loader` may do.

    Their augmentations are those of the epoch before ``loader.next_epoch``: as in FFCV, the epoch is counted first.

    Parameters
    ----------
    loader : Loader
        The loader, whose pipelines and batch size hold.
    order : array_like of int, shape (N,)
        Sample ids, in order. A smaller last batch is not left out.

    Notes
    -----
    FFCV's is a thread with buffers and CUDA streams as attributes; this one has none of these. `run_pipeline` is called
    by ``next``, in the thread of the loop.

    Examples
    --------
    The samples of each batch, handed out with it:

    >>> from gpubeton.loader.loader import Loader
    >>> class WithSamples(EpochIterator):
    ...     def run_pipeline(self, b_ix, batch_indices, batch_slot, cuda_event):
    ...         return super().run_pipeline(b_ix, batch_indices, batch_slot, cuda_event), batch_indices
    >>> class LoaderWithSamples(Loader):
    ...     def __iter__(self):
    ...         order = self.next_traversal_order()[: len(self) * self.batch_size]
    ...         self.next_epoch += 1
    ...         return WithSamples(self, order)
    >>> [samples[:2].tolist() for (image, label), samples in LoaderWithSamples("train.beton", 100)]
    [[0, 1], [100, 101], [200, 201]]
    """

    output_queue = Replaced("next() of this class gives a batch, which run_pipeline may change")

    def __init__(self, loader: Loader, order: ArrayLike) -> None:
        self.loader = loader
        self.order = check_indices("the order", order, loader.reader.num_samples)
        self.closed = False
        self._batches = loader._begin(self.order)  # noqa: SLF001  this is a part of the loader
        self._number = 0
        self._received: Any = None

    def __iter__(self) -> Iterator[Any]:
        return self

    @cached_property
    def metadata(self) -> NDArray[np.void]:
        """Metadata of the file, one structured row per sample."""
        return self.loader.reader.metadata

    def __next__(self) -> Any:
        """Give what `run_pipeline` gives for the next batch."""
        try:
            self._received = next(self._batches)
        except StopIteration:
            self.close()
            raise
        number, self._number = self._number, self._number + 1
        try:
            return self.run_pipeline(number, self._batches.samples, number % (self.loader.batches_ahead + 2), None)
        finally:
            self._received = None

    def run_pipeline(self, b_ix: int, batch_indices: NDArray[np.uint64], batch_slot: int, cuda_event: Any) -> Any:
        """Give a batch; to be overridden, and called.

        Parameters
        ----------
        b_ix : int
            Its number.
        batch_indices : ndarray of uint64, shape (batch_size,), or fewer in the last batch
            Its samples: those that were received, where ``on_error`` leaves bad ones out or replaces them.
        batch_slot : int
            FFCV's number of a buffer; means nothing here.
        cuda_event : None
            FFCV's event; means nothing here.

        Returns
        -------
        tuple of torch.Tensor or ndarray
            Its outputs.
        """
        return self._received

    def close(self) -> None:
        """End the threads that make batches. May be called twice."""
        self.closed = True
        self._batches.close()
