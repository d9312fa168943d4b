"""Color steps of floating-point images, as after ``NormalizeImage``; those of levels are `step_code`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton._batch.color_formulas import BLUE_WEIGHT, GREEN_WEIGHT, ONE, RED_WEIGHT, WEIGHTS
from gpubeton._batch.image_batch import CHANNELS, as_nhwc, as_tensor
from gpubeton._batch.step_rows import BRIGHTNESS, CONTRAST, KIND, PARAMETERS, SATURATION

if TYPE_CHECKING:
    from numpy.typing import NDArray


def change_floats(
    batch: Any,  # NHWC or NCHW, any strides, 1, 3 or 4 channels
    rows: NDArray[np.int32],  # (N, K, STEP_COLUMNS): see `step_rows`
) -> None:
    """Carry out brightness, contrast and saturation on floating-point images, in place."""
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
