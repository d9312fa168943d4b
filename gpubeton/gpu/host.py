"""Host: what the CPU does for the GPU executor, which cannot do it by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from gpubeton.plan.image_executor import ImageExecutor
    from gpubeton.plan.program import ImageProgram


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
    make_crew: Callable[[Sequence[ImageProgram]], ImageExecutor]
    num_workers: int
