"""Outputs: what a batch consists of, made from the user's pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpubeton.engine.image_output import ImageOutput
from gpubeton.engine.row_output import RowOutput
from gpubeton.engine.sources import Source
from gpubeton.engine.user_decoder import read_region
from gpubeton.errors import NoSuchFieldError, PipelineError
from gpubeton.fields.base import Field
from gpubeton.fields.image_decoders import SimpleRGBImageDecoder
from gpubeton.format.index import Index
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.pipeline_spec import PipelineSpec
from gpubeton.plan.fusion import compile_image_program
from gpubeton.plan.snapshot import snapshot

Output = ImageOutput | RowOutput

Pipeline = Sequence[Any] | PipelineSpec | None


def compile_outputs(
    index: Index, fields: Mapping[str, Field], pipelines: Mapping[str, Pipeline], indices: NDArray[np.uint64]
) -> tuple[Output, ...]:
    """Prepare every output of a batch.

    Parameters
    ----------
    index : Index
        The file.
    fields : mapping of str to Field
        Its fields, in the order of the file.
    pipelines : mapping of str to sequence, PipelineSpec or None
        The user's pipelines, which stay as they are. A field without one gets its decoder and ``ToTensor``; None
        leaves the field out; a name that is no field's needs a `PipelineSpec`.
    indices : ndarray of uint64, shape (N,)
        The samples that may be asked for.

    Returns
    -------
    tuple of ImageOutput and RowOutput
        Fields in the order of the file, then the other names in the order of `pipelines`.

    Raises
    ------
    NoSuchFieldError
        If a pipeline belongs to no field.
    PipelineError
        If a pipeline cannot be planned.
    """
    _check_names(index, pipelines)
    names = [*fields, *(name for name in pipelines if name not in fields)]
    sources: dict[str, Source] = {}
    outputs: list[Output] = []
    # The number keeps random numbers apart: two outputs of one field, as in contrastive learning, differ.
    for number, name in enumerate(names):
        pipeline = pipelines.get(name, ())
        if pipeline is None:
            continue
        spec = pipeline if isinstance(pipeline, PipelineSpec) else PipelineSpec(name, transforms=pipeline)
        source = sources.get(spec.source) or Source.of(index, spec.source, fields[spec.source])
        sources[spec.source] = source
        outputs.append(_compile_output(name, number, source, _operations(name, spec, source), indices))
    return tuple(outputs)


def _check_names(index: Index, pipelines: Mapping[str, Any]) -> None:
    fields = ", ".join(map(repr, index.names))
    for name, pipeline in pipelines.items():
        if isinstance(pipeline, PipelineSpec):
            if pipeline.source not in index.names:
                raise NoSuchFieldError(
                    f"{index.path}: the pipeline {name!r} reads {pipeline.source!r}, but the file has {fields}"
                )
        elif name not in index.names:
            raise NoSuchFieldError(
                f"{index.path}: a pipeline for {name!r}, but the file has the fields {fields}. "
                "For another output of one of them, use PipelineSpec(field, transforms=[...])."
            )
        elif pipeline is not None and (isinstance(pipeline, str) or not isinstance(pipeline, Sequence)):
            raise PipelineError(
                f"the pipeline of {name!r} is {pipeline!r}; expected a list of operations, a PipelineSpec or None"
            )


def _operations(name: str, spec: PipelineSpec, source: Source) -> list[Operation]:
    """Copies of the operations of a pipeline, decoder first, that know their field."""
    try:
        if spec.decoder is None:
            operations = snapshot(spec.transforms or (), source.field.get_decoder_class())
        else:
            # Whoever names a decoder may name any, not only one of the field's own kind.
            operations = snapshot([spec.decoder, *(spec.transforms or ())])
    except TypeError as error:  # a PipelineError, or of a decoder that cannot be made without arguments
        raise PipelineError(f"field {name!r}: {error}") from error
    for operation in operations:
        operation.accept_field(source.field)
        operation.accept_globals(source.column, Compiler.compile(read_region))
    return operations


def _compile_output(
    name: str, number: int, source: Source, operations: list[Operation], indices: NDArray[np.uint64]
) -> Output:
    if not isinstance(operations[0], SimpleRGBImageDecoder):
        return RowOutput.compile(name, number, source, operations)
    if source.column.dtype.names is None or not {"mode", "width", "height"} <= set(source.column.dtype.names):
        raise PipelineError(f"field {name!r}: {operations[0]!r} decodes images, but {source.name!r} has none")
    if len(source.regions) != 1:
        raise PipelineError(
            f"field {name!r}: {operations[0]!r} decodes the image in a sample's region, but each has "
            f"{len(source.regions)} regions"
        )
    # Field by field: numpy copies whole rows of such a struct ten times as slowly.
    chosen = indices if len(indices) else slice(None)
    heights, widths = source.column["height"][chosen], source.column["width"][chosen]
    return ImageOutput(name, source, compile_image_program(name, number, operations, heights, widths))
