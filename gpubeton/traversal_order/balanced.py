"""Balanced: every class is drawn equally often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import OptionError
from gpubeton.traversal_order.weighted import Weighted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.traversal_order.base import OrderedLoader


class Balanced(Weighted):
    """Samples drawn so that all classes are equally frequent on average: each weighs one over the size of its class.

    The sizes are those among the loader's indices. The labels are read from the file's metadata, no sample is decoded.

    Parameters
    ----------
    loader : Loader
        The loader that asks.
    field : str
        Name of the ``IntField`` with the classes.
    num_samples : int, optional
        Samples of an epoch, of all ranks together; by default as many as the loader's indices.
    replacement : bool
        Whether a sample may be drawn more than once in an epoch.

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
    """Weigh each sample of the file, (N,), by one over the size of its class; 0 for samples not among `indices`.

    >>> class_weights(np.array([7, 7, 9, 9, 9]), np.array([0, 1, 2])).tolist()
    [0.5, 0.5, 1.0, 0.0, 0.0]
    """
    _, classes, sizes = np.unique(labels[indices], return_inverse=True, return_counts=True)
    weights = np.zeros(len(labels))
    weights[indices] = 1 / sizes[classes]
    return weights
