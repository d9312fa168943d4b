"""Compile the users' pipelines into outputs: which exist, which of them depend on each other, and what each does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from gpubeton._engine.outputs import (
    BranchOutput,
    DrawnOutput,
    ImageOutput,
    PipelineOutput,
    RowOutput,
    choices_of_pass,
    choices_of_tail,
)
from gpubeton._engine.run_batch_ops import UserDecoder, brings_own_code, read_region
from gpubeton._engine.sources import Source
from gpubeton._plan.batch_ops import BatchOp, compile_batch_ops, declare
from gpubeton._plan.draw_rows import filling_crops
from gpubeton._plan.fusion import compile_image_program
from gpubeton._plan.order import IdRange, rows_of
from gpubeton._plan.program import image_state, moves_of, placements_by
from gpubeton._plan.snapshot import BranchPoint, snapshot
from gpubeton.errors import NoSuchFieldError, PipelineError
from gpubeton.fields.base import RowDecoder
from gpubeton.fields.image_decoders import FollowImage, ImageDecoder
from gpubeton.pipeline.compiler import Compiler
from gpubeton.pipeline.draw_ids import sample_ids
from gpubeton.pipeline.operation import Operation, operation_name
from gpubeton.pipeline.pipeline_spec import DrawnParameters, PipelineSpec
from gpubeton.pipeline.state import State
from gpubeton.transforms.ops import ToDevice, moves_to
from gpubeton.transforms.placements import AxesPlacement, FollowingTransform

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from gpubeton._plan.batch_ops import BatchOps
    from gpubeton._plan.program import GeometrySource
    from gpubeton.fields.base import Field
    from gpubeton.format.entry_points import EntryPoints
    from gpubeton.format.index import Index
    from gpubeton.transforms.placements import Placement

Pipeline = Sequence[Any] | PipelineSpec | DrawnParameters | None

Output = PipelineOutput | DrawnOutput


class GpuTarget(NamedTuple):
    """The GPU that makes a loader's images."""

    device: str  # e.g. "cuda:0"
    takes_everything: bool  # every tensor is left there; otherwise those of pipelines with its ``ToDevice``
    decodes: bool = True  # False if images are only moved there

    def takes(self, operations: Sequence[Operation]) -> bool:
        """Tell whether the images of a pipeline are made there."""
        import torch

        if not self.decodes:
            return False
        device = torch.device(self.device)
        moves = [operation for operation in operations if isinstance(operation, ToDevice)]
        return self.takes_everything or any(moves_to(move, device) for move in moves)


def compile_outputs(
    index: Index,
    fields: Mapping[str, Field],  # in the order of the file
    pipelines: Mapping[str, Pipeline],
    indices: NDArray[np.uint64] | IdRange,  # (N,) the samples that may be requested
    gpu: GpuTarget | None = None,
    entry_points: Mapping[str, EntryPoints] | None = None,  # of fields of images
) -> tuple[Output, ...]:
    """Compile every output of a batch: fields in the order of the file, then the other names of `pipelines`."""
    # A field without a pipeline gets its decoder and ToTensor; None leaves it out.
    _check_names(index, pipelines)
    names = [name for name in dict.fromkeys([*fields, *pipelines]) if pipelines.get(name, ()) is not None]
    drawn = {name: spec for name in names if isinstance(spec := pipelines.get(name), DrawnParameters)}
    # Random parameters are read and change nothing: the other outputs are compiled as if these were not there.
    specs = {name: _spec(name, pipelines.get(name, ())) for name in names if name not in drawn}
    # The number keeps random numbers apart: two outputs of one field, as in contrastive learning, differ.
    named = (name for name in dict.fromkeys([*fields, *pipelines]) if name not in drawn)
    numbers, points = {name: number for number, name in enumerate(named)}, entry_points or {}
    find = lambda field: Source.of(index, field, fields[field], points.get(field))  # noqa: E731
    compiler = _Compiler(find, specs, numbers, indices, gpu)
    outputs, left_on = compiler.compile(), compiler.left_on
    _connect_followers(outputs)
    by_name = {**outputs, **{name: _drawn_output(name, spec, outputs, left_on) for name, spec in drawn.items()}}
    return tuple(by_name[name] for name in names)


