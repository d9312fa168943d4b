"""One batch in every form in which a transform may meet it."""

from __future__ import annotations

import numpy as np
import torch

LAYOUTS = ["numpy", "tensor", "channels_last", "nchw"]


def in_layout(batch: np.ndarray, layout: str):
    """A copy of an NHWC array as array, NHWC tensor, NCHW tensor in channels_last memory, or contiguous NCHW tensor."""
    if layout == "numpy":
        return batch.copy()
    tensor = torch.from_numpy(batch.copy())
    if layout == "tensor":
        return tensor
    return tensor.permute(0, 3, 1, 2) if layout == "channels_last" else tensor.permute(0, 3, 1, 2).contiguous()


def as_nhwc_array(batch, layout: str) -> np.ndarray:
    """The NHWC array back."""
    if layout == "numpy":
        return batch
    return (batch if layout == "tensor" else batch.permute(0, 2, 3, 1)).numpy()
