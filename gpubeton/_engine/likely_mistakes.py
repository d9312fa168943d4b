"""Mistakes in pipelines that raise no error: a model would learn from wrong data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpubeton._engine.output_graph import Output, ops_of, ops_since_decoder
from gpubeton._engine.outputs import DrawnOutput, ImageOutput, RowOutput, choices_of_pass, choices_of_tail
from gpubeton._plan.batch_ops import BatchOp
from gpubeton.pipeline.operation import operation_name
from gpubeton.pipeline.pixel_type import dtype_name, is_torch_dtype
from gpubeton.transforms.mixup import Mixing
from gpubeton.transforms.module import ModuleWrapper
from gpubeton.transforms.normalize import NormalizeImage
from gpubeton.transforms.ops import Convert, ToTorchImage, View
from gpubeton.transforms.per_sample import PerSample
from gpubeton.transforms.transform import Moves, Transform

if TYPE_CHECKING:
    from gpubeton.pipeline.state import State

_Histories = Mapping[str, tuple[ImageOutput | RowOutput, Sequence[BatchOp]]]  # operations since the decoder


def likely_mistakes(outputs: Sequence[Output]) -> list[str]:
    """Describe what is probably not meant in the pipelines."""
    with_pipelines = {output.name: output for output in outputs if not isinstance(output, DrawnOutput)}
    drawn = {output.followed for output in outputs if isinstance(output, DrawnOutput)}
    histories = {name: ops_since_decoder(output, with_pipelines) for name, output in with_pipelines.items()}
    mistakes = [_unfollowed_moves(histories), _unequal_mixes(histories, drawn)]
    for name, output in with_pipelines.items():
        root, steps = histories[name]
        mistakes += [_misread_halves(name, root, steps, ops_of(output).state), _common_draws(name, steps)]
        mistakes += [_misread_levels(name, root, steps), _misread_layout(name, steps)]
    return [mistake for mistake in mistakes if mistake is not None]


def _random_operations(root: ImageOutput | RowOutput, steps: Sequence[BatchOp]) -> list[Transform]:
    """List the random operations of the one pass over images, and those after it."""
    in_pass = choices_of_pass(root.program) if isinstance(root, ImageOutput) else []
    return [operation for operation, _, _ in (*in_pass, *choices_of_tail(steps))]


def _unfollowed_moves(histories: _Histories) -> str | None:
    """Describe masks that do not follow the random crops and flips of their image, if there are any."""
    images = {name: (root, steps) for name, (root, steps) in histories.items() if isinstance(root, ImageOutput)}
    links = [(name, root.program.followed.name) for name, (root, _) in images.items() if root.program.followed]
    linked = {images[name][0].source.name for link in links for name in link}  # fields: their outputs are views
    gray = {root.source.name for root, _ in images.values() if root.program.kind.channels == 1}
    moving: dict[str, str] = {}  # an output that follows none, by its field
    still: dict[str, str] = {}  # the same, of gray images that do not move
    for name, (root, steps) in images.items():
        program, operations = root.program, _random_operations(root, steps)
        moves = [operation.moves in (Moves.ALONG_AXES, Moves.FREELY) for operation in operations]
        if program.followed is None and (program.rng_stream is not None or any(moves)):
            moving.setdefault(root.source.name, name)
        elif program.followed is None and root.source.name in gray:
            still.setdefault(root.source.name, name)
    field = min(moving, key=lambda field: (field not in linked, field in gray), default="")
    masks = [name for other, name in {**still, **moving}.items() if other != field and other not in linked]
    if not moving or not masks:
        return None
    return (
        f"the images of {moving[field]!r} are cropped, flipped or moved at random, but those of "
        f"{', '.join(map(repr, masks))} do not follow them. A mask, or whatever has to fit pixel by pixel, needs "
        f"FollowImage({moving[field]!r}) as its decoder. If they are independent images: "
        "warnings.filterwarnings('ignore', '.* do not follow them')"
    )


def _unequal_mixes(histories: _Histories, drawn: set[str]) -> str | None:
    """Describe labels that are not mixed as images are, if there are any; a loop may mix by what it has `drawn`."""
    fields = {name: root.source.name for name, (root, _) in histories.items()}
    images = {name for name, (root, _) in histories.items() if isinstance(root, ImageOutput)}
    mixes = [
        (name, operation)
        for name, (root, steps) in histories.items()
        for operation in _random_operations(root, steps)
        if isinstance(operation, Mixing)
    ]
    for name, mix in mixes:
        has_partner = any(other.mixing == mix.mixing and fields[place] != fields[name] for place, other in mixes)
        others = [place for place in histories if (place in images) != (name in images)]
        if has_partner or not others or name in drawn:
            continue
        listed = [f"{place!r} has {other!r}" for place, other in mixes if place in others]
        listed = listed or [f"{place!r} has none" for place in others]
        return (
            f"the pipeline of {name!r} has {mix!r}, but {', '.join(listed)}: labels would not fit the images. Both "
            "need the same mixing, with the same arguments. If this is meant: "
            "warnings.filterwarnings('ignore', '.* would not fit the images')"
        )
    return None


def _common_draws(name: str, steps: Sequence[BatchOp]) -> str | None:
    """Describe torchvision's transforms that change all images of a batch alike, if there are any."""
    modules = [step.operation for step in steps if isinstance(step.operation, ModuleWrapper)]
    parts = [part for module in modules for part in module.random_parts]
    if not parts:
        return None
    return (
        f"{', '.join(parts)} of torchvision, in the pipeline of {name!r}, draws once for a batch: all of its images "
        f"change alike.{''.join(module.advice for module in modules)} If this is meant: "
        "warnings.filterwarnings('ignore', '.* draws once for a batch')"
    )


