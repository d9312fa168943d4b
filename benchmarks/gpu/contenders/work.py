"""The work that every contender on the GPU does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["GpuWork"]


@dataclass(frozen=True)
class GpuWork:
    """Random resized crop, flip and normalize to float16, channels last, on the GPU, of the same images."""

    beton: str  # with the fields ``image`` and ``label``
    folder: str  # the same JPEG files, one sub-folder per class
    images: int
    cores: int = 0  # 0: all
    batch_size: int = 256
    side: int = 224  # of the result
    seconds: float = 3.0  # of a lap
    variant: str = ""  # of contenders that have several

    def to_json(self) -> str:
        """Return one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> GpuWork:
        """Parse the result of `to_json`."""
        return cls(**json.loads(line))
