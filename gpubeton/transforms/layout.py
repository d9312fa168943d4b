"""Layout: the image axes of a batch, whether its channels stand last or first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpubeton.pipeline.state import State

CHANNELS = 3
"""Channels of an RGB image."""

_OTHER_CHANNELS = (1, 4)
"""Channels of gray images, and of those with transparency."""


def image_size(operation: object, state: State, *, any_channels: bool = False) -> tuple[int, int]:
    """Height and width of the images that an operation meets.

    Parameters
    ----------
    operation : object
        The operation, named in the error.
    state : State
        The batch before it: shape (H, W, 3), or (3, H, W) after ``ToTorchImage``.
    any_channels : bool
        Whether the operation takes gray and RGBA images, too: one or four channels in the place of three.

    Returns
    -------
    tuple of int
        Height and width in pixels.

    Raises
    ------
    PipelineError
        If the batch does not hold images, or none of three channels where those are needed.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> image_size("flip", State(True, "cpu", (3, 20, 30), np.dtype("uint8")))
    (20, 30)
    >>> image_size("flip", State(True, "cpu", (20, 30, 1), np.dtype("uint8")), any_channels=True)
    (20, 30)
    """
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
    """Channels of the images that an operation meets.

    Parameters
    ----------
    state : State
        The batch before it: shape (H, W, C) or (C, H, W).

    Returns
    -------
    int
        1, 3 or 4.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> num_channels(State(True, "cpu", (1, 20, 30), np.dtype("uint8")))
    1
    """
    shape = tuple(state.shape)
    return int(shape[2] if channels_stand_last(shape) else shape[0])


def channels_stand_last(shape: Sequence[int]) -> bool | None:
    """Tell where the channels of a sample are. Three are looked for before one and four.

    Parameters
    ----------
    shape : sequence of int
        Shape of a sample.

    Returns
    -------
    bool or None
        Whether they stand last; None if it is no image.

    Examples
    --------
    >>> channels_stand_last((20, 30, 1)), channels_stand_last((3, 20, 1)), channels_stand_last((7,))
    (True, False, None)
    """
    if len(shape) == 3:
        for channels in ((CHANNELS,), _OTHER_CHANNELS):
            if shape[2] in channels:
                return True
            if shape[0] in channels:
                return False
    return None


def as_nhwc(batch: Any) -> Any:
    """View a batch of images with its channels last.

    Parameters
    ----------
    batch : ndarray or torch.Tensor, shape (N, H, W, C) or (N, C, H, W)
        The batch, of 3 channels, 1 or 4. Where both readings fit (images three pixels high or wide), a tensor in
        channels_last memory is NCHW and everything else NHWC.

    Returns
    -------
    ndarray or torch.Tensor, shape (N, H, W, C)
        A view of the same memory.

    Examples
    --------
    >>> as_nhwc(np.zeros((2, 3, 20, 30))).shape
    (2, 20, 30, 3)
    """
    if not is_nchw(batch):
        return batch
    return batch.transpose(0, 2, 3, 1) if isinstance(batch, np.ndarray) else batch.permute(0, 2, 3, 1)


def as_nchw(batch: Any) -> Any:
    """View a batch of images, channels last, with its channels first.

    Parameters
    ----------
    batch : ndarray or torch.Tensor, shape (N, H, W, C)
        The batch.

    Returns
    -------
    ndarray or torch.Tensor, shape (N, C, H, W)
        A view of the same memory: channels_last in torch's words.

    Examples
    --------
    >>> as_nchw(np.zeros((2, 20, 30, 3))).shape
    (2, 3, 20, 30)
    """
    return batch.transpose(0, 3, 1, 2) if isinstance(batch, np.ndarray) else batch.permute(0, 3, 1, 2)


def is_nchw(batch: Any) -> bool:
    """Whether the channels of a batch of images stand first.

    Parameters
    ----------
    batch : ndarray or torch.Tensor, shape (N, H, W, C) or (N, C, H, W)
        The batch; see `as_nhwc` for the shapes that fit both.

    Returns
    -------
    bool
        True for NCHW.

    Examples
    --------
    >>> is_nchw(np.zeros((2, 20, 30, 3)))
    False
    """
    if CHANNELS in (batch.shape[-1], batch.shape[1]):
        channels: tuple[int, ...] = (CHANNELS,)
    else:
        channels = _OTHER_CHANNELS
    if batch.shape[-1] not in channels:
        return True
    return bool(batch.shape[1] in channels and not isinstance(batch, np.ndarray) and batch.stride(1) == 1)


def writable(batch: Any) -> Any:
    """View a batch so that parts of it can be picked and assigned: torch does neither with all uint16.

    Parameters
    ----------
    batch : ndarray or torch.Tensor
        The batch.

    Returns
    -------
    ndarray or torch.Tensor
        The same memory; a tensor of uint16 as int16.

    Examples
    --------
    >>> writable(np.zeros(2, "uint16")).dtype
    dtype('uint16')
    """
    if isinstance(batch, np.ndarray) or dtype_name(batch.dtype) != "uint16":
        return batch
    import torch

    return batch.view(torch.int16)


def change_colours(images: Any, change: Callable[[Any], None]) -> None:
    """Change the colours of images of any number of channels by what changes RGB images, each channel by itself.

    Parameters
    ----------
    images : ndarray or torch.Tensor, shape (N, H, W, C)
        Changed; of four channels the first three, as the last is how opaque a pixel is.
    change : callable
        Changes images of three channels in place.

    Examples
    --------
    >>> gray = np.zeros((1, 1, 2, 1), "uint8")
    >>> change_colours(gray, lambda images: images.fill(images.shape[3]))
    >>> gray.ravel().tolist()
    [3, 3]
    """
    if images.shape[3] == 1:
        wide = images.repeat(3, axis=3) if isinstance(images, np.ndarray) else images.repeat(1, 1, 1, 3)
        change(wide)
        images[:] = wide[..., :1]
    else:
        change(images[..., :CHANNELS])
