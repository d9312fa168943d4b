"""Operations that become rows of the images' lists of steps; see `gpubeton._batch.step_rows`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gpubeton._batch.place_steps import RowGeometry
from gpubeton._batch.run_steps import run_steps
from gpubeton._batch.step_rows import PARAMETERS, SHIFT, STEP_COLUMNS, TURN, step_kinds, step_rows
from gpubeton._batch.warp_steps import WARPS, forward_maps
from gpubeton.pipeline.validation import check_fill, check_probability
from gpubeton.transforms.checks import checked_interpolation, checked_levels, checked_type, given_draw, image_size
from gpubeton.transforms.placements import WarpPlacement
from gpubeton.transforms.transform import Geometry, Moves, Transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpubeton._batch.image_batch import Fill
    from gpubeton.pipeline.operation import Uniform
    from gpubeton.pipeline.state import State


class RowTransform(Transform):
    """An operation that may be rows of the images' lists of steps."""

    is_random: ClassVar[bool] = True
    kind: ClassVar[int]  # of the steps, if there is one

    @property
    def moves(self) -> Moves:
        return Moves.NOTHING

    @property
    def kinds(self) -> frozenset[int]:
        """Kinds of steps that `draw_rows` may write."""
        return frozenset({self.kind})

    @property
    def num_rows(self) -> int:
        """Step rows of each image."""
        return 1

    @property
    def num_numbers(self) -> int:
        """Random numbers of each image that `draw` takes, or more."""
        return 1

    @abstractmethod
    def rows(self, draw: NDArray[Any], state: State) -> NDArray[np.int32]:
        """Return the step rows of each image, (N, num_rows, STEP_COLUMNS), for the result of `draw`."""

    def draw_rows(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        """Draw the step rows of each image."""
        return self.rows(self.draw(uniform, count, state), state)


class FoldTransform(RowTransform):
    """An operation that `fold` describes to the fused pass; where it comes too late, or at random, it is rows."""

    num_numbers: ClassVar[int] = 32

    def rows(self, draw: NDArray[Any], state: State) -> NDArray[np.int32]:
        geometry = RowGeometry(len(draw), image_size(self, state, any_channels=True))
        self.fold(geometry, draw)
        return geometry.rows

    def fills(self) -> tuple[Fill, ...]:
        fill: Fill = getattr(self, "fill", ())
        return (fill,) if self.num_paints else ()


class StepTransform(RowTransform):
    """An operation on levels: `draw` gives the step rows of each image, int32 (N, num_rows, STEP_COLUMNS)."""

    # Steps are whole-number arithmetic: arrays and tensors of every device agree to the bit.

    takes_any_channels: bool = False  # whether images may have one channel or four
    takes_any_kind: bool = False  # whether they may have one channel or four, and uint16

    def rows(self, draw: NDArray[Any], state: State) -> NDArray[np.int32]:
        return draw

    def check_state(self, state: State) -> None:
        image_size(self, state, any_channels=self.takes_any_kind or self.takes_any_channels)
        checked_type(self, state, ("uint8", "uint16") if self.takes_any_kind else ("uint8",))

    def fold(self, geometry: Geometry, draw: Any) -> None:
        # The calls depend on the kinds alone: every batch has as many placements.
        columns = draw.reshape(len(draw), -1)
        for number, (rows, kind) in enumerate(zip(np.moveaxis(draw, 1, 0), step_kinds(draw).T, strict=True)):
            if TURN in self.kinds:
                geometry.turn(np.where(kind == TURN, rows[:, PARAMETERS], 0))
            if SHIFT in self.kinds:
                geometry.translate(np.where(kind[:, None] == SHIFT, -rows[:, PARAMETERS : PARAMETERS + 2], 0), (0,))
            if self.kinds & WARPS:
                maps = forward_maps(kind, columns[:, number * STEP_COLUMNS :])
                geometry.place(WarpPlacement(maps, geometry.size))

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        if (rows := given_draw(self, draw, "the images' steps")).size:
            run_steps(batch, rows)
        return batch


class RandomStep(StepTransform):
    """A step with the same parameters for all images that get it."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(f"{type(self).__name__}: p", p)

    @property
    def parameters(self) -> tuple[int, ...]:
        """Parameters of the step."""
        return ()

    def draw(self, uniform: Uniform, count: int, state: State) -> NDArray[np.int32]:
        parameters = np.tile(np.array(self.parameters, np.int32), (count, 1))
        return step_rows(self.kind, parameters, uniform(1)[:, 0] < self.p)

    def drawn(self, uniform: Uniform, count: int, state: State) -> dict[str, NDArray[Any]]:
        return {"": uniform(1)[:, 0] < self.p}


class FilledSteps(StepTransform):
    """Steps that read between pixels, and a color outside of the image."""

    def __init__(self, interpolation: str, fill: Sequence[float]) -> None:
        name = type(self).__name__
        self.interpolation = checked_interpolation(name, interpolation)
        self.fill = check_fill(f"{name}: fill", fill)

    def check_state(self, state: State) -> None:
        super().check_state(state)
        checked_levels(type(self).__name__, self.fill, state)

    def follower(self, interpolation: str, fill: Fill) -> Transform:
        return self.changed(fill=fill, interpolation="nearest" if interpolation == "nearest" else "bilinear")
