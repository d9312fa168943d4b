"""Gray steps: brightness and contrast of gray images, on arrays and on tensors of any device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import PipelineError
from gpubeton.transforms.colour_kinds import BRIGHTNESS, CONTRAST, ONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHIFT = 15


def apply_steps(images: Any, steps: NDArray[np.int32]) -> None:
    """Carry out the steps of each image, in place.

    Parameters
    ----------
    images : ndarray or torch.Tensor of uint8, shape (N, H, W, 1)
        Levels; any strides.
    steps : ndarray of int32, shape (N, 2 * K)
        Kind and factor of each step, see `gpubeton.transforms.colour`; the gray value of a pixel is its level.

    Examples
    --------
    >>> image = np.array([[[[0], [100]]]], "uint8")
    >>> apply_steps(image, np.array([[CONTRAST, ONE // 2]], "int32"))
    >>> image.ravel().tolist()
    [25, 75]
    """
    for image, row in zip(images, steps.tolist(), strict=True):
        for kind, factor in zip(row[::2], row[1::2], strict=True):
            if kind not in (BRIGHTNESS, CONTRAST):
                raise PipelineError(f"gray images have no saturation and no hue, but a step is of kind {kind}")
            if factor == ONE:
                continue
            is_array = isinstance(image, np.ndarray)
            levels = image.astype(np.int64) if is_array else image.long()
            height, width = image.shape[:2]
            added = (ONE - factor) * int(levels.sum()) // (height * width) if kind == CONTRAST else 0
            changed = (factor * levels + added) >> _SHIFT
            image[:] = (changed.clip(0, 255)).astype(np.uint8) if is_array else changed.clamp(0, 255).to(image.dtype)
