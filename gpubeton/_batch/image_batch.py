"""Batches of images: axes and windows, filled rectangles, and changes written for arrays and for tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.color_formulas import BLUE_WEIGHT, GREEN_WEIGHT, ONE, RED_WEIGHT, WEIGHTS
from gpubeton._batch.step_rows import BRIGHTNESS, CONTRAST, KIND, PARAMETERS, SATURATION
from gpubeton.errors import PipelineError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pixel_type import dtype_name, is_torch_dtype, pixel_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray


CHANNELS = 3  # of an RGB image
OTHER_CHANNELS = (1, 4)  # of gray images, and of those with transparency


def as_nhwc(batch: Any) -> Any:
    """View a batch of images, NHWC or NCHW, with its channels last."""
    if not is_nchw(batch):
        return batch
    return batch.transpose(0, 2, 3, 1) if isinstance(batch, np.ndarray) else batch.permute(0, 2, 3, 1)


def as_nchw(batch: Any) -> Any:
    """View an NHWC batch as NCHW: channels_last in torch's words."""
    return batch.transpose(0, 3, 1, 2) if isinstance(batch, np.ndarray) else batch.permute(0, 3, 1, 2)


def is_nchw(batch: Any) -> bool:
    """Return whether the channels of a batch of images come first."""
    # Images of 3 pixels height or width fit both: then a tensor in channels_last memory is NCHW, all others NHWC.
    if CHANNELS in (batch.shape[-1], batch.shape[1]):
        channels: tuple[int, ...] = (CHANNELS,)
    else:
        channels = OTHER_CHANNELS
    if batch.shape[-1] not in channels:
        return True
    return bool(batch.shape[1] in channels and not isinstance(batch, np.ndarray) and batch.stride(1) == 1)


def as_tensor(batch: Any) -> Any:
    """View an array as a tensor over the same memory; a tensor stays as it is."""
    import torch

    return torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch


def writable(batch: Any) -> Any:
    """View a tensor of uint16 as int16: torch cannot index uint16. Other batches are returned as they are."""
    if isinstance(batch, np.ndarray) or dtype_name(batch.dtype) != "uint16":
        return batch
    import torch

    return batch.view(torch.int16)


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


def fill_like(batch: Any, fill: Fill) -> Any:  # (C,)
    """Make a fill that can be assigned to pixels of a batch, NHWC or NCHW."""
    levels = fill_of("fill", fill, as_nhwc(batch).shape[3])
    if is_torch_dtype(batch.dtype):
        # torch drops fractions too, but refuses 255.9 as too large for uint8.
        return batch.new_tensor(levels if batch.dtype.is_floating_point else tuple(map(int, levels)))
    values: NDArray[Any] = np.asarray(levels).astype(batch.dtype)
    return values


def paint_rectangles(batch: Any, corners: NDArray[Any], fill: Fill) -> None:
    """Paint a rectangle, (N, 4) top, left, bottom and right, over each image, in place."""
    color = fill_like(batch, fill)
    for image, (top, left, bottom, right) in zip(as_nhwc(batch), corners.tolist(), strict=True):
        image[top:bottom, left:right] = color


def paint_noise(batch: Any, rows: NDArray[np.int64], *, is_flat: bool = False) -> None:
    """Paint normal noise, in place: (N, 6) top, left, bottom, right and the two numbers of the key of each image."""
    # If it is flat, all pixels of a rectangle have the same color.
    for image, (top, left, bottom, right, *key) in zip(as_nhwc(batch), rows.tolist(), strict=True):
        part = image[top:bottom, left:right]
        shape = (1, 1, part.shape[2]) if is_flat else tuple(part.shape)
        noise = normal_noise((key[0], key[1]), math.prod(shape)).reshape(shape)
        if isinstance(part, np.ndarray):
            part[:] = noise
        else:
            import torch

            part.copy_(torch.from_numpy(noise))


def normal_noise(key: tuple[int, int], count: int) -> NDArray[np.float32]:  # (count,)
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
    batch: Any, rows: NDArray[np.intp], mask: NDArray[np.float64], alpha: NDArray[np.float64], clamp: Iterable[float]
) -> None:
    """Make images of some rows, in place, ``(1 - alpha) * image + alpha * mask``, of (H, W) and (H, W, 3)."""
    import torch

    tensor = as_tensor(as_nhwc(batch))
    chosen = torch.from_numpy(rows).to(tensor.device)
    opacity = torch.from_numpy(alpha)[:, :, None]
    base_share, added = ((1 - opacity).to(tensor.device), (opacity * torch.from_numpy(mask)).to(tensor.device))
    # Rounded to float32 first, as FFCV does: a value a little below a level becomes that level.
    blended = (tensor[chosen].double() * base_share + added).float()
    tensor[chosen] = blended.clamp(*clamp).to(tensor.dtype)


