"""GpuOptions: how a GPU decodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from gpubeton.errors import OptionError
from gpubeton.plan.lanes import Lane, RawLane

_LANES = {"hardware": Lane.HARDWARE, "sm": Lane.SM, "hybrid": Lane.HYBRID}


@dataclass(frozen=True)
class GpuOptions:
    """How a GPU decodes. The defaults suit most machines; measure before you change them.

    Parameters
    ----------
    lanes : tuple of {"hardware", "sm", "hybrid"}
        The decoders that may be used, if the GPU has them: its JPEG engines; its processors; and nvJPEG image by
        image, with some work on the CPU, for images that the others refuse. All other images go to the CPU.
    deterministic : bool
        True chooses the lane by the image alone, so that the pixels are the same in every run. False also lets the
        GPU's processors decode when the engines have too much work waiting; the results of the lanes may differ by one
        level.
    raw : {"auto", "cpu", "bytes"}
        Where raw-stored images are cropped and resized: on the CPU, or on the GPU, which copies the bytes of the crop.
        "auto" takes the GPU unless there are many cores.
    images_per_call : int
        Images of one call of the engines; 0 for four for each engine.
    images_per_sm_call : int
        Images of one call of the GPU's processors, at least 51: nvJPEG decodes smaller batches with the CPU's help.
    smooth_chroma : bool
        True interpolates reduced chroma, as libjpeg does; False repeats it.

    Raises
    ------
    OptionError
        If an option is out of its range.

    Examples
    --------
    >>> GpuOptions(lanes=("hardware",)).allowed
    frozenset({<Lane.HARDWARE: 0>})
    """

    lanes: tuple[str, ...] = ("hardware", "sm", "hybrid")
    deterministic: bool = True
    raw: RawLane = "auto"
    images_per_call: int = 0
    images_per_sm_call: int = 64
    smooth_chroma: bool = True
    allowed: frozenset[Lane] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        unknown = [name for name in self.lanes if name not in _LANES]
        if unknown:
            raise OptionError(f"lanes holds {unknown[0]!r}; expected some of {', '.join(map(repr, _LANES))}")
        if self.raw not in get_args(RawLane):
            raise OptionError(f"raw is {self.raw!r}; expected one of {', '.join(map(repr, get_args(RawLane)))}")
        if self.images_per_call < 0:
            raise OptionError(f"images_per_call is {self.images_per_call}; expected at least 0")
        if self.images_per_sm_call < 51:
            raise OptionError(f"images_per_sm_call is {self.images_per_sm_call}; expected at least 51")
        object.__setattr__(self, "allowed", frozenset(_LANES[name] for name in self.lanes))
