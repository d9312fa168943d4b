"""Fill: the colour that an operation paints with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.dtypes import dtype_name, is_torch_dtype

Fill = tuple[float, float, float]


def checked_fill(operation: str, fill: Sequence[float]) -> Fill:
    """Check a fill when an operation is made.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    fill : sequence of three numbers
        Red, green and blue, in the units of the batch that the operation will meet.

    Returns
    -------
    tuple of three numbers
        The same, as Python numbers.

    Raises
    ------
    OptionError
        If there are not three numbers.

    Examples
    --------
    >>> checked_fill("Cutout", (0, 0, 255))
    (0, 0, 255)
    """
    values = np.asarray(fill)
    if values.shape != (3,) or values.dtype.kind not in "iufb" or not np.isfinite(values).all():
        raise OptionError(f"{operation}: fill is {fill!r}; expected three numbers, red, green and blue: (0, 0, 0)")
    red, green, blue = values.tolist()
    return red, green, blue


def checked_levels(operation: str, fill: Fill, dtype: Any) -> None:
    """Check, when a pipeline is planned, that a fill can be painted on the batch.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    fill : tuple of three numbers
        Red, green and blue.
    dtype : numpy.dtype or torch.dtype
        Element type of the batch.

    Raises
    ------
    PipelineError
        If the batch is uint8 and the fill is not three whole numbers from 0 to 255, or the batch is int16, the bits of
        halves, and the fill is not 0.

    Examples
    --------
    >>> checked_levels("Cutout", (0, 0, 255), np.dtype("uint8"))
    """
    if dtype_name(dtype) == "uint8" and not all(0 <= value <= 255 and value == int(value) for value in fill):
        raise PipelineError(
            f"{operation}: fill {fill} cannot be painted on uint8 images; expected whole numbers from 0 to 255. "
            f"A fill in normalised units belongs after NormalizeImage."
        )
    if dtype_name(dtype) == "int16" and any(fill):
        raise PipelineError(
            f"{operation}: fill {fill} cannot be painted on int16 images, which after NormalizeImage are the bits of "
            f"float16. Put it behind ToTorchImage, which turns them back."
        )


def fill_like(batch: Any, fill: Fill) -> Any:
    """Make a fill that can be assigned to pixels of a batch.

    Parameters
    ----------
    batch : ndarray or torch.Tensor
        The batch.
    fill : tuple of three numbers
        Red, green and blue.

    Returns
    -------
    ndarray or torch.Tensor, shape (3,)
        The fill, of the batch's element type and on its device.

    Examples
    --------
    >>> fill_like(np.zeros(1, "uint8"), (0, 0, 255))
    array([  0,   0, 255], dtype=uint8)
    """
    if is_torch_dtype(batch.dtype):
        return batch.new_tensor(fill)
    values: NDArray[Any] = np.asarray(fill).astype(batch.dtype)
    return values
