"""Origin: what decides which samples an epoch holds, besides its number and the seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.loader.state import arguments_fingerprint, indices_fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gpubeton.traversal_order import TraversalOrder


@dataclass(frozen=True, eq=False)
class Origin:
    """What decides which samples an epoch holds, as it was when the epoch began.

    Parameters
    ----------
    indices : ndarray of uint64, shape (N,)
        The loader's.
    order : TraversalOrder
        The order.
    arguments : mapping of str to object
        Arguments of the order's class.
    own_indices : array_like of int, shape (M,), or None
        The order's, which may have been assigned to it; None for an order of the user's own, which knows its samples.
    sampler : torch.utils.data.Sampler or None
        What the order follows.

    Examples
    --------
    >>> from gpubeton import Loader
    >>> loader = Loader("train.beton", 100)
    >>> Origin.of(loader.indices, loader.traversal_order, {"step": 2}).fingerprints[1]
    "gpubeton.traversal_order.sequential.Sequential{'step': 2}"
    """

    indices: NDArray[np.uint64]
    order: TraversalOrder
    arguments: Mapping[str, Any]
    own_indices: Any
    sampler: Any

    @classmethod
    def of(cls, indices: NDArray[np.uint64], order: TraversalOrder, arguments: Mapping[str, Any]) -> Origin:
        """Take down what an order goes by now.

        Parameters
        ----------
        indices : ndarray of uint64, shape (N,)
            The loader's.
        order : TraversalOrder
            The order.
        arguments : mapping of str to object
            Arguments of the order's class.

        Returns
        -------
        Origin
            What stays as it is when the order gets others.
        """
        is_ours = type(order).__module__.startswith("gpubeton.")
        return cls(indices, order, arguments, order.indices if is_ours else None, order.sampler if is_ours else None)

    @property
    def is_changed(self) -> bool:
        """Whether the order goes by more than the loader's arguments, because that was assigned to it."""
        has_own = self.own_indices is not None and not np.array_equal(self.own_indices, self.indices)
        return has_own or self.sampler is not None

    @cached_property
    def fingerprints(self) -> tuple[str, str]:
        """Tell it from others: by the loader's indices, and by the order with what it goes by besides."""
        kind = type(self.order)
        order = f"{kind.__module__}.{kind.__qualname__}{arguments_fingerprint(self.arguments)}"
        if self.own_indices is not None and not np.array_equal(self.own_indices, self.indices):
            order += f" of {indices_fingerprint(np.asarray(self.own_indices, np.uint64))}"
        if self.sampler is not None:
            order += f", sampled by {type(self.sampler).__qualname__}"
        return indices_fingerprint(self.indices), order
