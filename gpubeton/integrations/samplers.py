"""The order of a loader, as the samplers that code around DataLoaders looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpubeton.loader import Loader

__all__ = ["BatchSampler", "FileDataset", "Sampler"]


class FileDataset:
    """What `DataLoader.dataset` is for: its length. Samples are made in batches, by the loader.

    Parameters
    ----------
    loader : Loader
        The loader.
    """

    def __init__(self, loader: Loader) -> None:
        self.fname = loader.fname
        self._loader = loader

    def __len__(self) -> int:
        """Samples of the loader, of all ranks together."""
        return len(self._loader.indices)

    def __repr__(self) -> str:
        return f"<{len(self)} samples of {self.fname}>"


class Sampler:
    """What `DataLoader.sampler` is for: the ids of the next epoch, and `set_epoch`.

    Parameters
    ----------
    loader : Loader
        The loader.
    set_epoch : callable
        Called with the number of the epoch.
    """

    def __init__(self, loader: Loader, set_epoch: Callable[[int], None]) -> None:
        self._loader = loader
        self._set_epoch = set_epoch
        rank = loader.traversal_order.rank
        self.rank, self.num_replicas = (0, 1) if rank is None else (rank.number, rank.world)

    def __len__(self) -> int:
        """Samples of this rank in an epoch, those of a last batch that is dropped included."""
        return len(self._loader.traversal_order.sample_order(self._loader.next_epoch))

    def __iter__(self) -> Iterator[int]:
        yield from map(int, self._loader.traversal_order.sample_order(self._loader.next_epoch))

    @property
    def epoch(self) -> int:
        """The epoch that comes next."""
        return self._loader.next_epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next ``for`` loop goes through.

        Parameters
        ----------
        epoch : int
            Its number. Of an epoch that is under way or is to be resumed, nothing changes.
        """
        self._set_epoch(epoch)


class BatchSampler:
    """What `DataLoader.batch_sampler` is for: the ids of each batch of the next epoch.

    Parameters
    ----------
    loader : Loader
        The loader.
    sampler : Sampler
        Its order.
    """

    def __init__(self, loader: Loader, sampler: Sampler) -> None:
        self._loader = loader
        self.sampler = sampler

    @property
    def batch_size(self) -> int:
        """Samples in a batch."""
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a smaller last batch is left out."""
        return self._loader.drop_last

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        ids = list(self.sampler)
        for number in range(len(self)):
            yield ids[number * self.batch_size : (number + 1) * self.batch_size]
