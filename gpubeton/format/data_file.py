"""DataFile: one of the files of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubeton.format.file_identity import FileIdentity

__all__ = ["DataFile"]


@dataclass(frozen=True)
class DataFile:
    """One of the files of a dataset; most datasets have one.

    Parameters
    ----------
    path : str
        The file.
    identity : FileIdentity
        Which file it was, and in what state, when it was checked.
    page_size : int
        Bytes of its pages.
    first_sample : int
        Sample id of its first sample.
    num_samples : int
        How many it has.
    """

    path: str
    identity: FileIdentity
    page_size: int
    first_sample: int
    num_samples: int

    @property
    def size(self) -> int:
        """Its bytes, when it was checked."""
        return self.identity.size

    @property
    def num_pages(self) -> int:
        """Pages that the file takes, a last one that is not full included."""
        return -(-self.size // self.page_size)