def _misread_levels(name: str, root: ImageOutput | RowOutput, steps: Sequence[BatchOp]) -> str | None:
    """Describe torchvision's Normalize for numbers from 0 to 1 where they are others, if there is one."""
    if not isinstance(root, ImageOutput):
        return None
    program, what = root.program, "levels from 0 to 255"
    if program.table is not None or any(isinstance(step.operation, NormalizeImage) for step in steps):
        what = "normalized already"
        if program.mean_std is None or max(program.mean_std[1]) >= 100:  # by other operations, or from 0 to about 1
            return None
    for step in steps:
        operation = step.operation
        for kind, part in operation.parts if isinstance(operation, ModuleWrapper) else ():
            if kind == "Normalize" and max(map(float, getattr(part, "std", (1,)))) < 1:
                return (
                    f"torchvision's Normalize in the pipeline of {name!r} has mean and std for numbers from 0 to 1, "
                    f"but the images are {what}. Use NormalizeImage alone, with 255 times these, before ToTensor"
                )
            is_scaling = kind == "ToDtype" and getattr(part, "scale", True)
            if is_scaling or kind.startswith("Convert") or not (kind or type(part).__module__.startswith("torch.nn.")):
                return None
        if isinstance(operation, PerSample) or not type(operation).__module__.startswith("gpubeton."):
            return None
    return None


def _misread_layout(name: str, steps: Sequence[BatchOp]) -> str | None:
    """Describe torchvision's transforms that get channels last, if there are any."""
    for step in steps:
        kinds = [kind for kind, _ in step.operation.parts if kind] if isinstance(step.operation, ModuleWrapper) else []
        shape = step.before.shape
        if kinds and len(shape) == 3 and shape[2] in (1, 3) and shape[0] not in (1, 3):
            return (
                f"{kinds[0]} of torchvision, in the pipeline of {name!r}, gets images of shape {tuple(shape)}, "
                "channels last, and expects channels first. Put ToTorchImage() before it"
            )
    return None


def _misread_halves(name: str, root: ImageOutput | RowOutput, steps: Sequence[BatchOp], last: State) -> str | None:
    """Describe who takes int16 that hold the bits of halves for numbers, if anybody does."""
    are_bits, reader = isinstance(root, ImageOutput) and root.program.halves_as_int16, "the loop"
    for step, after in zip(steps, [*(step.before for step in steps[1:]), last], strict=False):
        operation = step.operation
        if isinstance(operation, NormalizeImage):
            are_bits = operation.type == "float16" and not is_torch_dtype(step.before.dtype)
        elif isinstance(operation, View) or (isinstance(operation, ToTorchImage) and operation.convert_back_int16):
            are_bits = False
        elif are_bits and (
            isinstance(operation, (PerSample, ModuleWrapper, Convert))
            or not type(operation).__module__.startswith("gpubeton.")
        ):
            # A user's operation that declares halves has converted the bits.
            reader, are_bits = operation_name(operation), dtype_name(after.dtype) != "float16"
            break
    if not are_bits:
        return None
    return (
        f"{reader} gets int16 numbers from the pipeline of {name!r}, which are the bits of float16 numbers: as in "
        "FFCV, NormalizeImage(..., np.float16) gives these before ToTensor(), and a later ToTorchImage() turns them "
        "back. Let ToTensor() and ToTorchImage() come first, or normalize to np.float32"
    )
