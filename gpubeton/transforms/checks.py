"""Checks: arguments of transforms when they are made, and the batches that they meet when a pipeline is compiled."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.image_batch import CHANNELS, OTHER_CHANNELS, fill_of
from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.pipeline.validation import check_choice, check_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.state import State


def image_size(operation: object, state: State, *, any_channels: bool = False) -> tuple[int, int]:
    """Return height and width of the images, (H, W, C) or (C, H, W), or raise if an operation does not take them."""
    shape = tuple(state.shape)
    if len(shape) == 3 and (any_channels or CHANNELS in (shape[0], shape[2])):
        last = has_channels_last(shape)
        if last is not None:
            return (shape[0], shape[1]) if last else (shape[1], shape[2])
    name = operation if isinstance(operation, str) else type(operation).__name__
    if has_channels_last(shape) is not None:
        raise PipelineError(
            f"{name} works on RGB images, shape (H, W, 3) or (3, H, W), but here each sample has shape {shape}: gray, "
            f"or with transparency. Leave it out, or put an operation before it that makes them RGB."
        )
    raise PipelineError(
        f"{name} works on images, shape (H, W, 3) or (3, H, W), but here each sample has shape {shape}. "
        f"Move it up in the pipeline, right after the decoder of an image field."
    )


def num_channels(state: State) -> int:
    """Return the number of channels of images: 1, 3 or 4."""
    shape = tuple(state.shape)
    return int(shape[2] if has_channels_last(shape) else shape[0])


def has_channels_last(shape: Sequence[int]) -> bool | None:
    """Return whether the last axis of a sample has the channels, None if it is no image; 3 are preferred to 1 and 4."""
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
    """Check that an operation takes the element type of the images before it."""
    dtype = dtype_name(state.dtype)
    if dtype in levels or (takes_floats and "float" in dtype):
        return
    name = operation if isinstance(operation, str) else type(operation).__name__
    expected = "levels, uint8 from 0 to 255" + (", or floating-point images" if takes_floats else "")
    if dtype != "uint16":
        advice = "Put it before NormalizeImage and other operations that convert them."
    elif takes_floats:
        advice = "Put it after NormalizeImage(0, 257, np.float32), which makes 16 bits floats from 0 to 255."
    else:
        advice = "It is for images of 8 bits: leave it out of this pipeline."
    raise PipelineError(f"{name} works on {expected}, but here the images are {dtype}. {advice}")


def given_draw(operation: object, draw: NDArray[Any] | None, what: str) -> NDArray[Any]:
    """Return the parameters that `apply` was called with, or raise if there are none."""
    if draw is None:
        raise TypeError(f"{type(operation).__name__}.apply needs {what}: pass the result of draw(), or of draw_batch()")
    return draw


def checked_levels(operation: str, fill: Fill, state: State) -> None:
    """Check that a color can be painted on the images before an operation."""
    # Levels drop the fraction of a fill, as FFCV's arrays do: unrounded means of a dataset are fills.
    fill_of(operation, fill, num_channels(state))
    dtype = dtype_name(state.dtype)
    most = {"uint8": 255, "uint16": 65535}.get(dtype)
    if most is not None and not all(0 <= value < most + 1 for value in fill):
        raise PipelineError(
            f"{operation}: fill {fill} cannot be painted on {dtype} images; expected levels from 0 to {most}, of "
            f"which fractions are dropped. A fill in normalized units belongs after NormalizeImage."
        )
    if most is not None and 0 < max(fill) < 1:
        warnings.warn(
            f"{operation}: fill {fill} is for images from 0 to 1; on {dtype} images it is black, as fractions are "
            f"dropped. Multiply it by {most}",
            stacklevel=2,
        )
    if dtype == "int16" and any(fill):
        raise PipelineError(
            f"{operation}: fill {fill} cannot be painted on int16 images, which after NormalizeImage are the bits of "
            f"float16. Put it after ToTorchImage, which turns them back."
        )


def checked_whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Check a whole number, perhaps a float, and its range."""
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return check_whole(name, int(value) if is_whole else value, least, most)


def checked_interpolation(operation: str, value: str) -> str:
    """Check an interpolation: "nearest" or "bilinear"."""
    name = getattr(value, "value", value)  # of torchvision's InterpolationMode
    return check_choice(f"{operation}: interpolation", name, ("nearest", "bilinear"))
