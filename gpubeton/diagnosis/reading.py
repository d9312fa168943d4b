"""Reading: everything that advice is drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpubeton.diagnosis.gpu_state import GpuState

if TYPE_CHECKING:
    from gpubeton.diagnosis.file_place import FilePlace
    from gpubeton.loader import LoaderStats
    from gpubeton.loader.facts import LoaderFacts
    from gpubeton.machine import Machine

__all__ = ["Reading"]

_FASTER_THAN_ANY_THAT_TURNS = 600e6


@dataclass(frozen=True)
class Reading:
    """Everything that advice is drawn from.

    Parameters
    ----------
    stats : LoaderStats
        Where the time went.
    facts : LoaderFacts
        What the loader is.
    machine : Machine
        What it may use.
    places : tuple of FilePlace
        Where its files are.
    gpu : GpuState
        What GPU there is.
    disk_bytes_per_second : float or None
        How fast the disk was read, past the operating system's memory; None if that was not measured.
    augment_share : float or None
        Share of the workers' time that augmenting takes, the rest being decoding and resizing; None if that was not
        measured.
    """

    stats: LoaderStats
    facts: LoaderFacts
    machine: Machine
    places: tuple[FilePlace, ...] = ()
    gpu: GpuState = field(default_factory=GpuState)
    disk_bytes_per_second: float | None = None
    augment_share: float | None = None

    @property
    def file_bytes(self) -> int:
        """Bytes of all files."""
        return sum(place.size for place in self.places)

    @property
    def disk_share(self) -> float:
        """Share of the bytes that were used which came from the disk, as far as can be told: 0 to 1.

        What was not in memory is read once, if the files fit, however often the loop goes over them.
        """
        missing = 0.0 if self.resident_share is None else 1.0 - self.resident_share
        memory = self.machine.usable_memory_bytes
        if memory is not None and missing * self.file_bytes > memory:
            return missing
        return missing * min(1.0, self.file_bytes / max(1, self.stats.stored_bytes))

    @property
    def slow_places(self) -> tuple[FilePlace, ...]:
        """The files on a network or on a disk that turns. Virtual disks often say so wrongly; measuring tells."""
        is_fast = (self.disk_bytes_per_second or 0.0) > _FASTER_THAN_ANY_THAT_TURNS
        return tuple(place for place in self.places if place.is_network or (place.is_rotational and not is_fast))

    @property
    def resident_share(self) -> float | None:
        """Share of the files that is in memory."""
        known = [place for place in self.places if place.resident_share is not None and place.size]
        total = sum(place.size for place in known)
        return sum(place.size * (place.resident_share or 0.0) for place in known) / total if total else None
