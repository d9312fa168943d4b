"""Outputs: what a batch consists of, made from the user's pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gpubeton.engine.branch_output import BranchOutput
from gpubeton.engine.branches import find_parents, parents_first, with_branch_points
from gpubeton.engine.drawn_output import DrawnOutput
from gpubeton.engine.followers import find_leaders, leader_output
from gpubeton.engine.image_output import ImageOutput
from gpubeton.engine.placements import connect_boxes
from gpubeton.engine.row_output import RowOutput
from gpubeton.engine.sources import Source
from gpubeton.engine.user_code import brings_own_code, read_region
from gpubeton.errors import NoSuchFieldError, PipelineError
from gpubeton.fields.base import RowDecoder
from gpubeton.fields.image_decoders import SimpleRGBImageDecoder
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec
from gpubeton.plan.fusion import compile_image_program
from gpubeton.plan.snapshot import snapshot
from gpubeton.transforms.ops import ToDevice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpubeton.fields.base import Field
    from gpubeton.format.index import Index
    from gpubeton.pipeline.operation import Operation
    from gpubeton.plan.leader import Leader

_Made = ImageOutput | RowOutput | BranchOutput
Output = _Made | DrawnOutput


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


Pipeline = Sequence[Any] | PipelineSpec | DrawnParameters | None


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
        The file, or several as one.
    fields : mapping of str to Field
        Its fields, in the order of the file.
    pipelines : mapping of str to sequence, PipelineSpec, DrawnParameters or None
        The user's pipelines, which stay as they are. A field without one gets its decoder and ``ToTensor``; None
        leaves the field out; a name that is no field's needs a `PipelineSpec` or `DrawnParameters`.
    indices : ndarray of uint64, shape (N,)
        The samples that may be asked for.
    gpu : GpuTarget, optional
        The GPU that makes images.

    Returns
    -------
    tuple of Output
        Fields in the order of the file, then the other names in the order of `pipelines`.

    Raises
    ------
    NoSuchFieldError
        If a pipeline belongs to no field.
    PipelineError
        If a pipeline cannot be planned.
    """
    _check_names(index, pipelines)
    wishes = {name: wish for name, wish in pipelines.items() if isinstance(wish, DrawnParameters)}
    in_order = [name for name in dict.fromkeys([*fields, *pipelines]) if pipelines.get(name, ()) is not None]
    # What only tells of others has no part in what follows, so that nothing else changes with it.
    others = {name: pipeline for name, pipeline in pipelines.items() if not isinstance(pipeline, DrawnParameters)}
    specs = _specs(fields, others)
    parents = find_parents(specs)
    leaders = find_leaders(specs)
    # Made in one order, and compiled in another: a follower draws for itself, but has to know its leader's program.
    making_order = parents_first(list(specs), parents)
    # The number keeps random numbers apart: two outputs of one field, as in contrastive learning, differ.
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*fields, *others]))}
    sources: dict[str, Source] = {}
    outputs: dict[str, _Made] = {}
    for name in parents_first(making_order, {**parents, **leaders}):
        spec, number = specs[name], numbers[name]
        if isinstance(spec.source, str):
            source = sources.get(spec.source) or Source.of(index, spec.source, fields[spec.source])
            sources[spec.source] = source
            operations = _with_branches(_operations(name, spec, source), specs)
            leader = leader_output(leaders[name], outputs) if name in leaders else None
            outputs[name] = _compile_output(name, number, source, operations, indices, gpu, leader)
        else:
            is_last = all(
                specs[later].source is not spec.source for later in making_order[making_order.index(name) + 1 :]
            )
            outputs[name] = _compile_branch(name, number, spec, outputs[parents[name]], specs, gpu, is_last=is_last)
    connect_boxes(outputs)
    left_on = gpu.device if gpu is not None and gpu.takes_everything else None
    drawn = {name: DrawnOutput.compile(name, wish, outputs, left_on) for name, wish in wishes.items()}
    return tuple({**outputs, **drawn}[name] for name in in_order)


