"""Mixture: several sources as one dataset, each with its share of every batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from gpubeton._bytes.store_client import shown
from gpubeton.errors import OptionError
from gpubeton.format.dataset import list_paths
from gpubeton.pipeline.validation import check_whole
from gpubeton.traversal_order.mixed import MixtureRules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubeton.format.dataset import Paths

    Weights = Sequence[float] | Mapping[Any, float]
    Schedule = Mapping[int, Weights] | Callable[[int], Weights]

__all__ = ["Mixture"]

# Samples of a block in which shares are exact if they need not be in a batch.
_EPOCH_BLOCK = 4096


class Mixture:
    """Several sources, each with its share of every batch: the first argument of `Loader`.

    Parameters
    ----------
    sources : mapping or iterable of pairs
        Each source and its weight. A source is what `Loader` takes: a file, a folder, a URL, an index, tar files; or a
        tuple of them. Weights are at least 0; their sum need not be 1. All sources have fields of the same names and
        types.
    samples : int, optional
        Samples of an epoch, of all ranks together. By default as many as all sources have.
    by : {"batch", "epoch"} or int
        Where the shares are exact: in each batch of all ranks, within one sample; or in each so many samples; or in
        the epoch alone, and nearly in any part of it, the same for any batch size.
    repeat : bool
        Whether a source that is used up begins anew, in another order. Sources then go on over epochs: one with a small
        share shows all of its samples before any comes again. Otherwise the epoch ends before a source is used up, and
        the next one begins all of them anew.
    schedule : mapping or callable, optional
        Other weights in later epochs: ``{10: [0.5, 0.5]}`` from epoch 10 on, or a function of the epoch. Weights are a
        list in the order of the sources, or a mapping.
    field : str, optional
        Name of a further field of whole numbers: the number of each sample's source, from 0.

    Attributes
    ----------
    sources : tuple of str or tuple of str
        The sources.
    files : tuple of str
        Their files and folders.
    samples, by, repeat, field
        The arguments.
    rules : MixtureRules
        What the loader's order needs of them.

    Raises
    ------
    OptionError
        If an argument is out of its range.

    Notes
    -----
    The loader's `order` and `indices` hold for each source: with ``order="window"``, each has its share of the streams,
    so that as many pages are in use as of one source. The order of a source in its k-th pass is that of a loader of
    this source alone in epoch k, for the same number of streams.

    Sample ids count through all sources, in their order. A sample that comes again in an epoch gets other draws.

    Examples
    --------
    >>> from gpubeton import Loader, Mixture
    >>> mixture = Mixture({"train.beton": 0.75, "train": 0.25}, samples=200, field="source")
    >>> loader = Loader(mixture, 20, order="random", seed=0, pipelines={"image": None})
    >>> for label, source in loader:
    ...     print(source.sum().item(), end=" ")
    5 5 5 5 5 5 5 5 5 5
    >>> loader.stats().source_images
    (150, 50)
    """

    def __init__(
        self,
        sources: Mapping[Any, float] | Iterable[tuple[Paths, float]],
        *,
        samples: int | None = None,
        by: Literal["batch", "epoch"] | int = "batch",
        repeat: bool = True,
        schedule: Schedule | None = None,
        field: str | None = None,
    ) -> None:
        pairs = list(sources.items() if isinstance(sources, Mapping) else sources)
        if not pairs:
            raise OptionError("Mixture: no sources; expected at least one: {'photos.beton': 0.7, 'drawings/': 0.3}")
        self.sources = tuple(_as_text(source) for source, _ in pairs)
        self.files = tuple(name for source in self.sources for name in list_paths(source))
        self.samples = None if samples is None else check_whole("samples", samples, 1)
        self.by, self.repeat, self.field = by, bool(repeat), field
        self._names = [shown(source if isinstance(source, str) else source[0]) for source in self.sources]
        self._steps = {0: self._listed([weight for _, weight in pairs])}
        self._function = schedule if callable(schedule) else None
        if isinstance(schedule, Mapping):
            self._steps |= {check_whole("schedule", at, 0): self._listed(weights) for at, weights in schedule.items()}
        block = None if by == "batch" else _EPOCH_BLOCK if by == "epoch" else check_whole("by", by, 1)
        constant_from = max(self._steps) if self._function is None else None
        self.rules = MixtureRules(self._names, self.weights, constant_from, self.samples, block, self.repeat)

    def __repr__(self) -> str:
        shares = ", ".join(f"{name}: {weight}" for name, weight in zip(self._names, self.weights(0), strict=True))
        return f"<Mixture of {shares}>"

    def weights(self, epoch: int) -> tuple[float, ...]:
        """Give the weights of an epoch.

        Parameters
        ----------
        epoch : int
            Its number.

        Returns
        -------
        tuple of float
            Weight of each source.

        Raises
        ------
        OptionError
            If the schedule is a function that gives others than numbers, one for each source.

        Examples
        --------
        >>> mixture = Mixture({"a.beton": 3, "b.beton": 1}, schedule={5: [1, 1]})
        >>> mixture.weights(4), mixture.weights(6)
        ((3.0, 1.0), (1.0, 1.0))
        """
        if self._function is not None:
            return self._listed(self._function(epoch))
        return self._steps[max(begin for begin in self._steps if begin <= epoch)]

    def _listed(self, weights: Any) -> tuple[float, ...]:
        try:
            if isinstance(weights, Mapping):
                by_name = {_as_text(source): weight for source, weight in weights.items()}
                weights = [by_name.pop(source) for source in self.sources] + [*by_name]
            numbers = tuple(map(float, weights))
        except (KeyError, TypeError, ValueError):
            numbers = ()
        is_right = len(numbers) == len(self.sources) and all(isfinite(number) and number >= 0 for number in numbers)
        if not is_right or not any(numbers):
            raise OptionError(
                f"Mixture: the weights are {weights!r}; expected a finite number of at least 0 for each of "
                f"{', '.join(self._names)}, one of them above 0"
            )
        return numbers


def _as_text(source: Any) -> str | tuple[str, ...]:
    return tuple(map(os.fspath, source)) if isinstance(source, tuple | list) else os.fspath(source)
