"""Followers: outputs whose images are cut and moved as those of another output are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubeton.engine.history import history_of
from gpubeton.engine.image_output import ImageOutput
from gpubeton.errors import PipelineError
from gpubeton.fields.image_decoders import FollowImage
from gpubeton.plan.following import leader_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubeton.pipeline.pipeline_spec import PipelineSpec
    from gpubeton.plan.leader import Leader


def find_leaders(specs: Mapping[str, PipelineSpec]) -> dict[str, str]:
    """Find the outputs that others follow.

    Parameters
    ----------
    specs : mapping of str to PipelineSpec
        The pipelines of all outputs.

    Returns
    -------
    dict of str to str
        For each output with a `FollowImage` the one that it follows.

    Raises
    ------
    PipelineError
        If there is none of that name, or the decoder does not stand first.

    Examples
    --------
    >>> from gpubeton.pipeline.pipeline_spec import PipelineSpec
    >>> mask = PipelineSpec("mask", transforms=[FollowImage("image")])
    >>> find_leaders({"image": PipelineSpec("image"), "mask": mask})
    {'mask': 'image'}
    """
    leaders = {}
    for name, spec in specs.items():
        operations = [*([] if spec.decoder is None else [spec.decoder]), *(spec.transforms or ())]
        for position, operation in enumerate(operations):
            if not isinstance(operation, FollowImage):
                continue
            if position > 0 or not isinstance(spec.source, str):
                raise PipelineError(f"output {name!r}: {operation!r} is a decoder, and has to stand first")
            if operation.image not in specs or operation.image == name:
                others = ", ".join(repr(other) for other in specs if other != name)
                raise PipelineError(
                    f"output {name!r}: {operation!r} follows another output of the batch; there are {others or 'none'}"
                )
            leaders[name] = operation.image
    return leaders


def leader_output(name: str, outputs: Mapping[str, Any]) -> Leader:
    """Say what moves the pixels of an output that is followed.

    Parameters
    ----------
    name : str
        Its name.
    outputs : mapping of str to ImageOutput, RowOutput or BranchOutput
        The outputs that are compiled, it among them.

    Returns
    -------
    Leader
        What a follower does likewise.

    Raises
    ------
    PipelineError
        If it has no images, or they are moved in a way that cannot be followed.
    """
    root, steps = history_of(outputs[name], outputs)
    if not isinstance(root, ImageOutput):
        images = [repr(other) for other, output in outputs.items() if isinstance(output, ImageOutput)]
        raise PipelineError(
            f"FollowImage({name!r}), but {name!r} is no output with decoded images; there are "
            f"{', '.join(images) or 'none'}."
        )
    column = root.source.column
    return leader_of(name, root.program, steps, column["height"], column["width"])
