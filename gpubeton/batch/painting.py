"""Painting: fill rectangles of images with a colour or with noise, and blend masks over images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.batch.image_batch import as_nhwc
from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import is_torch_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

Fill = tuple[float, ...]

_SCALE = 2.0**-32


def fill_of(operation: str, fill: Fill, channels: int) -> Fill:
    """Give a fill as many numbers as images have channels."""
    if len(fill) == channels:
        return fill
    if len(set(fill)) > 1:
        raise PipelineError(
            f"{operation}: fill {fill} has {len(fill)} numbers, but the images have {channels} channels; expected one "
            f"number for each"
        )
    return fill[:1] * channels


def fill_like(
    batch: Any,  # (N, H, W, C) or (N, C, H, W): the batch
    fill: Fill,
) -> Any:  # (C,)
    """Make a fill that can be assigned to pixels of a batch."""
    own = fill_of("fill", fill, as_nhwc(batch).shape[3])
    if is_torch_dtype(batch.dtype):
        # torch drops fractions too, but refuses 255.9 as too large for uint8.
        return batch.new_tensor(own if batch.dtype.is_floating_point else tuple(map(int, own)))
    values: NDArray[Any] = np.asarray(own).astype(batch.dtype)
    return values


def paint_rectangles(batch: Any, corners: NDArray[Any], fill: Fill) -> None:
    """Paint a rectangle, (N, 4) top, left, bottom and right, over each image, in place."""
    colour = fill_like(batch, fill)
    for image, (top, left, bottom, right) in zip(as_nhwc(batch), corners.tolist(), strict=True):
        image[top:bottom, left:right] = colour


def paint_noise(batch: Any, rows: NDArray[np.int64]) -> None:
    """Paint normal noise, in place: (N, 6) top, left, bottom, right and the two numbers of the key of each image."""
    for image, (top, left, bottom, right, *key) in zip(as_nhwc(batch), rows.tolist(), strict=True):
        part = image[top:bottom, left:right]
        shape = tuple(part.shape)
        noise = normal_noise((key[0], key[1]), math.prod(shape)).reshape(shape)
        if isinstance(part, np.ndarray):
            part[:] = noise
        else:
            import torch

            part.copy_(torch.from_numpy(noise))


def normal_noise(
    key: tuple[int, int],
    count: int,
) -> NDArray[np.float32]:  # (count,) float32
    """Make numbers of mean 0 and standard deviation 1, the same for the same key."""
    # numpy promises that the words of its bit generators stay the same in later versions, but not what its
    # distributions make of them: so these are Box and Muller's, two of each word.
    words = np.random.Philox(key=np.array(key, np.uint64)).random_raw((count + 1) // 2).view(np.uint32).reshape(-1, 2)
    radius = np.sqrt(-2 * np.log((words[:, 1] + 0.5) * _SCALE)).astype(np.float32)
    angle = (words[:, 0] * (2 * np.pi * _SCALE)).astype(np.float32)
    numbers = np.empty((len(words), 2), np.float32)
    np.multiply(radius, np.cos(angle), out=numbers[:, 0])
    np.multiply(radius, np.sin(angle), out=numbers[:, 1])
    return numbers.reshape(-1)[:count]


def blend_mask(
    batch: Any,
    rows: NDArray[np.intp],  # (R,) images to change, in place
    mask: NDArray[np.float64],  # (H, W, 3)
    alpha: NDArray[np.float64],  # (H, W)
    clamp: Iterable[float],
) -> None:
    """Make images ``(1 - alpha) * image + alpha * mask``."""
    import torch

    images = as_nhwc(batch)
    tensor = torch.from_numpy(images) if isinstance(images, np.ndarray) else images
    chosen = torch.from_numpy(rows).to(tensor.device)
    opacity = torch.from_numpy(alpha)[:, :, None]
    kept, added = ((1 - opacity).to(tensor.device), (opacity * torch.from_numpy(mask)).to(tensor.device))
    # Rounded to float32 first, as FFCV does: a value a little below a level becomes that level.
    blended = (tensor[chosen].double() * kept + added).float()
    tensor[chosen] = blended.clamp(*clamp).to(tensor.dtype)
