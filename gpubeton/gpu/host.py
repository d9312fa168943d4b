"""Host: what the CPU does for the GPU executor, which cannot do it by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton.plan.image_job import BadImage, ImageJob
    from gpubeton.plan.program import ImageProgram
    from gpubeton.plan.usage import Usage


class LevelsCrew(Protocol):
    """Workers of the CPU that make images as levels, uint8; `gpubeton.cpu.crew.Crew` is one."""

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each program. Never waits."""
        ...

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; return the images that could not be made."""
        ...

    def decode(self, program: int, job: ImageJob) -> list[BadImage]:
        """Carry one job out in the caller's thread."""
        ...

    @property
    def usage(self) -> Usage:
        """How busy the workers were until now, all together."""
        ...

    def close(self) -> None:
        """End the workers; may be called twice."""
        ...


@dataclass(frozen=True)
class Host:
    """What the CPU does for the GPU executor.

    Parameters
    ----------
    survey : callable
        ``survey(address, size, out)`` reads the markers of JPEGs, see `gpubeton.plan.lanes`.
    pack_regions : callable
        ``pack_regions(address, size, target)`` copies bytes to addresses.
    pack_crops : callable
        ``pack_crops(address, width, draws, target, pitch)`` copies the crops of raw-stored images to addresses.
    make_crew : callable
        ``make_crew(programs)`` starts the workers; called when the first image needs them, if ever.
    num_workers : int
        How many workers that are.
    """

    survey: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
    pack_regions: Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], None]
    pack_crops: Callable[[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]], None]
    make_crew: Callable[[Sequence[ImageProgram]], LevelsCrew]
    num_workers: int
