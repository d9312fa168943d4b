"""NormalizeImage: levels from 0 to 255 become (level - mean) / std."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.image_batch import as_nhwc, normalize
from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.pixel_type import dtype_name, is_torch_dtype, pixel_type, torch_dtype
from gpubeton.transforms.checks import image_size, num_channels
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State

_NUM_LEVELS = {"uint8": 256, "uint16": 65536}


class NormalizeImage(Transform):
    """Subtract a mean and divide by a standard deviation, per channel, and convert.

    Each of the 256 levels is computed once in float64 and rounded to `type`, so the result is exactly
    ``type((level - mean) / std)``.

    Numba has no half floats: before ``ToTensor``, ``float16`` results are handed on as int16 that hold the bits of the
    halves, and ``ToTorchImage`` turns them back; a loader warns if nothing does. After ``ToTensor`` the result is
    float16 at once. ``bfloat16`` results are torch tensors everywhere, as numpy has no such type.

    Parameters
    ----------
    mean : array_like, one number or one for each channel
        Mean of each channel, in levels from 0 to 255, or to 65535 for images of 16 bits: of red, green and blue, of
        gray alone, of all four channels of RGBA. A single number holds for each channel.
    std : array_like, one number or one for each channel
        Standard deviation of each, in levels; positive.
    type : numpy.dtype, torch.dtype, type or str
        Element type of the result: float16, bfloat16, float32, float64, or any other of numpy's.

    Warns
    -----
    UserWarning
        If every `std` is below 1: such numbers are for images from 0 to 1.

    Notes
    -----
    FFCV's. torchvision's ``Normalize`` after ``ToTensor`` is the same with `mean` and `std` divided by 255.

    Examples
    --------
    >>> half = NormalizeImage([128] * 3, [64] * 3, np.float32)
    >>> half.apply(np.full((1, 1, 1, 3), 160, "uint8")).ravel().tolist()
    [0.5, 0.5, 0.5]
    """

    moves: ClassVar[Moves] = Moves.NOTHING
    takes_memory: ClassVar[bool] = True

    def __init__(self, mean: ArrayLike, std: ArrayLike, type: Any = np.float16) -> None:
        self.mean = _numbers("mean", mean)
        self.std = _numbers("std", std)
        if min(self.std) <= 0:
            raise OptionError(f"NormalizeImage: std is {self.std}; expected positive numbers, in levels from 0 to 255")
        small = "std" if max(self.std) < 1 else "mean" if 0 < max(self.mean) < 1 else ""
        if small:
            warnings.warn(
                f"NormalizeImage: {small} is {getattr(self, small)}, which is for images from 0 to 1; these have "
                "levels from 0 to 255. Multiply mean and std by 255, as in 255 * np.array([0.485, 0.456, 0.406])",
                stacklevel=2,
            )
        self.type = dtype_name(type)
        if self.type.startswith(("int", "uint")) and not self._is_exact():
            warnings.warn(
                f"NormalizeImage: results in {self.type} are cut to whole numbers, and larger ones wrap around, as in "
                "FFCV. Choose a float type, such as np.float16",
                stacklevel=2,
            )

    def _is_exact(self) -> bool:
        """Whether all results for levels up to 255 are numbers of the type."""
        if {len(self.mean), len(self.std)} == {3, 4}:
            return True  # no image has both: `constants_of` refuses them
        exact = (np.arange(256)[:, None] - self.mean) / self.std
        with np.errstate(invalid="ignore"):
            return bool((exact == exact.astype(self.type)).all())

    def table(self, channels: int = 3, num_levels: int = 256) -> NDArray[Any]:
        """The result for each level and channel.

        Parameters
        ----------
        channels : int
            Channels of the images.
        num_levels : int
            How many levels there are: 256 or 65536.

        Returns
        -------
        ndarray, shape (num_levels, channels)
            Of the result's type; for bfloat16 its bits as uint16.
        """
        mean, std = constants_of(self, channels)
        levels = np.arange(num_levels, dtype=np.float64)[:, None]
        exact = (levels - np.array(mean)) / np.array(std)
        return pixel_type(self.type).encode(exact)

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        image_size(self, previous_state, any_channels=True)
        constants_of(self, num_channels(previous_state))
        if dtype_name(previous_state.dtype) not in _NUM_LEVELS:
            raise PipelineError(
                f"NormalizeImage reads levels, uint8 from 0 to 255 or uint16 from 0 to 65535, but here the images are "
                f"{dtype_name(previous_state.dtype)}. Put it before the operation that converts them."
            )
        jit_dtype = pixel_type(self.type).jit_dtype
        if jit_dtype is None or is_torch_dtype(previous_state.dtype):
            return replace(previous_state, jit_mode=False, dtype=torch_dtype(self.type)), None
        return replace(previous_state, jit_mode=True, dtype=jit_dtype), None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None, take: Callable[..., Any] = np.empty) -> Any:
        """Normalize a batch of levels; ``take(shape, dtype)`` gives the memory of a resulting array."""
        table = self.table(as_nhwc(batch).shape[3], _NUM_LEVELS[dtype_name(batch.dtype)])
        return normalize(batch, table, self.type, take)


def _numbers(name: str, values: ArrayLike) -> tuple[float, ...]:
    numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if numbers.shape not in {(1,), (3,), (4,)} or not np.isfinite(numbers).all():
        raise OptionError(
            f"NormalizeImage: {name} is {values!r}; expected three finite numbers, one for each channel (or one, or "
            f"four), in levels from 0 to 255"
        )
    return tuple(numbers.tolist())


def constants_of(operation: NormalizeImage, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of each channel."""
    for name, values in (("mean", operation.mean), ("std", operation.std)):
        if len(values) not in (1, channels):
            raise PipelineError(
                f"NormalizeImage: {name} has {len(values)} numbers, but the images have {channels} channels; "
                f"expected one number for each, or a single one"
            )
    return (operation.mean * channels)[:channels], (operation.std * channels)[:channels]
