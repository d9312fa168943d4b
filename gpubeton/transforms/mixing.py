"""Mixing: what mixup and cutmix have in common.

The partner of a sample is the one before it in the batch; the first sample's is the last. How much of it is taken
follows from random numbers that the operations of one kind share: the pipelines of images and labels, whatever their
fields, draw the same. So a batch's mix is a function of the seed, the epoch and the samples in the batch.

An image's mix is a row of six whole numbers. Inside a box it is ``weight * own + (1 - weight) * partner``, weight in
units of 2**-15 and the result rounded down, outside it is its own: mixup's box is the whole image, cutmix's weight 0.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.errors import OptionError, PipelineError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pixel_type import is_torch_dtype, torch_dtype
from gpubeton.transforms import mix_pixels
from gpubeton.transforms.element_type import checked_type
from gpubeton.transforms.layout import as_nhwc, image_size
from gpubeton.transforms.mix_pixels import MIX_COLUMNS, ONE, PARTNER, WEIGHT
from gpubeton.transforms.transform import ImagePass, Moves, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State

MIXUP_NUMBERS, CUTMIX_NUMBERS = range(2)
"""`Transform.shared_numbers` of the two kinds."""

_LEAST = 2.0**-33
"""Stands in for the random number 0, of which there is no logarithm: half of the next one."""


class ImageMixing(Transform):
    """Mixes each image with the one before it. `draw` gives a row of `MIX_COLUMNS` whole numbers for each."""

    is_random: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, alpha: float, same_lambda: bool) -> None:
        self.alpha = checked_alpha(type(self).__name__, alpha)
        self.same_lambda = bool(same_lambda)

    @abstractmethod
    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]: ...

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        image_size(self, previous_state, any_channels=True)
        checked_type(self, previous_state, takes_floats=True)
        return replace(previous_state, shape=tuple(previous_state.shape)), None

    def fuse(self, image_pass: ImagePass) -> bool:
        return image_pass.add_mixing(self)

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if draw is None:
            raise TypeError(f"{type(self).__name__}.apply needs the images' mixes: pass what draw() returned")
        import torch

        images = as_nhwc(batch)
        tensor = torch.from_numpy(images) if isinstance(images, np.ndarray) else images
        is_compiled = Compiler.is_enabled and tensor.device.type == "cpu" and tensor.is_contiguous()
        if is_compiled and tensor.dtype == torch.uint8:
            mix_pixels.mix_levels(tensor.numpy(), draw)
        else:
            mix_pixels.mix_tensor(tensor, draw)
        return batch


class LabelMixing(Transform):
    """Turns labels into three numbers: its own label, its partner's, and the share of its own.

    `draw` gives the partner and the share of each, float64 of shape (N, 2).
    """

    is_random: ClassVar[bool] = True

    def __init__(self, alpha: float, same_lambda: bool) -> None:
        self.alpha = checked_alpha(type(self).__name__, alpha)
        self.same_lambda = bool(same_lambda)

    @abstractmethod
    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.float64]: ...

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        rows = self.draw(uniform, count, state)
        return {"partner": rows[:, 0].astype(np.int64), "share": rows[:, 1]}

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        shape = tuple(previous_state.shape)
        if shape not in {(), (1,)}:
            raise PipelineError(
                f"{type(self).__name__} works on labels, one number for each sample, but here each sample has shape "
                f"{shape}"
            )
        is_tensor = is_torch_dtype(previous_state.dtype)
        dtype = torch_dtype("float32") if is_tensor else np.dtype("float32")
        return replace(previous_state, shape=(3,), dtype=dtype), None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if draw is None:
            raise TypeError(f"{type(self).__name__}.apply needs partners and shares: pass what draw() returned")
        partner = draw[:, 0].astype(np.intp)
        own = batch.reshape(len(draw))
        if isinstance(batch, np.ndarray):
            return np.stack([own, own[partner], draw[:, 1]], axis=1).astype(np.float32)
        import torch

        share = torch.from_numpy(draw[:, 1].astype(np.float32)).to(batch.device)
        other = own[torch.from_numpy(partner).to(batch.device)]
        return torch.stack([own.to(torch.float32), other.to(torch.float32), share], dim=1)


def mixing_numbers(uniform: Uniform, count: int, numbers: int, same_lambda: bool) -> NDArray[np.float64]:
    """Random numbers of each sample of a batch, or those of its last sample for all of them.

    Parameters
    ----------
    uniform : Uniform
        Where from.
    count : int
        Number of samples N.
    numbers : int
        Numbers for each.
    same_lambda : bool
        Whether all of the batch get the same.

    Returns
    -------
    ndarray of float64, shape (N, numbers)
        From 0 to 1.

    Examples
    --------
    >>> mixing_numbers(lambda count, rows=None: np.array([[0.1], [0.9]])[rows], 2, 1, same_lambda=True).tolist()
    [[0.9], [0.9]]
    """
    if not same_lambda or count == 0:
        return uniform(numbers)
    return np.repeat(uniform(numbers, np.array([count - 1])), count, axis=0)


def symmetric_beta(alpha: float, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw from the beta distribution with both parameters the same.

    With Bailey's polar method for Student's t of ``2 * alpha`` degrees of freedom, of which a symmetric beta variate is
    a function (Devroye, "Random variate generation in one line of code", 1996): two random numbers for each, always, so
    that a draw is a function of them alone.

    Parameters
    ----------
    alpha : float
        Both parameters; positive.
    numbers : ndarray of float64, shape (N, 2)
        Uniform random numbers, at least 0 and less than 1.

    Returns
    -------
    ndarray of float64, shape (N,)
        From 0 to 1.

    Examples
    --------
    >>> symmetric_beta(1.0, np.array([[0.36, 0.0], [0.36, 0.5], [0.2, 0.25]])).round(3).tolist()
    [0.9, 0.1, 0.5]
    """
    cosine = np.cos(2 * np.pi * numbers[:, 1])
    with np.errstate(over="ignore", divide="ignore"):  # out of range for the smallest alpha: then it is 0 or 1
        square = np.expm1(-np.log(np.maximum(numbers[:, 0], _LEAST)) / alpha) * cosine**2
        distance: NDArray[np.float64] = np.copysign(1 / np.sqrt(1 + 1 / square), cosine)
    return (1 + distance) / 2


