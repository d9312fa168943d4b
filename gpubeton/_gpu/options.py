"""GpuOptions: how a GPU decodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from gpubeton._plan.routes import DecodeRoute, RawRoute
from gpubeton.errors import OptionError

if TYPE_CHECKING:
    from gpubeton._bytes import Progress

_ROUTES = {"hardware": DecodeRoute.HARDWARE, "entries": DecodeRoute.ENTRIES}


@dataclass(frozen=True)
class GpuOptions:
    """How a GPU decodes. The defaults suit most machines; measure before you change them.

    Parameters
    ----------
    routes : tuple of {"hardware", "entries"}
        The decoders of the GPU that may be used: its JPEG engines, if it has them, and our own decoder in CUDA, for
        images with entry points or restart markers. All other images are decoded on the CPU, by ``num_workers``
        threads; with ``()`` all are.
    raw : {"auto", "cpu", "bytes"}
        Where raw-stored images are cropped and resized: on the CPU, or on the GPU, which copies the bytes of the crop.
        "auto" takes the GPU unless there are many cores.
    images_per_call : int
        Images of one call of the engines; 0 for eight for each engine.
    smooth_chroma : bool
        True interpolates reduced chroma, as libjpeg does; False repeats it.
    resident : {"auto", True, False}
        Whether the stored JPEGs of the loader's samples that have entry points, and these, are copied to the GPU's
        memory when the first epoch begins, and stay there until the loader is closed. Then no epoch reads or sends
        them. "auto" does it if they take at most a sixteenth of the GPU's free memory when the loader is made; True
        raises `DeviceError` if they do not fit.
    on_progress : callable, optional
        Called with the number of images in the GPU's memory and of all, while they are copied there.

    Raises
    ------
    OptionError
        If an option is out of its range.

    Examples
    --------
    >>> GpuOptions(routes=("hardware",)).allowed
    frozenset({<DecodeRoute.HARDWARE: 0>})
    """

    routes: tuple[str, ...] = ("hardware", "entries")
    raw: RawRoute = "auto"
    images_per_call: int = 0
    smooth_chroma: bool = True
    resident: Literal["auto"] | bool = "auto"
    on_progress: Progress | None = None
    allowed: frozenset[DecodeRoute] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in self.routes:
            if name not in _ROUTES:
                raise OptionError(f"routes holds {name!r}; expected some of {', '.join(map(repr, _ROUTES))}")
        if self.raw not in get_args(RawRoute):
            raise OptionError(f"raw is {self.raw!r}; expected one of {', '.join(map(repr, get_args(RawRoute)))}")
        if self.resident not in ("auto", True, False):
            raise OptionError(f"resident is {self.resident!r}; expected 'auto', True or False")
        if self.images_per_call < 0:
            raise OptionError(f"images_per_call is {self.images_per_call}; expected at least 0")
        object.__setattr__(self, "allowed", frozenset(_ROUTES[name] for name in self.routes))