def compile_images(source: Source, pipeline: Pipeline, number: int, gpu: GpuTarget | None) -> ImageOutput:
    """Compile one output of images that are in no file; its draws are those of field `number` of one."""
    specs = {source.name: _spec(source.name, pipeline)}
    output = _Compiler(lambda _: source, specs, {source.name: number}, IdRange(1), gpu).compile()[source.name]
    if not isinstance(output, ImageOutput):
        raise PipelineError(f"{output.operation!r} decodes no images here; expected a decoder of the library")
    return output


def _check_names(index: Index, pipelines: Mapping[str, Any]) -> None:
    fields = ", ".join(map(repr, index.names))
    for name, pipeline in pipelines.items():
        if isinstance(pipeline, DrawnParameters):
            if name in index.names:
                raise PipelineError(
                    f"{name!r} is a field; DrawnParameters needs another name, e.g. {name + '_drawn'!r}"
                )
        elif isinstance(pipeline, PipelineSpec):
            if isinstance(pipeline.source, str) and pipeline.source not in index.names:
                raise NoSuchFieldError(
                    f"{index.title}: the pipeline {name!r} reads {pipeline.source!r}, but the file has {fields}"
                )
        elif name not in index.names:
            in_place = any(file.is_container for file in index.files) and name == "label"
            no_labels = "A folder of images has labels if each class has its folder. " * in_place
            if in_place and index.files[0].path.endswith(".tar"):
                no_labels = (
                    "Labels of a tar file are in KEY.cls beside KEY.jpg; others: gpubeton index --label json:KEY. "
                )
            raise NoSuchFieldError(
                f"{index.title}: a pipeline for {name!r}, but the file has the fields {fields}. {no_labels}"
                "For another output of one of them, use PipelineSpec(field, transforms=[...])."
            )
        elif pipeline is not None and (isinstance(pipeline, str) or not isinstance(pipeline, Sequence)):
            raise PipelineError(
                f"the pipeline of {name!r} is {pipeline!r}; expected a list of operations, a PipelineSpec or None"
            )


def _spec(name: str, pipeline: Any) -> PipelineSpec:
    return pipeline if isinstance(pipeline, PipelineSpec) else PipelineSpec(name, transforms=pipeline)


def find_parents(specs: Mapping[str, PipelineSpec]) -> dict[str, str]:
    """Find, for each output whose source is an operation, the output whose pipeline contains that operation."""
    parents = {}
    for name, spec in specs.items():
        if isinstance(spec.source, str):
            continue
        operation = operation_name(spec.source)
        if spec.decoder is not None:
            raise PipelineError(
                f"output {name!r} continues from {operation}, where images are decoded already, but has a decoder, too"
            )
        containing = [
            other
            for other, pipeline in specs.items()
            for candidate in (pipeline.decoder, *(pipeline.transforms or ()))
            if candidate is spec.source
        ]
        if len(containing) != 1:
            where = f"is in {', '.join(map(repr, containing))}" if containing else "is in no pipeline"
            raise PipelineError(
                f"output {name!r} continues from {operation}, which {where}; expected the very object that is once "
                f"in the pipeline of another output"
            )
        parents[name] = containing[0]
    return parents


def find_geometry_sources(specs: Mapping[str, PipelineSpec]) -> dict[str, str]:
    """Find, for each output with a `FollowImage`, the output that it follows."""
    sources = {}
    for name, spec in specs.items():
        operations = [*([] if spec.decoder is None else [spec.decoder]), *(spec.transforms or ())]
        for position, operation in enumerate(operations):
            if not isinstance(operation, FollowImage):
                continue
            if position > 0 or not isinstance(spec.source, str):
                raise PipelineError(f"output {name!r}: {operation!r} is a decoder, and has to come first")
            if operation.image not in specs or operation.image == name:
                others = ", ".join(repr(other) for other in specs if other != name)
                raise PipelineError(
                    f"output {name!r}: {operation!r} follows another output of the batch; there are {others or 'none'}"
                )
            sources[name] = operation.image
    return sources


