"""Checks: arguments of transforms when they are made, and the batches that they meet when a pipeline is compiled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.batch.colour_steps import MAX_FACTOR
from gpubeton.batch.image_batch import CHANNELS, OTHER_CHANNELS
from gpubeton.batch.painting import fill_of
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubeton.batch.painting import Fill
    from gpubeton.pipeline.state import State


def image_size(operation: object, state: State, *, any_channels: bool = False) -> tuple[int, int]:
    """Height and width of the images that an operation meets."""
    shape = tuple(state.shape)
    if len(shape) == 3 and (any_channels or CHANNELS in (shape[0], shape[2])):
        last = channels_stand_last(shape)
        if last is not None:
            return (shape[0], shape[1]) if last else (shape[1], shape[2])
    name = operation if isinstance(operation, str) else type(operation).__name__
    if channels_stand_last(shape) is not None:
        raise PipelineError(
            f"{name} works on RGB images, shape (H, W, 3) or (3, H, W), but here each sample has shape {shape}: gray, "
            f"or with transparency. Leave it out, or put an operation of your own before it that makes them RGB."
        )
    raise PipelineError(
        f"{name} works on images, shape (H, W, 3) or (3, H, W), but here each sample has shape {shape}. "
        f"Move it up in the pipeline, right after the decoder of an image field."
    )


def num_channels(state: State) -> int:
    """Channels of the images that an operation meets."""
    shape = tuple(state.shape)
    return int(shape[2] if channels_stand_last(shape) else shape[0])


def channels_stand_last(shape: Sequence[int]) -> bool | None:
    """Tell where the channels of a sample are. Three are looked for before one and four."""
    if len(shape) == 3:
        for channels in ((CHANNELS,), OTHER_CHANNELS):
            if shape[2] in channels:
                return True
            if shape[0] in channels:
                return False
    return None


def checked_type(
    operation: object, state: State, levels: Sequence[str] = ("uint8",), *, takes_floats: bool = False
) -> None:
    """Check, when a pipeline is planned, that an operation takes the type that the images have there."""
    dtype = dtype_name(state.dtype)
    if dtype in levels or (takes_floats and "float" in dtype):
        return
    name = operation if isinstance(operation, str) else type(operation).__name__
    wanted = "levels, uint8 from 0 to 255" + (", or floating-point images" if takes_floats else "")
    if dtype != "uint16":
        advice = "Put it before NormalizeImage and whatever else converts them."
    elif takes_floats:
        advice = "Put it after NormalizeImage(0, 257, np.float32), which makes 16 bits floats from 0 to 255."
    else:
        advice = "It is for images of 8 bits: leave it out of this pipeline."
    raise PipelineError(f"{name} works on {wanted}, but here the images are {dtype}. {advice}")


def checked_fill(operation: str, fill: float | Sequence[float]) -> Fill:
    """Check a fill when an operation is made."""
    values = np.asarray(fill)
    if values.shape not in {(), (1,), (3,), (4,)} or values.dtype.kind not in "iufb" or not np.isfinite(values).all():
        raise OptionError(
            f"{operation}: fill is {fill!r}; expected three numbers, red, green and blue: (0, 0, 0); or one, or four "
            f"for images with so many channels"
        )
    numbers: list[float] = np.atleast_1d(values).tolist()
    return tuple(numbers * 3 if values.shape == () else numbers)


def checked_levels(operation: str, fill: Fill, state: State) -> None:
    """Check, when a pipeline is planned, that a fill can be painted on the batch."""
    # Levels drop the fraction of a fill, as FFCV's arrays do: unrounded means of a dataset are fills.
    fill_of(operation, fill, num_channels(state))
    dtype = dtype_name(state.dtype)
    most = {"uint8": 255, "uint16": 65535}.get(dtype)
    if most is not None and not all(0 <= value < most + 1 for value in fill):
        raise PipelineError(
            f"{operation}: fill {fill} cannot be painted on {dtype} images; expected levels from 0 to {most}, of "
            f"which fractions are dropped. A fill in normalised units belongs after NormalizeImage."
        )
    if dtype == "int16" and any(fill):
        raise PipelineError(
            f"{operation}: fill {fill} cannot be painted on int16 images, which after NormalizeImage are the bits of "
            f"float16. Put it behind ToTorchImage, which turns them back."
        )


def checked_probability(operation: str, value: Any, name: str = "p") -> float:
    """Check a probability."""
    if isinstance(value, str) or not 0 <= value <= 1:
        raise OptionError(f"{operation}: {name} is {value!r}; expected a probability from 0 to 1")
    return float(value)


def checked_limits(
    operation: str,
    name: str,
    value: float | Sequence[float],
    centre: float = 1.0,
    bounds: tuple[float, float] = (0, MAX_FACTOR),
) -> tuple[float, float]:
    """Turn an argument, one number or two, into the least and the largest factor."""
    low, high = bounds
    numbers = np.asarray(value, dtype=np.float64)
    if numbers.shape == ():
        reach = float(numbers)
        if math.isfinite(reach) and 0 <= reach <= high - centre:
            return max(centre - reach, float(low)), centre + reach
    elif numbers.shape == (2,) and low <= numbers[0] <= numbers[1] <= high:
        return float(numbers[0]), float(numbers[1])
    raise OptionError(
        f"{operation}: {name} is {value!r}; expected a number from 0 to {high - centre:g}, or two in order, the least "
        f"and the largest factor, from {low:g} to {high:g}"
    )


def checked_size(operation: str, size: int | Sequence[int]) -> tuple[int, int]:
    """Check the size of a window."""
    given = np.asarray(size)
    if given.dtype.kind in "iu" and given.shape in {(), (2,)} and given.min() > 0:
        height, width = np.broadcast_to(given, 2).tolist()
        return height, width
    raise OptionError(f"{operation}: size is {size!r}; expected pixels, 32, or height and width: (32, 48)")


def checked_whole(operation: str, name: str, value: int, least: int, most: int | None = None) -> int:
    """Check a whole number and its range."""
    if value != int(value) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise OptionError(f"{operation}: {name} is {value!r}; expected a whole number {limits}")
    return int(value)


def checked_interpolation(operation: str, value: str) -> str:
    """Check how pixels are to be read."""
    name = getattr(value, "value", value)
    if name not in {"nearest", "bilinear"}:
        raise OptionError(f"{operation}: interpolation is {value!r}; expected 'nearest' or 'bilinear'")
    return str(name)


def checked_angles(operation: str, name: str, value: float | Sequence[float]) -> tuple[float, float]:
    """Check a range of angles."""
    given = np.asarray(value)
    if given.dtype.kind in "iuf" and np.isfinite(given).all():
        if given.shape == () and given >= 0:
            return -float(given), float(given)
        if given.shape == (2,) and given[0] <= given[1]:
            return float(given[0]), float(given[1])
    raise OptionError(f"{operation}: {name} is {value!r}; expected degrees, 30 for -30 to 30, or both ends: (-30, 30)")
