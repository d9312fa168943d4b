"""The work that every contender does."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["MEAN", "STD", "Work"]

#: Of ImageNet, for pixels from 0 to 255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class Work:
    """Crop, flip and normalize to float16, channels last, the same images in random order.

    This module imports only Python's own library, because interpreters with old packages read it.
    """

    beton: str  # with the fields ``image`` and ``label``
    folder: str  # the same JPEG files, one sub-folder per class; may be empty
    images: int
    passes: int  # over the images, in a lap
    cores: int  # also the number of workers
    batch_size: int = 128  # a smaller last batch is dropped
    side: int = 224  # of the result
    interpolation: str = "area"  # of contenders that have the choice
    # Between flip and tensor: normalizing (""), a user's operation and normalizing ("with"), only that operation
    # ("instead"), or nothing ("bare").
    own_operation: str = ""
    # A random resized crop ("random"), the center of the resized image without a flip ("center"), or the whole image
    # ("whole").
    crop: str = "random"
    recipe: str = ""  # of `benchmarks.recipe_cases`, in place of all that

    def to_json(self) -> str:
        """Return one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Work:
        """Parse the result of `to_json`."""
        return cls(**json.loads(line))

    @property
    def shorter(self) -> int:
        """The shorter side of an image whose center is cropped: 256 for 224."""
        return self.side * 256 // 224

    @property
    def batches(self) -> int:
        """Batches of a lap."""
        return self.images * self.passes // self.batch_size
