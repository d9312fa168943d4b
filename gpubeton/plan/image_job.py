"""ImageJob: the images of one output of one batch, decided and not yet made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass
class ImageJob:
    """The images of one output of one batch, decided and not yet made.

    Parameters
    ----------
    address : ndarray of uint64, shape (N,)
        Where in memory each stored image starts.
    size : ndarray of uint64, shape (N,)
        Its bytes.
    height, width : ndarray of int32, shape (N,)
        Its size in pixels, as the file's metadata have it.
    mode : ndarray of uint8, shape (N,)
        The file format's image modes.
    draws : ndarray of int32, shape (N, D)
        See `gpubeton.plan.draws`.
    out : ndarray or torch.Tensor, shape (N, height, width, 3), C-contiguous
        Written: uint8, float16, float32, or bfloat16 (in numpy its bits, as uint16).
    keep : object
        Held until the batch is collected: whatever owns the memory at `address`.
    samples : ndarray of uint64, shape (N,), optional
        Their sample ids.
    source : str
        The field that they are stored in. Jobs of one batch with the same source have the same stored images.
    is_pinned : bool
        Whether `address` is in page-locked memory, which a GPU reads where it is.
    colours : ndarray of int32, shape (N, 2 * K), optional
        What is done to the colours of each image in the same pass, see `gpubeton.transforms.colour`.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.uint64]
    height: NDArray[np.int32]
    width: NDArray[np.int32]
    mode: NDArray[np.uint8]
    draws: NDArray[np.int32]
    out: Any
    keep: object = None
    samples: NDArray[np.uint64] | None = None
    source: str = ""
    is_pinned: bool = False
    colours: NDArray[np.int32] | None = None

    def rows(self, rows: NDArray[np.intp], out: Any) -> ImageJob:
        """Make a job of some of its images.

        Parameters
        ----------
        rows : ndarray of int, shape (M,)
            Which ones.
        out : ndarray or torch.Tensor, shape (M, height, width, 3)
            Where they are written.

        Returns
        -------
        ImageJob
            A job of M images.
        """
        return replace(
            self,
            address=self.address[rows],
            size=self.size[rows],
            height=self.height[rows],
            width=self.width[rows],
            mode=self.mode[rows],
            draws=self.draws[rows],
            out=out,
            samples=None if self.samples is None else self.samples[rows],
            colours=None if self.colours is None else self.colours[rows],
        )


@dataclass(frozen=True)
class BadImage:
    """An image that could not be made; its output is of no value.

    Parameters
    ----------
    program : int
        Which output of the batch.
    row : int
        Which of its images.
    reason : str
        Why.
    """

    program: int
    row: int
    reason: str
