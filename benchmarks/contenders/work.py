"""What every contender has to do, so that the same is compared with the same."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["MEAN", "STD", "Work"]

#: ImageNet's, for pixels from 0 to 255.
MEAN = (123.675, 116.28, 103.53)
STD = (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class Work:
    """Random resized crop, flip and normalise to float16, channels last, of the same images in random order.

    Only Python's own library is imported here: interpreters with old packages have to read it.

    Parameters
    ----------
    beton : str
        The images as a ``.beton`` file with the fields ``image`` and ``label``.
    folder : str
        The same images as JPEG files, one sub-folder per class; empty if there are none.
    images : int
        Number of images.
    passes : int
        How often a lap goes over them.
    cores : int
        Cores to use; a contender starts as many workers.
    batch_size : int
        Images of a batch; a smaller last one is left out.
    side : int
        Height and width of the result.
    interpolation : str
        For contenders that have the choice.
    own_operation : str
        What stands between flip and tensor: normalising if it is empty, a user's operation and normalising ("with"),
        that operation alone ("instead"), or nothing ("bare").
    """

    beton: str
    folder: str
    images: int
    passes: int
    cores: int
    batch_size: int = 128
    side: int = 224
    interpolation: str = "area"
    own_operation: str = ""

    def to_json(self) -> str:
        """Write as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Work:
        """Read what `to_json` wrote."""
        return cls(**json.loads(line))

    @property
    def batches(self) -> int:
        """Batches of a lap."""
        return self.images * self.passes // self.batch_size