def dependencies_first(names: Sequence[str], needed: Mapping[str, str]) -> list[str]:
    """Sort outputs so that each comes after the one that it needs."""
    in_order: list[str] = []
    for name in names:
        chain = [name]
        while chain[-1] in needed:
            chain.append(needed[chain[-1]])
            if chain[-1] in chain[:-1]:
                raise PipelineError(
                    f"outputs continue from each other, or follow each other, in a circle: "
                    f"{', '.join(map(repr, chain))}"
                )
        in_order.extend(link for link in reversed(chain) if link not in in_order)
    return in_order


class _Compiler:
    """Compiles the outputs that have a pipeline, dependencies first."""

    def __init__(
        self,
        find_source: Callable[[str], Source],  # of a field
        specs: Mapping[str, PipelineSpec],
        numbers: Mapping[str, int],
        indices: NDArray[np.uint64] | IdRange,
        gpu: GpuTarget | None,
    ) -> None:
        self.find_source, self.specs, self.numbers = find_source, specs, numbers
        self.indices, self.gpu = indices, gpu
        self.left_on = gpu.device if gpu is not None and gpu.takes_everything else None
        self.sources: dict[str, Source] = {}
        self.outputs: dict[str, PipelineOutput] = {}
        self.parents = find_parents(specs)
        self.geometry_sources = find_geometry_sources(specs)
        self.branching = [spec.source for spec in specs.values() if not isinstance(spec.source, str)]

    def compile(self) -> dict[str, PipelineOutput]:
        """Compile all outputs."""
        # Not the order of making them: a mask draws for itself, but must know its image's program.
        for name in dependencies_first(
            dependencies_first(list(self.specs), self.parents), {**self.parents, **self.geometry_sources}
        ):
            source = self.specs[name].source
            self.outputs[name] = self._field_output(name, source) if isinstance(source, str) else self._branch(name)
        return self.outputs

    def _field_output(self, name: str, field: str) -> PipelineOutput:
        if field not in self.sources:
            self.sources[field] = self.find_source(field)
        source = self.sources[field]
        operations = self._with_branch_points(_field_operations(name, self.specs[name], source))
        if isinstance(operations[0], ImageDecoder) and not brings_own_code(operations[0]):
            return self._image_output(name, source, operations)
        return self._row_output(name, source, operations)

    def _image_output(self, name: str, source: Source, operations: list[Operation]) -> ImageOutput:
        if source.column.dtype.names is None or not {"mode", "width", "height"} <= set(source.column.dtype.names):
            raise PipelineError(f"field {name!r}: {operations[0]!r} decodes images, but {source.name!r} has none")
        if len(source.regions) != 1:
            raise PipelineError(
                f"field {name!r}: {operations[0]!r} decodes the image in a sample's region, but each has "
                f"{len(source.regions)} regions"
            )
        # Side by side: numpy copies whole rows of such a struct ten times as slowly.
        chosen = rows_of(self.indices) if len(self.indices) else slice(None)
        heights, widths = source.column["height"][chosen], source.column["width"][chosen]
        # A GPU decodes images of FFCV's fields only: those of fields with kinds are made on the CPU, and moved.
        is_for_gpus = getattr(source.field, "kind", None) is None
        device = self.gpu.device if self.gpu is not None and is_for_gpus and self.gpu.takes(operations) else "cpu"
        followed = self._geometry_source(self.geometry_sources[name]) if name in self.geometry_sources else None
        number = self.numbers[name]
        program = compile_image_program(name, number, operations, heights, widths, device, followed, self.left_on)
        return ImageOutput(name, source, program)

    def _geometry_source(self, name: str) -> GeometrySource:
        """Collect what moves the pixels of an output that another one follows."""
        root, steps = ops_since_decoder(self.outputs[name], self.outputs)
        if not isinstance(root, ImageOutput):
            raise _no_images(f"FollowImage({name!r})", name, self.outputs)
        column = root.source.column
        return root.program.geometry_source(name, steps, column["height"], column["width"])

    def _row_output(self, name: str, source: Source, operations: list[Operation]) -> RowOutput:
        import torch

        operation, *rest = operations
        if hasattr(operation, "accept_extent"):
            operation.accept_extent(source.max_size)
        state = State(jit_mode=True, device=torch.device("cpu"), shape=(), dtype=np.dtype("u1"))
        decoder: RowDecoder | UserDecoder
        try:
            if brings_own_code(operation):
                decoder = UserDecoder(operation, state)
                state = decoder.state
            else:
                state, _ = declare(operation, state)
                decoder = cast("RowDecoder", operation)
            ordinal = 1 if getattr(operation, "is_random", False) else 0
            number = self.numbers[name]
            ops = compile_batch_ops(rest, state, field_number=number, ordinal=ordinal, left_on=self.left_on)
        except PipelineError as error:
            raise PipelineError(f"field {name!r}: {error}") from error
        return RowOutput(name, source, operation, decoder, ops)

    def _branch(self, name: str) -> BranchOutput:
        spec, parent = self.specs[name], self.outputs[self.parents[name]]
        (state,) = (step.before for step in ops_of(parent).steps if _is_branch_point(step, spec.source))
        try:
            operations = _bind_to_field(snapshot(spec.transforms or ()), parent.source)
            ops = compile_batch_ops(
                self._with_branch_points(operations), state, field_number=self.numbers[name], left_on=self.left_on
            )
        except PipelineError as error:
            raise PipelineError(f"output {name!r}: {error}") from error
        making_order = dependencies_first(list(self.specs), self.parents)
        later = making_order[making_order.index(name) + 1 :]
        is_last = all(self.specs[other].source is not spec.source for other in later)
        return BranchOutput(name, parent.source, parent.name, spec.source, is_last, ops)

    def _with_branch_points(self, operations: Sequence[Operation]) -> list[Operation]:
        """Insert a `BranchPoint` after each operation from which another output continues."""
        marked = []
        for operation in operations:
            marked.append(operation)
            if any(operation.copy_of is source for source in self.branching):
                marked.append(BranchPoint(operation.copy_of))
        return marked