def _specs(
    fields: Mapping[str, Field], pipelines: Mapping[str, Sequence[Any] | PipelineSpec | None]
) -> dict[str, PipelineSpec]:
    """The pipelines of all outputs, in the order in which a batch has them."""
    specs = {}
    for name in dict.fromkeys([*fields, *pipelines]):
        pipeline = pipelines.get(name, ())
        if pipeline is not None:
            specs[name] = pipeline if isinstance(pipeline, PipelineSpec) else PipelineSpec(name, transforms=pipeline)
    return specs


def _check_names(index: Index, pipelines: Mapping[str, Any]) -> None:
    fields = ", ".join(map(repr, index.names))
    for name, pipeline in pipelines.items():
        if isinstance(pipeline, DrawnParameters):
            if name in index.names:
                raise PipelineError(f"{name!r} is a field; what is drawn needs a name of its own: {name + '_drawn'!r}")
        elif isinstance(pipeline, PipelineSpec):
            if isinstance(pipeline.source, str) and pipeline.source not in index.names:
                raise NoSuchFieldError(
                    f"{index.title}: the pipeline {name!r} reads {pipeline.source!r}, but the file has {fields}"
                )
        elif name not in index.names:
            raise NoSuchFieldError(
                f"{index.title}: a pipeline for {name!r}, but the file has the fields {fields}. "
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
        if spec.decoder is None and len(operations) > 1:
            _refuse_others_decoder(operations, source)
    except TypeError as error:  # a PipelineError, or of a decoder that cannot be made without arguments
        raise PipelineError(f"field {name!r}: {error}") from error
    return _introduced(operations, source)


def _refuse_others_decoder(operations: Sequence[Operation], source: Source) -> None:
    """Refuse a decoder of fields of another kind, in front of which the field's own was put."""
    stands, first = operations[:2]
    if isinstance(first, (RowDecoder, SimpleRGBImageDecoder)) and stands.copy_of is None:
        raise PipelineError(
            f"{first!r} does not decode what is stored by {type(source.field).__name__}; expected "
            f"{type(stands).__name__} or another decoder of such fields, or none, which means {type(stands).__name__}"
        )


def _introduced(operations: list[Operation], source: Source) -> list[Operation]:
    """The same operations, which now know the field."""
    for operation in operations:
        operation.accept_field(source.field)
        operation.accept_globals(source.column, Compiler.compile(read_region))
    return operations


def _with_branches(operations: Sequence[Operation], specs: Mapping[str, PipelineSpec]) -> list[Operation]:
    return with_branch_points(operations, [spec.source for spec in specs.values() if not isinstance(spec.source, str)])


def _compile_branch(
    name: str,
    number: int,
    spec: PipelineSpec,
    parent: _Made,
    specs: Mapping[str, PipelineSpec],
    gpu: GpuTarget | None,
    *,
    is_last: bool,
) -> BranchOutput:
    try:
        operations = snapshot(spec.transforms or ())
    except PipelineError as error:
        raise PipelineError(f"output {name!r}: {error}") from error
    return BranchOutput.compile(
        name,
        number,
        parent.name,
        (parent.source, parent.program.tail if isinstance(parent, ImageOutput) else parent.tail),
        spec.source,
        _with_branches(_introduced(operations, parent.source), specs),
        is_last=is_last,
        left_on=gpu.device if gpu is not None and gpu.takes_everything else None,
    )


def _compile_output(
    name: str,
    number: int,
    source: Source,
    operations: list[Operation],
    indices: NDArray[np.uint64],
    gpu: GpuTarget | None,
    leader: Leader | None,
) -> _Made:
    if not isinstance(operations[0], SimpleRGBImageDecoder) or brings_own_code(operations[0]):
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
    # A GPU decodes what FFCV's fields hold: images of fields that have kinds are made on the CPU, and moved.
    is_for_gpus = getattr(source.field, "kind", None) is None
    device = gpu.device if gpu is not None and is_for_gpus and gpu.takes(operations) else "cpu"
    left_on = gpu.device if gpu is not None and gpu.takes_everything else None
    program = compile_image_program(name, number, operations, heights, widths, device, leader, left_on)
    return ImageOutput(name, source, program)
