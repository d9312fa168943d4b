"""Snapshot: a user's pipeline, checked, completed and copied, so that planning never touches the original."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

from gpubeton.errors import PipelineError
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.validation import check_probability
from gpubeton.transforms.module import ModuleWrapper
from gpubeton.transforms.ops import ToTensor


def snapshot(operations: Sequence[Any], default_decoder: type[Operation] | None = None) -> list[Operation]:
    """Copy the operations of a pipeline; wrap torch modules; put the field's own decoder first where none stands.

    Parameters
    ----------
    operations : sequence of Operation or torch.nn.Module
        The pipeline as the user wrote it. It and what it holds stay as they are.
    default_decoder : type of Operation, optional
        The field's decoder class. Any of its instances, or of its `family`, may stand first instead; an empty pipeline
        becomes this decoder and ``ToTensor``. None for the part of a pipeline that follows the decoder.

    Returns
    -------
    list of Operation
        Shallow copies, decoder first.

    Raises
    ------
    PipelineError
        If something is not an operation, or a decoder does not stand first.
    OptionError
        If a probability was set to something else.

    Examples
    --------
    >>> from gpubeton.fields.image_decoders import SimpleRGBImageDecoder
    >>> snapshot([], SimpleRGBImageDecoder)
    [SimpleRGBImageDecoder(), ToTensor()]
    """
    if not isinstance(operations, Sequence):
        raise PipelineError(f"a pipeline is a list of operations, not {operations!r}")
    copies = [_as_operation(position, operation) for position, operation in enumerate(operations)]
    if default_decoder is None:
        return copies
    family = getattr(default_decoder, "family", default_decoder)
    for position, operation in enumerate(copies[1:], start=1):
        if isinstance(operation, family):
            raise PipelineError(
                f"operation {position} of the pipeline is the decoder {operation!r}; a decoder has to stand first"
            )
    if not copies:
        return [default_decoder(), ToTensor()]
    return copies if isinstance(copies[0], family) else [default_decoder(), *copies]


def _as_operation(position: int, operation: Any) -> Operation:
    if isinstance(operation, Operation):
        if "p" in vars(operation) and type(operation).__module__.startswith("gpubeton."):
            # It may have been set after the operation was made.
            check_probability(f"{type(operation).__name__}: p", vars(operation)["p"])
        copied = copy.copy(operation)
        copied.copy_of = operation if operation.copy_of is None else operation.copy_of
        copied.generation = Compiler.generation
        return copied
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(operation, torch.nn.Module):
        wrapper = ModuleWrapper(operation)
        wrapper.copy_of = operation
        return wrapper
    hint = f" Write {operation.__name__}(...), with brackets." if isinstance(operation, type) else ""
    raise PipelineError(
        f"operation {position} of the pipeline is {operation!r}; expected an Operation or a torch.nn.Module.{hint}"
    )
