"""Placements: where the images of one output go, for outputs that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.engine.history import history_of
from gpubeton.engine.image_output import ImageOutput
from gpubeton.errors import PipelineError
from gpubeton.plan.draws import SHIFT_X
from gpubeton.plan.following import moves_of, placements_by
from gpubeton.transforms.boxes import TransformBoxes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gpubeton.plan.batch_ops import BatchOp


@dataclass(frozen=True, eq=False)
class ImagePlacements:
    """Tells where the images of an output go, as the output itself decides it.

    Parameters
    ----------
    output : ImageOutput
        The output, or the one that it goes on from.
    moves : tuple of BatchOp
        What moves its pixels behind the one pass, in order.
    """

    output: ImageOutput
    moves: tuple[BatchOp, ...] = ()

    def __call__(self, seed: int, epoch: int, samples: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Give a row for each sample, see `gpubeton.transforms.boxes.PLACEMENT_COLUMNS`.

        Parameters
        ----------
        seed, epoch : int
            The loader's seed and the number of the epoch.
        samples : ndarray of uint64, shape (N,)
            Sample ids.

        Returns
        -------
        ndarray of float64, shape (N, (1 + moves) * PLACEMENT_COLUMNS)
            Crop, flip, shift and sizes, first of the one pass and then of each move.
        """
        program, column = self.output.program, self.output.source.column
        heights, widths = (column[side][samples].astype(np.int32) for side in ("height", "width"))
        draws = program.draw(seed, epoch, samples, heights, widths)[:, : SHIFT_X + 1]
        size = np.broadcast_to([program.height, program.width], (len(samples), 2))
        later = [placements_by(step, seed, epoch, samples) for step in self.moves]
        columns = [draws, heights[:, None], widths[:, None], size, *later]
        return np.concatenate(columns, axis=1).astype(np.float64)


def connect_boxes(outputs: Mapping[str, Any]) -> None:
    """Tell the boxes of a batch which images they follow.

    Parameters
    ----------
    outputs : mapping of str to ImageOutput, RowOutput or BranchOutput
        What a batch consists of, by name.

    Raises
    ------
    PipelineError
        If boxes follow what is no image, or an image that is moved where they cannot follow.
    """
    for name, output in outputs.items():
        for step in () if isinstance(output, ImageOutput) else output.tail.steps:
            if isinstance(step.operation, TransformBoxes):
                try:
                    placements = _followed(step.operation.image, outputs)
                except PipelineError as error:
                    raise PipelineError(f"field {name!r}: {error}") from error
                step.operation.accept_placements(placements)


def _followed(name: str, outputs: Mapping[str, Any]) -> ImagePlacements:
    root, steps = history_of(outputs[name], outputs) if name in outputs else (None, [])
    if not isinstance(root, ImageOutput):
        images = [repr(other) for other in outputs if isinstance(history_of(outputs[other], outputs)[0], ImageOutput)]
        raise PipelineError(
            f"TransformBoxes(image={name!r}), but {name!r} is no output with decoded images; there are "
            f"{', '.join(images) or 'none'}."
        )
    return ImagePlacements(root, moves_of(name, steps))
