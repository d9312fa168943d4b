"""Fill: the colour that an operation paints with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import dtype_name, is_torch_dtype
from gpubeton.transforms.layout import as_nhwc, num_channels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton.pipeline.state import State

Fill = tuple[float, ...]


def checked_fill(operation: str, fill: float | Sequence[float]) -> Fill:
    """Check a fill when an operation is made.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    fill : number or sequence of numbers
        Red, green and blue, in the units of the batch that the operation will meet; for gray images one number, for
        RGBA images four. A single number is meant for each channel.

    Returns
    -------
    tuple of numbers
        The same, as Python numbers; three for a single one.

    Raises
    ------
    OptionError
        If there are not one, three or four numbers.

    Examples
    --------
    >>> checked_fill("Cutout", (0, 0, 255))
    (0, 0, 255)
    """
    values = np.asarray(fill)
    if values.shape not in {(), (1,), (3,), (4,)} or values.dtype.kind not in "iufb" or not np.isfinite(values).all():
        raise OptionError(
            f"{operation}: fill is {fill!r}; expected three numbers, red, green and blue: (0, 0, 0); or one, or four "
            f"for images with so many channels"
        )
    numbers: list[float] = np.atleast_1d(values).tolist()
    return tuple(numbers * 3 if values.shape == () else numbers)


def fill_of(operation: str, fill: Fill, channels: int) -> Fill:
    """Give a fill as many numbers as images have channels.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    fill : tuple of numbers
        What `checked_fill` returned.
    channels : int
        Channels of the images.

    Returns
    -------
    tuple of numbers
        One for each channel. Equal numbers, such as the zeros that are the default, suit any images.

    Raises
    ------
    PipelineError
        If they are not as many, and differ.

    Examples
    --------
    >>> fill_of("Cutout", (0, 0, 0), 1), fill_of("Cutout", (9, 0, 0, 255), 4)
    ((0,), (9, 0, 0, 255))
    """
    if len(fill) == channels:
        return fill
    if len(set(fill)) > 1:
        raise PipelineError(
            f"{operation}: fill {fill} has {len(fill)} numbers, but the images have {channels} channels; expected one "
            f"number for each"
        )
    return fill[:1] * channels


def checked_levels(operation: str, fill: Fill, state: State) -> None:
    """Check, when a pipeline is planned, that a fill can be painted on the batch.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    fill : tuple of numbers
        What `checked_fill` returned.
    state : State
        The batch.

    Raises
    ------
    PipelineError
        If the batch is uint8 or uint16 and the fill is negative or not below 256 or 65536, if the batch is int16, the
        bits of halves, and the fill is not 0, or if it has not as many numbers as images have channels.

    Notes
    -----
    Levels drop the fraction of a fill, as FFCV's arrays do: unrounded means of a dataset are fills.

    Examples
    --------
    >>> from gpubeton.pipeline.state import State
    >>> checked_levels("Cutout", (0, 0, 255), State(True, "cpu", (8, 8, 3), np.dtype("uint8")))
    """
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


def fill_like(batch: Any, fill: Fill) -> Any:
    """Make a fill that can be assigned to pixels of a batch.

    Parameters
    ----------
    batch : ndarray or torch.Tensor, shape (N, H, W, C) or (N, C, H, W)
        The batch.
    fill : tuple of numbers
        What `checked_fill` returned.

    Returns
    -------
    ndarray or torch.Tensor, shape (C,)
        The fill, of the batch's element type and on its device.

    Examples
    --------
    >>> fill_like(np.zeros((1, 9, 9, 3), "uint8"), (0, 0, 255))
    array([  0,   0, 255], dtype=uint8)
    """
    own = fill_of("fill", fill, as_nhwc(batch).shape[3])
    if is_torch_dtype(batch.dtype):
        # torch drops fractions too, but refuses 255.9 as too large for uint8.
        return batch.new_tensor(own if batch.dtype.is_floating_point else tuple(map(int, own)))
    values: NDArray[Any] = np.asarray(own).astype(batch.dtype)
    return values
