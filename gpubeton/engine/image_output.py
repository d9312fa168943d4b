"""ImageOutput: one output of a batch that is made of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpubeton.pipeline.pixel_type import pixel_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.engine.arrays import ArrayPool
    from gpubeton.engine.sources import Source
    from gpubeton.plan.program import ImageProgram


@dataclass(frozen=True, eq=False)
class ImageOutput:
    """An output that is decoded by the crew, in one pass, and finished by the tail of its program.

    Parameters
    ----------
    name : str
        Name of the output.
    source : Source
        The field that it is made of.
    program : ImageProgram
        What is done.
    """

    name: str
    source: Source
    program: ImageProgram

    def take_array(self, pool: ArrayPool, count: int) -> NDArray[Any]:
        """Take memory for the images of a batch.

        Parameters
        ----------
        pool : ArrayPool
            Where from.
        count : int
            Number of images N.

        Returns
        -------
        ndarray, shape (N, height, width, channels)
            Not initialised, of the type that the pass over single images writes; numpy has no bfloat16, so that one is
            uint16.
        """
        shape = (count, self.program.height, self.program.width, self.program.kind.channels)
        return pool.take(shape, pixel_type(self.program.pass_dtype).dtype)

    @property
    def nbytes_per_sample(self) -> int:
        """Bytes that the crew writes for one sample."""
        itemsize = pixel_type(self.program.dtype).dtype.itemsize
        return self.program.height * self.program.width * self.program.kind.channels * itemsize

    def explain(self) -> str:
        """Describe, a line for each operation, what runs where."""
        return self.program.explain()
