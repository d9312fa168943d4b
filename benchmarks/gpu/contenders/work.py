"""What every contender on the GPU has to do."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["GpuWork"]


@dataclass(frozen=True)
class GpuWork:
    """Random resized crop, flip and normalise to float16, channels last, on the GPU, of the same images.

    Parameters
    ----------
    beton : str
        The images as a ``.beton`` file with the fields ``image`` and ``label``.
    folder : str
        The same images as JPEG files, one sub-folder per class.
    images : int
        Number of images.
    cores : int
        Cores to use; 0 for all.
    batch_size : int
        Images of a batch.
    side : int
        Height and width of the result.
    seconds : float
        Length of a lap.
    variant : str
        For contenders that come in several.
    """

    beton: str
    folder: str
    images: int
    cores: int = 0
    batch_size: int = 256
    side: int = 224
    seconds: float = 3.0
    variant: str = ""

    def to_json(self) -> str:
        """Write as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> GpuWork:
        """Read what `to_json` wrote."""
        return cls(**json.loads(line))
