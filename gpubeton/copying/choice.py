"""Which samples go where. Decides only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

__all__ = ["choose", "split"]


def split(
    num_samples: int,
    shares: Sequence[float | int | None],
    *,
    labels: NDArray[np.int64] | None = None,
    shuffle: bool = True,
    seed: int = 0,
) -> list[NDArray[np.int64]]:
    """Divide samples into parts.

    Parameters
    ----------
    num_samples : int
        How many there are.
    shares : sequence of float, int or None
        What each part gets: a share of all below or equal to 1.0 if it is a float, so many if it is an int, the rest
        if it is None.
    labels : ndarray of int64, shape (num_samples,), optional
        Each class is then divided in these proportions, as nearly as whole samples allow.
    shuffle : bool
        Whether chance decides, by `seed`; otherwise the first part gets the first samples (of each class).
    seed : int
        For `shuffle`.

    Returns
    -------
    list of ndarray of int64
        The samples of each part, in ascending order. None is in two of them.

    Raises
    ------
    OptionError
        If there are not enough samples, a part gets none, or more than one is to get the rest.

    Examples
    --------
    >>> [part.tolist() for part in split(10, [0.5, 2, None], shuffle=False)]
    [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9]]
    >>> [part.tolist() for part in split(6, [0.5, 0.5], labels=np.array([0, 0, 0, 0, 1, 1]), shuffle=False)]
    [[0, 1, 4], [2, 3, 5]]
    """
    counts = _counts(num_samples, shares)
    order = _order(num_samples, shuffle, seed)
    if labels is not None:
        # Each sample's place within its class, from 0 to 1. Sorted by it, every stretch has its share of each class.
        by_class = order[np.argsort(labels[order], kind="stable")]
        _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
        place = (np.arange(num_samples) - np.repeat(starts, sizes) + 0.5) / np.repeat(sizes, sizes)
        order = by_class[np.argsort(place, kind="stable")]
    ends = np.cumsum(counts)
    return [np.sort(order[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def choose(
    num_samples: int,
    *,
    indices: Sequence[int] | NDArray[np.int64] | None = None,
    labels: NDArray[np.int64] | None = None,
    classes: Collection[int] | None = None,
    per_class: int | None = None,
    count: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Choose samples.

    Parameters
    ----------
    num_samples : int
        How many there are.
    indices : sequence of int, optional
        These only, in this order; one may occur more than once.
    labels : ndarray of int64, shape (num_samples,), optional
        The class of each sample, for the next two.
    classes : collection of int, optional
        Of these classes only.
    per_class : int, optional
        At most so many of each class.
    count : int, optional
        At most so many.
    shuffle : bool
        Whether chance decides which they are and how they are ordered, by `seed`; otherwise the first ones, in order.
    seed : int
        For `shuffle`.

    Returns
    -------
    ndarray of int64, shape (N,)
        Their ids.

    Raises
    ------
    OptionError
        If an index is none of a sample, there are no labels where they are needed, or no sample is left.

    Examples
    --------
    >>> choose(6, labels=np.array([0, 1, 2, 0, 1, 2]), classes=[0, 2], per_class=1).tolist()
    [0, 2]
    """
    chosen = np.arange(num_samples) if indices is None else np.asarray(indices, np.int64)
    wrong = chosen[(chosen < 0) | (chosen >= num_samples)]
    if len(wrong):
        raise OptionError(f"index {wrong[0]} is none of a sample; there are {num_samples}: 0 to {num_samples - 1}")
    if (classes is not None or per_class is not None) and labels is None:
        raise OptionError("classes can only be chosen of a file with a field of labels; name it: --label FIELD")
    if shuffle:
        chosen = chosen[_order(len(chosen), shuffle, seed)]
    if classes is not None and labels is not None:
        chosen = chosen[np.isin(labels[chosen], list(classes))]
    if per_class is not None and labels is not None:
        by_class = np.argsort(labels[chosen], kind="stable")
        _, starts, sizes = np.unique(labels[chosen][by_class], return_index=True, return_counts=True)
        rank = np.arange(len(chosen)) - np.repeat(starts, sizes)
        chosen = chosen[np.sort(by_class[rank < per_class])]
    chosen = chosen[:count]
    if len(chosen) == 0:
        raise OptionError(f"no sample of {num_samples} is left; a file has at least 1")
    return chosen


def _order(count: int, shuffle: bool, seed: int) -> NDArray[np.int64]:
    order: NDArray[np.int64] = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
    return order


def _counts(num_samples: int, shares: Sequence[float | int | None]) -> list[int]:
    if sum(share is None for share in shares) > 1:
        raise OptionError("more than one part is to get the rest")
    for share in shares:
        if share is not None and (not share > 0 or (isinstance(share, float) and share > 1)):
            raise OptionError(
                f"a share of {share}, expected a part of 1 such as 0.9, or a number of samples such as 5000"
            )
    # Shares add up before they are rounded: of 3 samples, 0.5 and 0.5 are all 3.
    counts, done = [], 0.0
    for share in shares:
        before = done
        done += share * num_samples if isinstance(share, float) else 0.0
        counts.append(round(done) - round(before) if isinstance(share, float) else share or 0)
    rest = num_samples - sum(counts)
    if rest < 0:
        raise OptionError(f"the parts would get {sum(counts)} samples, but there are {num_samples}")
    counts = [rest if share is None else count for share, count in zip(shares, counts, strict=True)]
    if 0 in counts:
        raise OptionError(f"of {num_samples} samples, part {counts.index(0) + 1} would get none; a file has at least 1")
    return counts
