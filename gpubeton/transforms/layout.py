"""Layout: the image axes of a batch, whether its channels stand last or first."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpubeton.errors import PipelineError
from gpubeton.pipeline.state import State

CHANNELS = 3
"""Channels of an image."""


def image_size(operation: object, state: State) -> tuple[int, int]:
    """Height and width of the images that an operation meets.

    Parameters
    ----------
    operation : object
        The operation, named in the error.
    state : State
        The batch before it: shape (H, W, 3), or (3, H, W) after ``ToTorchImage``.

    Returns
    -------
    tuple of int
        Height and width in pixels.

    Raises
    ------
    PipelineError
        If the batch does not hold images of three channels.

    Examples
    --------
    >>> image_size("flip", State(True, "cpu", (3, 20, 30), np.dtype("uint8")))
    (20, 30)
    """
    shape = tuple(state.shape)
    if len(shape) == 3 and shape[2] == CHANNELS:
        return shape[0], shape[1]
    if len(shape) == 3 and shape[0] == CHANNELS:
        return shape[1], shape[2]
    name = operation if isinstance(operation, str) else type(operation).__name__
    raise PipelineError(
        f"{name} works on images, shape (H, W, 3) or (3, H, W), but here each sample has shape {shape}. "
        f"Move it up in the pipeline, right after the decoder of an image field."
    )


def as_nhwc(batch: Any) -> Any:
    """View a batch of images with its channels last.

    Parameters
    ----------
    batch : ndarray or torch.Tensor, shape (N, H, W, 3) or (N, 3, H, W)
        The batch. Where both readings fit (images three pixels high or wide), a tensor in channels_last memory is
        NCHW and everything else NHWC.

    Returns
    -------
    ndarray or torch.Tensor, shape (N, H, W, 3)
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
    batch : ndarray or torch.Tensor, shape (N, H, W, 3)
        The batch.

    Returns
    -------
    ndarray or torch.Tensor, shape (N, 3, H, W)
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
    batch : ndarray or torch.Tensor, shape (N, H, W, 3) or (N, 3, H, W)
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
    if batch.shape[-1] != CHANNELS:
        return True
    return bool(batch.shape[1] == CHANNELS and not isinstance(batch, np.ndarray) and batch.stride(1) == 1)
