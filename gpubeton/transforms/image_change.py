"""ImageChange: one way to change the levels of images, on arrays and on tensors."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton.pipeline.compiler import Compiler
from gpubeton.transforms.element_type import checked_type
from gpubeton.transforms.layout import CHANNELS, as_nhwc, change_colours, image_size
from gpubeton.transforms.transform import Transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.sampling import Uniform
    from gpubeton.pipeline.state import State


@dataclass(frozen=True)
class ImageChange:
    """A change of images, written twice with the same whole-number arithmetic.

    Parameters
    ----------
    on_arrays : callable
        ``on_arrays(images, rows)`` changes uint8 arrays of shape (N, H, W, 3), any strides, in place, by compiled code.
    on_tensors : callable
        The same for tensors of any device.

    Examples
    --------
    >>> def invert(images, rows):
    ...     images[rows[:, 0] == 1] ^= 255
    >>> images = np.full((2, 1, 1, 3), 5, "uint8")
    >>> ImageChange(invert, invert)(images, np.array([[0], [1]]))
    >>> images[:, 0, 0, 0].tolist()
    [5, 250]
    """

    on_arrays: Callable[[NDArray[np.uint8], NDArray[Any]], None]
    on_tensors: Callable[[Any, NDArray[Any]], None]

    def __call__(self, images: Any, rows: NDArray[Any]) -> None:
        """Change the images in place.

        Parameters
        ----------
        images : ndarray or torch.Tensor of uint8, shape (N, H, W, 3)
            Levels; any strides.
        rows : ndarray of integers, shape (N, K)
            What is done to each.
        """
        is_array = isinstance(images, np.ndarray)
        if Compiler.is_enabled and (is_array or images.device.type == "cpu"):
            self.on_arrays(images if is_array else images.numpy(), rows)
            return
        if is_array:
            import torch

            images = torch.from_numpy(images)
        self.on_tensors(images, rows)


class ChangeTransform(Transform):
    """An operation on levels, uint8, that is one `ImageChange`; `draw` gives its rows.

    What all of them compute is whole-number arithmetic: arrays and tensors of every device agree to the bit.
    """

    is_random: ClassVar[bool] = True

    takes_any_kind: bool = False
    """Whether images may have one channel or four, and uint16."""

    takes_any_channels: ClassVar[bool] = False
    """Whether they may have one channel or four, as each channel is changed by itself."""

    @abstractmethod
    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[Any]: ...

    @abstractmethod
    def image_change(self) -> ImageChange:
        """Return what is done.

        Returns
        -------
        ImageChange
            The change that takes what `draw` returned.
        """

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        image_size(self, previous_state, any_channels=self.takes_any_kind or self.takes_any_channels)
        known = ("uint8", "uint16") if self.takes_any_kind else ("uint8",)
        checked_type(self, previous_state, known)
        return replace(previous_state, shape=tuple(previous_state.shape)), None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if draw is None:
            raise TypeError(f"{type(self).__name__}.apply needs what is done to each image: pass what draw() returned")
        images, change = as_nhwc(batch), self.image_change()
        if self.takes_any_channels and images.shape[3] != CHANNELS:
            change_colours(images, lambda part: change(part, draw))
        else:
            change(images, draw)
        return batch
