"""EpochIterator: an epoch of chosen samples, for loaders derived from `Loader`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpubeton.loader.config import check_indices
from gpubeton.loader.ffcv_compat import FfcvIteratorSurface

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from gpubeton.loader.loader import Loader

__all__ = ["EpochIterator"]


class EpochIterator(FfcvIteratorSurface):
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
