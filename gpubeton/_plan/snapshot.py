"""Copies of users' pipelines, checked and completed: planning never changes the originals."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gpubeton import transforms
from gpubeton.errors import PipelineError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.validation import check_probability
from gpubeton.transforms.combine import RandomChoice
from gpubeton.transforms.module import ModuleWrapper
from gpubeton.transforms.ops import ToTensor
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubeton.pipeline.operation import Memory
    from gpubeton.pipeline.state import State


def snapshot(operations: Sequence[Any], default_decoder: type[Operation] | None = None) -> list[Operation]:
    """Copy the operations of a pipeline; wrap torch modules; insert the field's decoder if none comes first."""
    # A decoder is an instance of `default_decoder` or of its `family`. An empty pipeline becomes the decoder and
    # ToTensor. Without `default_decoder` the operations follow a decoder.
    if not isinstance(operations, Sequence):
        raise PipelineError(f"a pipeline is a list of operations, not {operations!r}")
    copies = [_as_operation(position, operation) for position, operation in enumerate(operations)]
    if default_decoder is None:
        return copies
    family = getattr(default_decoder, "family", default_decoder)
    for position, operation in enumerate(copies[1:], start=1):
        if isinstance(operation, family):
            raise PipelineError(
                f"operation {position} of the pipeline is the decoder {operation!r}; a decoder has to come first"
            )
    if not copies:
        return [default_decoder(), ToTensor()]
    return copies if isinstance(copies[0], family) else [default_decoder(), *copies]


def _as_operation(position: int, operation: Any) -> Operation:
    if isinstance(operation, Operation):
        p = vars(operation).get("p", 0)
        if not isinstance(operation, RandomChoice) and type(operation).__module__.startswith("gpubeton."):
            # It may have been set after the operation was made.
            check_probability(f"{type(operation).__name__}: p", p)
        copied = copy.copy(operation)
        copied.copy_of = operation if operation.copy_of is None else operation.copy_of
        copied.generation = Compiler.generation
        return copied
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(operation, torch.nn.Module):
        wrapper = ModuleWrapper(operation)
        wrapper.copy_of = operation
        wrapper.advice = _replacement(operation, type(operation))
        return wrapper
    kind = operation if isinstance(operation, type) else type(operation)
    origin = "" if kind is operation or kind.__module__ in {"builtins", "numpy"} else f", of {kind.__module__}"
    raise PipelineError(
        f"operation {position} of the pipeline is {operation!r}{origin}; expected an Operation or a torch.nn.Module."
        f"{_replacement(operation, kind)}"
    )


def _replacement(operation: Any, kind: type) -> str:
    """Name what to write instead of an object that is no operation."""
    name = kind.__name__
    per_sample = "PerSample(function), of gpubeton.transforms, calls function(image, generator) for one image at a time"
    has_namesake = name in transforms.__all__ and kind is not getattr(transforms, name)
    if isinstance(operation, type) and not has_namesake:
        return f" Write {name}(...), with brackets."
    if has_namesake:
        return f" There is one for whole batches: gpubeton.transforms.{name}. Else {per_sample}."
    if name == "Compose":
        return f" Write its operations as a list, as gpubeton has them. Else {per_sample}."
    return f" {per_sample}." if callable(operation) else ""


class BranchPoint(Transform):
    """Keeps the batch here, for the outputs that continue from the operation before it."""

    takes_ragged: ClassVar[bool] = True
    needs_declared_device: ClassVar[bool] = True
    moves: ClassVar[Moves] = Moves.NOTHING

    def __init__(self, operation: Any) -> None:
        self.copy_of = operation

    def declare_state_and_memory(self, previous_state: State) -> tuple[State, Memory]:
        return previous_state, None

    def apply(self, batch: Any, draw: NDArray[Any] | None = None) -> Any:
        return batch
