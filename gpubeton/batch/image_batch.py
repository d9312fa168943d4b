"""Image batches: their axes, and a change of images that is written for arrays and for tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pixel_type import dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

CHANNELS = 3
"""Channels of an RGB image."""

OTHER_CHANNELS = (1, 4)
"""Channels of gray images, and of those with transparency."""


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


def writable(batch: Any) -> Any:
    """View a tensor of uint16 as int16: torch cannot index uint16. Other batches are returned as they are."""
    if isinstance(batch, np.ndarray) or dtype_name(batch.dtype) != "uint16":
        return batch
    import torch

    return batch.view(torch.int16)


def change_as_rgb(images: Any, change: Callable[[Any], None]) -> None:
    """Apply a change of RGB images, which treats each channel alike, to NHWC images with 1 or 4 channels."""
    # The fourth channel is opacity, and stays.
    if images.shape[3] == 1:
        wide = images.repeat(3, axis=3) if isinstance(images, np.ndarray) else images.repeat(1, 1, 1, 3)
        change(wide)
        images[:] = wide[..., :1]
    else:
        change(images[..., :CHANNELS])


@dataclass(frozen=True)
class ImageChange:
    """A change of images, in place, written twice with the same integer arithmetic."""

    on_arrays: Callable[[NDArray[np.uint8], NDArray[Any]], None]  # compiled by Numba
    on_tensors: Callable[[Any, NDArray[Any]], None]

    def __call__(self, images: Any, rows: NDArray[Any]) -> None:
        """Change images, (N, H, W, 3) uint8 of any strides, by the parameters in `rows`, (N, K) integers."""
        is_array = isinstance(images, np.ndarray)
        if Compiler.is_enabled and (is_array or images.device.type == "cpu"):
            self.on_arrays(images if is_array else images.numpy(), rows)
            return
        if is_array:
            import torch

            images = torch.from_numpy(images)
        self.on_tensors(images, rows)
