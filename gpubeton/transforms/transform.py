"""Transform: base of the library's operations; each declares how it fuses, folds and moves pixels."""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from gpubeton.pipeline.draw_ids import sample_ids
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Memory, Uniform


class Moves(Enum):
    """How an operation moves the pixels of an image, and which outputs can follow it."""

    NOTHING = "every pixel keeps its position"
    ALONG_AXES = "masks and boxes can follow"
    FREELY = "masks can follow; boxes cannot, as their sides stay parallel to the axes"
    UNKNOWN = "nothing can follow"


class BatchKey(NamedTuple):
    """All that random parameters depend on."""

    seed: int
    epoch: int
    draw_ids: NDArray[np.uint64]  # (N,) of the samples, see `gpubeton.pipeline.draw_ids`

    @property
    def samples(self) -> NDArray[np.uint64]:
        """The sample ids, (N,)."""
        return sample_ids(self.draw_ids)


class Geometry(Protocol):
    """Receives the moves of N images, in order: the draws of the fused pass, or the placements that boxes follow."""

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images so far, in pixels."""

    def crop(self, boxes: NDArray[Any], size: tuple[int, int]) -> None:
        """Resize a part, (N, 4) top, left, height and width, to `size`."""

    def turn(self, bits: NDArray[Any]) -> None:
        """Mirror the images across (1) and down (2), and then exchange rows and columns (4); `bits` is (N,)."""

    def translate(self, shift: NDArray[Any], fill: Fill) -> None:
        """Shift each image up and left by `shift` pixels, (N, 2); `fill` the uncovered part."""

    def paint(self, boxes: NDArray[Any], fill: Fill) -> None:
        """Paint rectangles: (N, 4) top, left, bottom and right."""

    def place(self, placement: Any) -> None:
        """Move the images in a way that only boxes and points follow: `gpubeton.transforms.placements`."""


class Transform(Operation):
    """An operation: `apply`, with parameters that `draw` gave; loaders fuse many into one pass, with equal results."""

    is_random: ClassVar[bool] = False  # whether `draw` is called; its random numbers have a stream then
    usual_numbers: ClassVar[int] = 4  # of a sample, which are made in advance
    shared_numbers: ClassVar[int | None] = None  # group of operations with the same random numbers
    takes_ragged: ClassVar[bool] = False  # whether `apply` takes a Ragged
    takes_memory: ClassVar[bool] = False  # a function ``take(shape, dtype)`` that gives memory for arrays
    needs_declared_device: ClassVar[bool] = False  # whether the pass has to give the batch back to the CPU

    # --- a pipeline is compiled ---------------------------------------------------------------------------------------

    def check_state(self, state: State) -> None:
        """Raise PipelineError if such batches are not for this operation."""

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        self.check_state(previous_state)
        return replace(previous_state, shape=tuple(previous_state.shape)), None

    def check_unfused(self, device: str) -> None:
        """Raise PipelineError if the operation cannot run on a finished batch on a device: "cpu" or "cuda"."""

    def is_view(self) -> bool:
        """Return whether every pixel stays as it is, so that later operations can still be fused."""
        return False

    @property
    def num_paints(self) -> int:
        """Rectangles that it paints in the fused pass."""
        return 0

    def fills(self) -> tuple[Fill, ...]:
        """Return the colors of the rectangles that `fold` paints."""
        return ()

    @property
    def moves(self) -> Moves:
        """How it moves pixels."""
        return Moves.UNKNOWN

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        """Return the operation that moves a mask's pixels in the same way, given the same draws."""
        return copy.copy(self)

    def changed(self, **values: Any) -> Transform:
        """Return a copy with other values of attributes."""
        copied = copy.copy(self)
        vars(copied).update(values)
        return copied

    # --- a batch is planned -------------------------------------------------------------------------------------------

    def draw(self, uniform: Uniform, count: int, state: State) -> Any:
        """Choose the random parameters, (count, ...), of the samples of a batch for `apply`; None if there are none."""
        return None

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        """Return the result of `draw` by name, in the units of `DrawnParameters`; a single one is called ""."""
        draw = self.draw(uniform, count, state)
        return {} if draw is None else {"": draw}

    def draw_batch(self, key: BatchKey, uniform: Uniform | None, state: State) -> NDArray[Any] | None:
        """Return the argument `draw` of `apply` for a batch; `uniform` is None if the operation is not random."""
        return None if uniform is None else self.draw(uniform, len(key.samples), state)

    def fold(self, geometry: Geometry, draw: Any) -> None:
        """Describe the moves and paints of the images, with the parameters that `draw` returned."""
        raise TypeError(f"{self!r} does not fold into the fused pass")

    # --- a finished batch ---------------------------------------------------------------------------------------------

    @abstractmethod
    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        """Carry the operation out on a batch, (N, ...), perhaps in place; returns it, a view of it, or a new one."""

    def generate_code(self) -> Callable[..., Any]:
        """Return ``code(batch, memory)``, with fresh, unseeded random parameters; loaders call `apply`."""
        generator = np.random.default_rng()

        def code(batch: Any, memory: Any = None) -> Any:
            dtype = getattr(batch, "dtype", None)
            state = State(jit_mode=False, device="cpu", shape=tuple(batch.shape[1:]), dtype=dtype)

            def uniform(count: int, rows: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
                return generator.random((len(batch) if rows is None else len(rows), count))

            return self.apply(batch, self.draw(uniform, len(batch), state))

        return code

    def __repr__(self) -> str:
        inherited = dir(Operation)
        arguments = (
            f"{name}={value!r}" for name, value in vars(self).items() if name[0] != "_" and name not in inherited
        )
        return f"{type(self).__name__}({', '.join(arguments)})"


def between(limits: tuple[float, float], numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spread numbers from 0 to 1 over a range."""
    least, largest = limits
    return least + (largest - least) * numbers
