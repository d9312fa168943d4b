"""Outputs: what a batch consists of, made from the user's pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

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
from gpubeton.pipeline.dtypes import is_torch_dtype
from gpubeton.pipeline.operation import Operation
from gpubeton.pipeline.pipeline_spec import PipelineSpec
from gpubeton.plan.fusion import compile_image_program
from gpubeton.plan.snapshot import snapshot
from gpubeton.transforms.ops import ToDevice

Output = ImageOutput | RowOutput


class GpuTarget(NamedTuple):
    """The GPU that makes a loader's images.

    Parameters
    ----------
    device : str
        E.g. "cuda:0".
    takes_everything : bool
        Whether every output that is a tensor is left there; otherwise those with a ``ToDevice`` of that GPU.
    decodes : bool
        Whether it makes images; otherwise they are only moved there.
    """

    device: str
    takes_everything: bool
    decodes: bool = True

    def takes(self, operations: Sequence[Operation]) -> bool:
        """Tell whether the images of a pipeline are made there.

        Parameters
        ----------
        operations : sequence of Operation
            The pipeline.

        Returns
        -------
        bool
            Whether they are.
        """
        import torch

        if not self.decodes:
            return False
        device = torch.device(self.device)
        wishes = [operation for operation in operations if isinstance(operation, ToDevice)]
        return self.takes_everything or any(wish.moves_to(device) for wish in wishes)


Pipeline = Sequence[Any] | PipelineSpec | None


def compile_outputs(
    index: Index,
    fields: Mapping[str, Field],
    pipelines: Mapping[str, Pipeline],
    indices: NDArray[np.uint64],
    gpu: GpuTarget | None = None,
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
    gpu : GpuTarget, optional
        The GPU that makes images.

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
        outputs.append(_compile_output(name, number, source, _operations(name, spec, source), indices, gpu))
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
    name: str,
    number: int,
    source: Source,
    operations: list[Operation],
    indices: NDArray[np.uint64],
    gpu: GpuTarget | None,
) -> Output:
    if not isinstance(operations[0], SimpleRGBImageDecoder):
        left_on = gpu.device if gpu is not None and gpu.takes_everything else None
        return RowOutput.compile(name, number, source, operations, left_on)
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
    device = gpu.device if gpu is not None and gpu.takes(operations) else "cpu"
    program = compile_image_program(name, number, operations, heights, widths, device)
    state = program.state
    if gpu is not None and gpu.takes_everything and is_torch_dtype(state.dtype) and state.device.type == "cpu":
        operations = [*operations, ToDevice(gpu.device)]
        program = compile_image_program(name, number, operations, heights, widths, device)
    return ImageOutput(name, source, program)
