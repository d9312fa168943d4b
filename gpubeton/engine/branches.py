"""Branches: outputs that go on from what an operation of another output's pipeline left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubeton.errors import PipelineError
from gpubeton.pipeline.operation import Operation, operation_name
from gpubeton.plan.branch_point import BranchPoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubeton.pipeline.pipeline_spec import PipelineSpec


def find_parents(specs: Mapping[str, PipelineSpec]) -> dict[str, str]:
    """Find the outputs from which others branch off.

    Parameters
    ----------
    specs : mapping of str to PipelineSpec
        The pipelines of all outputs.

    Returns
    -------
    dict of str to str
        For each output whose source is an operation, the output in whose pipeline that stands.

    Raises
    ------
    PipelineError
        If it stands in none, or more than once, or an output has both such a source and a decoder.

    Examples
    --------
    >>> from gpubeton.pipeline.pipeline_spec import PipelineSpec
    >>> from gpubeton.transforms import RandomHorizontalFlip, ToTensor
    >>> flip = RandomHorizontalFlip()
    >>> image = PipelineSpec("image", transforms=[flip, ToTensor()])
    >>> find_parents({"image": image, "view": PipelineSpec(flip, transforms=[ToTensor()])})
    {'view': 'image'}
    """
    parents = {}
    for name, spec in specs.items():
        if isinstance(spec.source, str):
            continue
        operation = operation_name(spec.source)
        if spec.decoder is not None:
            raise PipelineError(
                f"output {name!r} goes on from {operation}, where images are decoded already, but has a decoder, too"
            )
        places = [
            other
            for other, pipeline in specs.items()
            for one in (pipeline.decoder, *(pipeline.transforms or ()))
            if one is spec.source
        ]
        if len(places) != 1:
            found = f"stands in {', '.join(map(repr, places))}" if places else "stands in no pipeline"
            raise PipelineError(
                f"output {name!r} goes on from {operation}, which {found}; expected the very object that stands once "
                f"in the pipeline of another output"
            )
        parents[name] = places[0]
    return parents


def parents_first(names: Sequence[str], parents: Mapping[str, str]) -> list[str]:
    """Sort outputs so that each stands behind the one that it branches off.

    Parameters
    ----------
    names : sequence of str
        Names of the outputs.
    parents : mapping of str to str
        What `find_parents` returned.

    Returns
    -------
    list of str
        The same names.

    Raises
    ------
    PipelineError
        If outputs branch off each other in a circle.

    Examples
    --------
    >>> parents_first(["view", "image"], {"view": "image"})
    ['image', 'view']
    """
    sorted_names: list[str] = []
    for name in names:
        line = [name]
        while line[-1] in parents:
            line.append(parents[line[-1]])
            if line[-1] in line[:-1]:
                raise PipelineError(
                    f"outputs go on from each other, or follow each other, in a circle: {', '.join(map(repr, line))}"
                )
        sorted_names.extend(one for one in reversed(line) if one not in sorted_names)
    return sorted_names


def with_branch_points(operations: Sequence[Operation], sources: Sequence[Any]) -> list[Operation]:
    """Mark in a pipeline where others go on.

    Parameters
    ----------
    operations : sequence of Operation
        Copies of the user's operations.
    sources : sequence of objects
        The user's operations behind which other outputs branch off.

    Returns
    -------
    list of Operation
        The same with a `BranchPoint` behind each of those.

    Examples
    --------
    >>> from gpubeton.plan.snapshot import snapshot
    >>> from gpubeton.transforms import RandomHorizontalFlip, ToTensor
    >>> flip = RandomHorizontalFlip(0.5)
    >>> with_branch_points(snapshot([flip, ToTensor()]), [flip])
    [RandomHorizontalFlip(flip_prob=0.5), BranchPoint(), ToTensor()]
    """
    marked = []
    for operation in operations:
        marked.append(operation)
        if any(operation.copy_of is source for source in sources):
            marked.append(BranchPoint(operation.copy_of))
    return marked
