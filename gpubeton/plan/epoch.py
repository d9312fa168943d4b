"""EpochPlan: which samples each batch of an epoch holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpubeton.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The samples of an epoch, cut into batches.

    Parameters
    ----------
    order : ndarray of uint64, shape (N,)
        Sample ids in the order of the epoch.
    batch_size : int
        Samples in a batch.
    drop_last : bool
        Whether a last batch of fewer samples is left out.

    Raises
    ------
    OptionError
        If `batch_size` is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> plan = EpochPlan(np.arange(10, dtype="u8"), batch_size=4, drop_last=False)
    >>> len(plan), plan.samples(2).tolist()
    (3, [8, 9])
    """

    order: NDArray[np.uint64]
    batch_size: int
    drop_last: bool

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise OptionError(f"batch_size is {self.batch_size}; expected at least 1")

    def __len__(self) -> int:
        whole, rest = divmod(len(self.order), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def samples(self, batch: int) -> NDArray[np.uint64]:
        """Sample ids of one batch.

        Parameters
        ----------
        batch : int
            Number of the batch, from 0.

        Returns
        -------
        ndarray of uint64, shape (batch_size,), or fewer in the last batch
            A view of the order.

        Raises
        ------
        IndexError
            If the epoch has no such batch.
        """
        if not 0 <= batch < len(self):
            raise IndexError(f"batch {batch} of an epoch of {len(self)} batches; expected 0 to {len(self) - 1}")
        return self.order[batch * self.batch_size : (batch + 1) * self.batch_size]
