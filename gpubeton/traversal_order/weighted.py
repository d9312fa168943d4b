"""Weighted and Balanced: samples drawn in proportion to weights, as torch's WeightedRandomSampler draws them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton._plan.order import draw_weighted
from gpubeton.errors import OptionError
from gpubeton.pipeline.validation import check_whole
from gpubeton.traversal_order.base import GlobalOrder

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from gpubeton.traversal_order.base import OrderedLoader


class Weighted(GlobalOrder):
    """Samples drawn for each epoch in proportion to weights, as torch's ``WeightedRandomSampler`` draws them.

    Pass the class as ``order`` and its arguments as ``order_kwargs``. With indices, also those of ``Loader.filter``,
    only these samples are drawn, with the weights that they have.

    Parameters
    ----------
    loader : Loader
        The loader that asks.
    weights : array_like of float, shape (samples of the file,)
        Weight of each sample of the file, by its id, also if the loader has indices. At least 0; the sum need not be 1.
    num_samples : int, optional
        Samples of an epoch, of all ranks together; by default as many as the loader's indices.
    replacement : bool
        Whether a sample may be drawn more than once in an epoch.

    Raises
    ------
    OptionError
        If the weights are not one for each sample, finite and not below 0, or too few are above 0.

    Notes
    -----
    All ranks draw the same samples and share them: one of N ranks takes every N-th. Augmentations are a function of the
    seed, the epoch and the sample: a sample drawn twice in one epoch is augmented the same way twice, and differently
    in the next epoch.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> kwargs = {"weights": np.arange(300) < 3, "num_samples": 200}     # the first three samples alone
    >>> loader = Loader("train.beton", 100, order=Weighted, order_kwargs=kwargs, seed=0)
    >>> len(loader), sorted(set(loader.plan()[0].samples.tolist()))
    (2, [0, 1, 2])
    """

    def __init__(
        self, loader: OrderedLoader, weights: ArrayLike, num_samples: int | None = None, replacement: bool = True
    ) -> None:
        super().__init__(loader)
        self.weights = _checked_weights(weights, loader.reader.num_samples)
        self.num_samples = len(self.ids) if num_samples is None else check_whole("num_samples", num_samples, 1)
        self.replacement = bool(replacement)
        if not len(self.ids):  # then epochs are empty in any order
            self.num_samples = 0
        self.global_order(0)  # raises if too few can be drawn

    def global_ids(self, epoch: int) -> NDArray[np.uint64]:
        ids = np.asarray(self.ids, np.uint64)
        drawn = draw_weighted(self.weights[ids], self.num_samples, self.seed, epoch, replacement=self.replacement)
        return ids[drawn]

    def num_ids(self, epoch: int) -> int:
        return self.num_samples


class Balanced(Weighted):
    """Samples drawn so that all classes are equally frequent on average: each weighs one over the size of its class.

    The sizes are those among the loader's indices. The labels are read from the file's metadata, no sample is decoded.

    Parameters
    ----------
    loader : Loader
        The loader that asks.
    field : str
        Name of the ``IntField`` with the classes.
    num_samples, replacement
        As for `Weighted`.

    Raises
    ------
    OptionError
        If the field has no whole numbers, or too few samples can be drawn.
    NoSuchFieldError
        If the file has no such field.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> kwargs = {"field": "label", "num_samples": 1000}
    >>> len(Loader("train.beton", 100, order=Balanced, order_kwargs=kwargs, seed=0))
    10
    """

    def __init__(
        self, loader: OrderedLoader, field: str, num_samples: int | None = None, replacement: bool = True
    ) -> None:
        labels = loader.reader.index.column(field)
        if labels.dtype.kind != "i":
            raise OptionError(f"Balanced: field {field!r} does not hold whole numbers; expected an IntField")
        weights = class_weights(labels, np.asarray(loader.indices, np.intp))
        super().__init__(loader, weights, num_samples, replacement)
        self.field = field


def class_weights(labels: NDArray[np.int64], indices: NDArray[np.intp]) -> NDArray[np.float64]:
    """Weigh each sample of the file, (N,), by one over the size of its class; 0 for samples not among `indices`."""
    _, classes, sizes = np.unique(labels[indices], return_inverse=True, return_counts=True)
    weights = np.zeros(len(labels))
    weights[indices] = 1 / sizes[classes]
    return weights


def _checked_weights(weights: ArrayLike, num_samples: int) -> NDArray[np.float64]:
    try:
        array = np.asarray(weights).astype(np.float64)  # a copy: the user's may change
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"weights are no array of numbers: {error}. Pass a list, an ndarray or a CPU tensor."
        ) from error
    if array.shape != (num_samples,):
        raise OptionError(
            f"weights have shape {array.shape}, but the file has {num_samples} samples; expected a weight for each "
            f"sample of the file, shape ({num_samples},), also when the loader has indices"
        )
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        raise OptionError(
            f"the weight of sample {wrong[0]} is {array[wrong[0]]} ({len(wrong)} such weights); expected finite "
            "numbers of at least 0"
        )
    return array
