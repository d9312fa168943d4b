"""What happens to samples whose image cannot be decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from gpubeton.errors import BadImageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

OnError = Literal["raise", "skip", "replace"]

MAX_TRIES = 16
"""Samples that are tried in the place of a bad one."""

# Samples that an error names one by one; all of them are in its attributes.
_MAX_NAMED = 5


class BadSample(NamedTuple):
    """A sample with an image that could not be decoded.

    Parameters
    ----------
    sample : int
        Its id.
    reason : str
        The output, and what was wrong with the image. With several files, first the file and the number there.
    """

    sample: int
    reason: str


def bad_image_error(where: str, bad: Sequence[BadSample], advice: str) -> BadImageError:
    """Make the error that names bad samples.

    Parameters
    ----------
    where : str
        File, batch and epoch.
    bad : sequence of BadSample
        The samples.
    advice : str
        What to try.

    Returns
    -------
    BadImageError
        To be raised.
    """
    named = "; ".join(f"sample {sample}: {reason}" for sample, reason in bad[:_MAX_NAMED])
    more = f"; and {len(bad) - _MAX_NAMED} more" if len(bad) > _MAX_NAMED else ""
    return BadImageError(
        f"{where}: {named}{more}. {advice}", [sample for sample, _ in bad], [reason for _, reason in bad]
    )


class Successors:
    """Which samples may stand in for a bad one: those that follow it in the loader's indices.

    Parameters
    ----------
    indices : ndarray of uint64, shape (N,)
        The loader's indices. After the last comes the first.

    Examples
    --------
    >>> list(Successors(np.array([7, 3, 5], "u8")).of(3))
    [5, 7]
    """

    def __init__(self, indices: NDArray[np.uint64]) -> None:
        self._indices = indices
        self._by_id: NDArray[np.intp] | None = None

    def of(self, sample: int) -> Iterator[int]:
        """Give the samples to try.

        Parameters
        ----------
        sample : int
            Id of the bad sample.

        Yields
        ------
        int
            Ids of up to `MAX_TRIES` other samples.
        """
        if len(self._indices) == 0:
            return
        if self._by_id is None:  # sorted when the first bad image is met; mostly there is none
            self._by_id = np.argsort(self._indices, kind="stable")
        # An order of the user's own may name samples that are not among the indices: then the next greater one.
        at = np.searchsorted(self._indices, np.uint64(sample), sorter=self._by_id) % len(self._indices)
        place = self._by_id[at]
        seen = {sample}
        for step in range(len(self._indices)):
            candidate = int(self._indices[(place + step) % len(self._indices)])
            if candidate not in seen:
                yield candidate
                seen.add(candidate)
            if len(seen) > MAX_TRIES:
                return
