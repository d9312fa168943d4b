"""Colour tensors: the steps on colours on a torch tensor of any device, whole batches at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.transforms.colour_kinds import (
    BLUE_WEIGHT,
    CONTRAST,
    GREEN_WEIGHT,
    HUE,
    NEUTRAL,
    ONE,
    RED_WEIGHT,
    SATURATION,
    WEIGHTS,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHIFT = 15


def apply_steps(images: Any, steps: NDArray[np.int32]) -> None:
    """Carry out the steps of each image, in place.

    Parameters
    ----------
    images : torch.Tensor of uint8, shape (N, H, W, 3)
        Levels; any strides.
    steps : ndarray of int32, shape (N, 2 * K)
        Kind and factor of each step, see `gpubeton.transforms.colour`.

    Examples
    --------
    >>> import torch
    >>> image = torch.tensor([[[[100, 150, 200]]]], dtype=torch.uint8)
    >>> apply_steps(image, np.array([[SATURATION, 0]], "int32"))
    >>> image.ravel().tolist()
    [140, 140, 140]
    """
    import torch

    for step in range(0, steps.shape[1], 2):
        kinds, factors = steps[:, step], steps[:, step + 1]
        for kind, neutral in NEUTRAL.items():
            chosen = np.flatnonzero((kinds == kind) & (factors != neutral))
            if len(chosen) == 0:
                continue
            rows = torch.from_numpy(chosen).to(images.device)
            factor = torch.from_numpy(factors[chosen]).to(images.device).view(-1, 1, 1)
            levels = images[rows].to(torch.int32).unbind(3)
            changed = turn(levels, factor) if kind == HUE else blend(kind, levels, factor)
            images[rows] = torch.stack(changed, dim=3).to(torch.uint8)


def blend(kind: int, levels: Any, factor: Any) -> list[Any]:
    """Brightness, contrast or saturation: mix with black, with the mean gray or with the pixel's own.

    Parameters
    ----------
    kind : int
        Which of them.
    levels : sequence of three torch.Tensor of int32, each of shape (N, H, W)
        Red, green and blue.
    factor : torch.Tensor of int32, shape (N, 1, 1)
        The factors, in units of 2**-15.

    Returns
    -------
    list of three torch.Tensor of int32
        The new levels.
    """
    import torch

    if kind == CONTRAST:
        gray = gray_of(levels)
        total = gray.sum((1, 2), keepdim=True, dtype=torch.int64)
        added = torch.div((ONE - factor) * total, gray[0].numel(), rounding_mode="floor").to(torch.int32)
        changed = [factor * level + added for level in levels]
    elif kind == SATURATION:
        gray = gray_of(levels)
        changed = [factor * (level - gray) + (gray << _SHIFT) for level in levels]
    else:
        changed = [factor * level for level in levels]
    return [(level >> _SHIFT).clamp(0, 255) for level in changed]


def turn(levels: Any, factor: Any) -> list[Any]:
    """Hue: turn the colours on HSV's hexagon.

    With the largest and the smallest channel of a pixel kept, and `side` their difference, its colour is a place on a
    hexagon of circumference ``6 * side``, red at 0, green at ``2 * side`` and blue at ``4 * side``. Along a side one
    channel goes up or down while the others stay, so each channel is a trapezium over the place: all of it whole
    numbers, and nothing to divide.

    Parameters
    ----------
    levels : sequence of three torch.Tensor of int32, each of shape (N, H, W)
        Red, green and blue.
    factor : torch.Tensor of int32, shape (N, 1, 1)
        Parts of a full circle, in units of 2**-15; from minus half a circle to half a circle.

    Returns
    -------
    list of three torch.Tensor of int32
        The new levels.

    Notes
    -----
    Rounded as torchvision does, which reads a channel as ``level / 255`` and writes it as ``floor(255.999 * value)``.
    """
    import torch

    red, green, blue = levels
    most = torch.maximum(torch.maximum(red, green), blue)
    least = torch.minimum(torch.minimum(red, green), blue)
    chroma = most - least
    side = chroma << _SHIFT
    corner = torch.where(most == green, 2 * chroma + blue - red, 4 * chroma + red - green)
    corner = torch.where(most == red, green - blue, corner)
    place = ((corner << _SHIFT) + 6 * factor * chroma).remainder((6 * side).clamp(min=1))
    heights = ((place - 3 * side).abs() - side, *(2 * side - (place - at * side).abs() for at in (2, 4)))
    return [_rounded((least << _SHIFT) + height.clamp(min=0).minimum(side)) for height in heights]


def gray_of(levels: Any) -> Any:
    """Gray value of each pixel.

    Parameters
    ----------
    levels : sequence of three torch.Tensor of int32, each of shape (N, H, W)
        Red, green and blue.

    Returns
    -------
    torch.Tensor of int32, shape (N, H, W)
        From 0 to 254.
    """
    red, green, blue = levels
    return (RED_WEIGHT * red + GREEN_WEIGHT * green + BLUE_WEIGHT * blue) // WEIGHTS


def _rounded(level: Any) -> Any:
    """``floor(level * 255.999 / 255)``, to a ten-thousandth of a level: 0.999 / 255 is nearly 32864 / 2**23."""
    return (level + ((level >> 7) * 32864 >> 16)) >> _SHIFT
