"""Colour floats: brightness, contrast and saturation of floating-point images, as FFCV changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.transforms.colour_kinds import (
    BLUE_WEIGHT,
    BRIGHTNESS,
    CONTRAST,
    GREEN_WEIGHT,
    ONE,
    RED_WEIGHT,
    SATURATION,
    WEIGHTS,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def apply_steps(images: Any, steps: NDArray[np.int32]) -> None:
    """Carry out the steps of each image, in place.

    ``factor * value + (1 - factor) * other``, cut off at 0 and 255 whatever the images' units are, and rounded to no
    whole number: `other` is 0, the mean of the image's gray values, or the gray value of the pixel.

    Parameters
    ----------
    images : torch.Tensor of floats, shape (N, H, W, 3) or (N, H, W, 1)
        Any strides; with one channel a pixel is its own gray value.
    steps : ndarray of int32, shape (N, 2 * K)
        Kind and factor of each step, see `gpubeton.transforms.colour`; none of kind HUE.

    Notes
    -----
    Computed in float64 for float64 and in float32 for all others; a mean is summed in float64.

    Examples
    --------
    >>> import torch
    >>> image = torch.tensor([[[[0.5], [100.0]]]])
    >>> apply_steps(image, np.array([[CONTRAST, ONE // 2]], "int32"))
    >>> image.ravel().tolist()
    [25.375, 75.125]
    """
    import torch

    wide = torch.float64 if images.dtype == torch.float64 else torch.float32
    for step in range(0, steps.shape[1], 2):
        kinds, factors = steps[:, step], steps[:, step + 1]
        for kind in (BRIGHTNESS, CONTRAST, SATURATION):
            chosen = np.flatnonzero((kinds == kind) & (factors != ONE))
            if len(chosen) == 0:
                continue
            rows = torch.from_numpy(chosen).to(images.device)
            factor = torch.from_numpy(factors[chosen] / ONE).to(images.device, wide).view(-1, 1, 1, 1)
            values = images[rows].to(wide)
            other = _other(kind, values)
            values *= factor
            if other is not None:
                values += (1 - factor) * other
            images[rows] = values.clamp_(0, 255).to(images.dtype)


def _other(kind: int, values: Any) -> Any:
    """What a step mixes the images with; None for black."""
    import torch

    if kind == BRIGHTNESS:
        return None
    gray = values
    if values.shape[3] != 1:
        red, green, blue = values.unbind(3)
        weighed = RED_WEIGHT / WEIGHTS * red + GREEN_WEIGHT / WEIGHTS * green + BLUE_WEIGHT / WEIGHTS * blue
        gray = weighed.unsqueeze(3)
    return gray if kind == SATURATION else gray.mean((1, 2), keepdim=True, dtype=torch.float64).to(values.dtype)