def flip_images(batch: Any, is_flipped: NDArray[Any]) -> None:
    """Mirror images, in place, where `is_flipped`, (N,), is not 0."""
    rows = np.flatnonzero(is_flipped)
    images = as_nhwc(writable(batch))
    chosen = images[rows]
    images[rows] = chosen[:, :, ::-1] if isinstance(chosen, np.ndarray) else chosen.flip(2)


def cut_windows(batch: Any, corners: NDArray[Any], size: tuple[int, int], fill: Fill) -> Any:
    """Cut a window out of each image of any type; `corners`, (N, 2), may be outside."""
    images = as_nhwc(batch)
    height, width = images.shape[1:3]
    windows = _empty(batch, (len(images), *size, images.shape[3]))
    windows[:] = fill_like(batch, fill)
    for window, image, (top, left) in zip(windows, images, corners.tolist(), strict=True):
        first_row, last_row = max(top, 0), min(top + size[0], height)
        first, last = max(left, 0), min(left + size[1], width)
        if first_row < last_row and first < last:
            part = image[first_row:last_row, first:last]
            window[first_row - top : last_row - top, first - left : last - left] = part
    return as_nchw(windows) if is_nchw(batch) else windows


def _empty(batch: Any, shape: tuple[int, ...]) -> Any:
    """Return memory for images, viewed as NHWC, with the axis order of the batch's memory."""
    if isinstance(batch, np.ndarray):
        return np.empty(shape, batch.dtype)
    if is_nchw(batch) and batch.is_contiguous():
        count, height, width, channels = shape
        windows = batch.new_empty((count, channels, height, width))
        # Windows as wide as the number of channels are recognized as NCHW in channels_last memory only.
        if is_nchw(windows):
            return windows.permute(0, 2, 3, 1)
    return batch.new_empty(shape)


def normalize(batch: Any, table: NDArray[Any], dtype: str, take: Callable[..., Any] = np.empty) -> Any:
    """Replace levels by the entries of a table, (num_levels, C); `take(shape, dtype)` gives memory for arrays."""
    levels, written = as_nhwc(batch), pixel_type(dtype)
    if isinstance(batch, np.ndarray):
        values = take(levels.shape, table.dtype)
        bits = f"u{table.itemsize}"
        Compiler.compile(look_up_values)(levels, np.ascontiguousarray(table.T).view(bits), values.view(bits))
        values = written.tensor(values) if written.jit_dtype is None else values.view(written.jit_dtype)
    else:
        values = written.tensor(table).to(batch.device)[levels.long(), list(range(levels.shape[3]))]
    return as_nchw(values) if is_nchw(batch) else values


def look_up_values(levels: Any, table: Any, values: Any) -> None:  # (N, H, W, C), (C, num_levels), (N, H, W, C)
    """Replace each level by its entry in a table: numpy would take twenty times as long."""
    for number in range(len(levels)):
        for y in range(levels.shape[1]):
            line, target = levels[number, y], values[number, y]
            for channel in range(len(table)):
                entries = table[channel]
                for x in range(len(line)):
                    target[x, channel] = entries[line[x, channel]]


def change_floats(batch: Any, rows: NDArray[np.int32]) -> None:
    """Carry out step rows of brightness, contrast and saturation on floating-point images, in place."""
    # Clipped to 0 to 255, even if the images have other units, as FFCV does. Float64 is computed in float64, all
    # other types in float32; a mean is summed in float64.
    import torch

    images = as_tensor(as_nhwc(batch)[..., :CHANNELS])
    wide = torch.float64 if images.dtype == torch.float64 else torch.float32
    for step in np.moveaxis(rows, 1, 0):
        kinds, factors = step[:, KIND], step[:, PARAMETERS]
        for kind in (BRIGHTNESS, CONTRAST, SATURATION):
            chosen = np.flatnonzero((kinds == kind) & (factors != ONE))
            if len(chosen) == 0:
                continue
            places = torch.from_numpy(chosen).to(images.device)
            factor = torch.from_numpy(factors[chosen] / ONE).to(images.device, wide).view(-1, 1, 1, 1)
            values = images[places].to(wide)
            other = _other(kind, values)
            values *= factor
            if other is not None:
                values += (1 - factor) * other
            images[places] = values.clamp_(0, 255).to(images.dtype)


def _other(kind: int, values: Any) -> Any:
    """Return the values that a step mixes with the images; None for black."""
    import torch

    if kind == BRIGHTNESS:
        return None
    gray = values
    if values.shape[3] != 1:
        red, green, blue = values.unbind(3)
        weighed = RED_WEIGHT / WEIGHTS * red + GREEN_WEIGHT / WEIGHTS * green + BLUE_WEIGHT / WEIGHTS * blue
        gray = weighed.unsqueeze(3)
    return gray if kind == SATURATION else gray.mean((1, 2), keepdim=True, dtype=torch.float64).to(values.dtype)
