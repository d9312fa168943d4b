"""What the engine needs of the workers that decode images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.plan.image_job import BadImage, ImageJob
    from gpubeton.plan.program import ImageProgram
    from gpubeton.plan.usage import Usage


class ImageCrew(Protocol):
    """The workers, as the engine sees them; `gpubeton.cpu.crew.Crew` is one."""

    def submit(self, jobs: Sequence[ImageJob]) -> None:
        """Begin a batch: a job for each program. Never waits."""
        ...

    def collect(self) -> list[BadImage]:
        """Wait for the oldest batch; return the images that could not be decoded."""
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


class MakeCrew(Protocol):
    """What makes a crew; `gpubeton.cpu.crew.Crew` does."""

    def __call__(self, programs: Sequence[ImageProgram], batch_size: int, num_workers: int, ring: int) -> ImageCrew:
        """Start `num_workers` workers for at most `ring` batches in flight."""
        ...