def _field_operations(name: str, spec: PipelineSpec, source: Source) -> list[Operation]:
    """Copy the operations of a pipeline, decoder first, and introduce them to their field."""
    try:
        if spec.decoder is None:
            operations = snapshot(spec.transforms or (), source.field.get_decoder_class())
        else:
            # An explicit decoder may be any decoder, not only one of the field's own kind.
            operations = snapshot([spec.decoder, *(spec.transforms or ())])
        if spec.decoder is None and len(operations) > 1:
            _refuse_other_decoder(operations, source)
    except TypeError as error:  # a PipelineError, or from a decoder that needs arguments
        raise PipelineError(f"field {name!r}: {error}") from error
    return _bind_to_field(operations, source)


def _refuse_other_decoder(operations: Sequence[Operation], source: Source) -> None:
    """Refuse a decoder of fields of another kind, before which the field's own was inserted."""
    inserted, first = operations[:2]
    if isinstance(first, (RowDecoder, ImageDecoder)) and inserted.copy_of is None:
        expected = type(inserted).__name__
        raise PipelineError(
            f"{first!r} does not decode values of {type(source.field).__name__}; expected {expected} or another "
            f"decoder of such fields, or none, which means {expected}"
        )


def _bind_to_field(operations: list[Operation], source: Source) -> list[Operation]:
    for operation in operations:
        operation.accept_field(source.field)
        operation.accept_globals(source.column, Compiler.compile(read_region))
    return operations


def ops_of(output: PipelineOutput) -> BatchOps:
    """Return the operations on batches of an output."""
    return output.program.ops if isinstance(output, ImageOutput) else output.ops


