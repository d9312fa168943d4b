"""DataFile: one of the files of a dataset."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DataFile"]


@dataclass(frozen=True)
class DataFile:
    """One of the files of a dataset; most datasets have one.

    Parameters
    ----------
    path : str
        The file.
    size : int
        Its bytes, when it was checked.
    page_size : int
        Bytes of its pages.
    first_sample : int
        Sample id of its first sample.
    num_samples : int
        How many it has.
    """

    path: str
    size: int
    page_size: int
    first_sample: int
    num_samples: int

    @property
    def num_pages(self) -> int:
        """Pages that the file takes, a last one that is not full included."""
        return -(-self.size // self.page_size)
