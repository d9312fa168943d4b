"""DrawnOutput: one output of a batch that says what was drawn for another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpubeton.engine.history import history_of
from gpubeton.engine.image_output import ImageOutput
from gpubeton.errors import PipelineError
from gpubeton.pipeline.pixel_type import dtype_name
from gpubeton.plan.drawn import Choice, choices_of_pass, choices_of_tail, draw_choices, draw_crop
from gpubeton.transforms.ops import ToDevice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from gpubeton.engine.sources import Source
    from gpubeton.pipeline.pipeline_spec import DrawnParameters
    from gpubeton.plan.program import ImageProgram


@dataclass(frozen=True, eq=False)
class DrawnOutput:
    """An output that says what the operations of another one draw. Draws it again, and needs no pixel for it.

    Parameters
    ----------
    name : str
        Name of the output.
    source : Source
        The field that the other output is made of.
    followed : str
        Name of the other output.
    program : ImageProgram or None
        What crops the other output's images; None if it has none.
    choices : tuple of (Transform, int, State)
        What draws behind its decoder, see `gpubeton.plan.drawn`.
    left_on : str or None
        The GPU on which the tensors are left; None for the CPU.
    """

    name: str
    source: Source
    followed: str
    program: ImageProgram | None
    choices: tuple[Choice, ...]
    left_on: str | None = None

    @classmethod
    def compile(
        cls, name: str, wish: DrawnParameters, outputs: Mapping[str, Any], left_on: str | None = None
    ) -> DrawnOutput:
        """Prepare an output.

        Parameters
        ----------
        name : str
            Its name.
        wish : DrawnParameters
            What the user asked for.
        outputs : mapping of str to ImageOutput, RowOutput or BranchOutput
            The other outputs of the batch.
        left_on : str, optional
            The GPU on which the tensors are left.

        Returns
        -------
        DrawnOutput
            Ready to make batches.

        Raises
        ------
        PipelineError
            If there is no such other output.
        """
        if wish.output not in outputs:
            raise PipelineError(
                f"output {name!r}: DrawnParameters({wish.output!r}), but there is no output {wish.output!r}; there are "
                f"{', '.join(map(repr, outputs)) or 'none'}"
            )
        root, steps = history_of(outputs[wish.output], outputs)
        program = root.program if isinstance(root, ImageOutput) else None
        fused = [] if program is None else choices_of_pass(program)
        return cls(name, root.source, wish.output, program, (*fused, *choices_of_tail(steps)), left_on)

    def make(self, samples: NDArray[np.uint64], seed: int, epoch: int) -> dict[str, Any]:
        """Draw.

        Parameters
        ----------
        samples : ndarray of uint64, shape (N,)
            Sample ids of the batch as it is handed on, in order.
        seed, epoch : int
            What random parameters depend on, together with the samples.

        Returns
        -------
        dict of str to torch.Tensor, each of shape (N, ...)
            What was drawn, see `gpubeton.pipeline.DrawnParameters`.
        """
        import torch

        drawn = self._draw(samples, seed, epoch)
        tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in drawn.items()}
        if self.left_on is None:
            return tensors
        move = ToDevice(self.left_on)
        return {name: move.apply(tensor) for name, tensor in tensors.items()}

    def explain(self) -> str:
        """Describe, a line for each parameter, what there is."""
        drawn = self._draw(np.zeros(1, np.uint64), 0, 0)
        width = max(map(len, drawn), default=0)
        lines = [
            f"  {name:<{width}}  {dtype_name(values.dtype)} ({', '.join(['N', *map(str, values.shape[1:])])})"
            for name, values in drawn.items()
        ]
        return "\n".join([f"{self.name}: a dict, what is drawn for {self.followed!r}", *lines])

    def _draw(self, samples: NDArray[np.uint64], seed: int, epoch: int) -> dict[str, NDArray[Any]]:
        crops: dict[str, NDArray[Any]] = {}
        if self.program is not None:
            column = self.source.column
            size = np.stack([column[side][samples].astype(np.int32) for side in ("height", "width")], axis=1)
            crops = {"size": size, "crop": draw_crop(self.program, seed, epoch, samples, size)}
        return {**crops, **draw_choices(self.choices, seed, epoch, samples)}