def _is_branch_point(step: BatchOp, operation: Any) -> bool:
    return isinstance(step.operation, BranchPoint) and step.operation.copy_of is operation


def ops_since_decoder(
    output: PipelineOutput, outputs: Mapping[str, PipelineOutput]
) -> tuple[ImageOutput | RowOutput, list[BatchOp]]:
    """Find the output with the decoder that an output begins with, and all operations on whole batches since then."""
    if not isinstance(output, BranchOutput):
        return output, list(ops_of(output).steps)
    root, steps = ops_since_decoder(outputs[output.parent], outputs)
    shared = takewhile(lambda step: not _is_branch_point(step, output.operation), steps)
    return root, [*shared, *output.ops.steps]


def _no_images(what: str, name: str, outputs: Mapping[str, PipelineOutput]) -> PipelineError:
    images = [
        repr(other)
        for other, output in outputs.items()
        if isinstance(ops_since_decoder(output, outputs)[0], ImageOutput)
    ]
    return PipelineError(
        f"{what}, but {name!r} is no output with decoded images; there are {', '.join(images) or 'none'}."
    )


@dataclass(frozen=True, eq=False)
class ImagePlacements:
    """Gives the positions of an output's images to the boxes or points that follow it."""

    output: ImageOutput  # the output, or the one that it continues from
    moves: tuple[BatchOp, ...] = ()  # steps of the pass and operations after it that move its pixels

    def __call__(self, seed: int, epoch: int, draw_ids: NDArray[np.uint64]) -> list[Placement]:
        """Return the placement of the crop and its folds, and then those of the moves."""
        program = self.output.program
        heights, widths = self.output.source.image_sizes(sample_ids(draw_ids))
        draws = program.draw(seed, epoch, draw_ids, heights, widths)
        size = program.height, program.width
        sizes = np.stack([heights, widths, *np.broadcast_to(np.array(size)[:, None], (2, len(draw_ids)))], axis=1)
        first = AxesPlacement(np.concatenate([filling_crops(draws, size), sizes], axis=1).astype(np.float64))
        return [first, *(part for step in self.moves for part in placements_by(step, seed, epoch, draw_ids))]


def _connect_followers(outputs: Mapping[str, PipelineOutput]) -> None:
    """Give each `TransformBoxes` and `TransformKeypoints` the positions of the images that it follows."""
    for name, output in outputs.items():
        for step in () if isinstance(output, ImageOutput) else output.ops.steps:
            if isinstance(step.operation, FollowingTransform):
                try:
                    placements = _followed(step.operation, outputs)
                except PipelineError as error:
                    raise PipelineError(f"field {name!r}: {error}") from error
                step.operation.accept_placements(placements)


def _followed(follower: FollowingTransform, outputs: Mapping[str, PipelineOutput]) -> ImagePlacements:
    name = follower.image
    root, steps = ops_since_decoder(outputs[name], outputs) if name in outputs else (None, [])
    if not isinstance(root, ImageOutput):
        raise _no_images(f"{type(follower).__name__}(image={name!r})", name, outputs)
    program = root.program
    image = image_state(program.height, program.width, "cpu", program.kind)
    in_pass = [BatchOp(operation, image, rng_stream) for operation, rng_stream in program.steps]
    return ImagePlacements(root, moves_of(follower, [*in_pass, *steps]))


def _drawn_output(
    name: str, spec: DrawnParameters, outputs: Mapping[str, PipelineOutput], left_on: str | None
) -> DrawnOutput:
    if spec.output not in outputs:
        raise PipelineError(
            f"output {name!r}: DrawnParameters({spec.output!r}), but there is no output {spec.output!r}; there are "
            f"{', '.join(map(repr, outputs)) or 'none'}"
        )
    root, steps = ops_since_decoder(outputs[spec.output], outputs)
    program = root.program if isinstance(root, ImageOutput) else None
    fused = [] if program is None else choices_of_pass(program)
    return DrawnOutput(name, root.source, spec.output, program, (*fused, *choices_of_tail(steps)), left_on)