def mix_rows(count: int) -> NDArray[np.int32]:
    """Begin the rows of a batch: each with the one before it as its partner, and all of its own.

    Parameters
    ----------
    count : int
        Number of samples N.

    Returns
    -------
    ndarray of int32, shape (N, MIX_COLUMNS)
        PARTNER, WEIGHT, and TOP, LEFT, BOTTOM and RIGHT of an empty box.

    Examples
    --------
    >>> mix_rows(3).tolist()
    [[2, 32768, 0, 0, 0, 0], [0, 32768, 0, 0, 0, 0], [1, 32768, 0, 0, 0, 0]]
    """
    rows = np.zeros((count, MIX_COLUMNS), np.int32)
    rows[:, PARTNER] = np.roll(np.arange(count), 1)
    rows[:, WEIGHT] = ONE
    return rows


def share_rows(share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Write a label's draw: the partner, which is the one before, and the share of its own.

    Parameters
    ----------
    share : ndarray of float64, shape (N,)
        The shares.

    Returns
    -------
    ndarray of float64, shape (N, 2)
        Partner and share.

    Examples
    --------
    >>> share_rows(np.array([0.5, 1.0])).tolist()
    [[1.0, 0.5], [0.0, 1.0]]
    """
    return np.stack([np.roll(np.arange(len(share), dtype=np.float64), 1), share], axis=1)


def checked_alpha(operation: str, alpha: float) -> float:
    """Check the parameter of the beta distribution.

    Parameters
    ----------
    operation : str
        Name of the operation, for the error.
    alpha : float
        Its argument.

    Returns
    -------
    float
        The same.

    Raises
    ------
    OptionError
        If it is not positive and finite.

    Examples
    --------
    >>> checked_alpha("ImageMixup", 1)
    1.0
    """
    if not 0 < alpha < float("inf"):
        raise OptionError(f"{operation}: alpha is {alpha!r}; expected a positive number, usually from 0.1 to 1")
    return float(alpha)
